"""The product of matrices against NumPy's, on every linker."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import toposort

from kernelzoo.models.operations.arrays import MatrixProduct, matrix_product

PYTHON = Mode(linker="py", optimizer="fast_run")
rng = np.random.default_rng(0)
A, B = rng.normal(size=(4, 3)), rng.normal(size=(3, 5))


@pytest.mark.parametrize("mode", [PYTHON, "NUMBA", "JAX"])
def test_values_and_gradients_of_every_layout(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    a, b, slope = pt.dmatrix(), pt.dmatrix(), pt.dmatrix()
    value = matrix_product(a, b)
    # Nothing but the operation, which alone takes numba seconds.
    outputs = [value, *pt.grad(None, [a, b], known_grads={value: slope})]
    function = pytensor.function([a, b, slope], outputs, mode=mode)
    for left, right in ((A, B), (np.asfortranarray(A), B[:, ::-1]), (B.T, A.T)):
        product = left @ right
        of_product = rng.normal(size=product.shape)
        expected = product, of_product @ right.T, left.T @ of_product
        for mine, theirs in zip(expected, function(left, right, of_product), strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-12)


@pytest.mark.parametrize(("left", "right"), [(A[0], B), (A, B[:, 0]), (A[0], B[:, 0]), (A, B)])
def test_vectors_are_rows_on_the_left_and_columns_on_the_right(left, right):
    product = matrix_product(left, right)
    assert product.type.shape == (left @ right).shape
    np.testing.assert_allclose(product.eval(mode=PYTHON), left @ right, rtol=1e-12)


@pytest.mark.parametrize(("left", "right"), [(True, False), (False, True), (True, True)])
def test_batches_of_matrices(left, right):
    a, b = pt.dmatrix(), pt.dmatrix()
    stacks = {a: np.stack([A, 2 * A**2]) if left else A, b: np.stack([B, B**2]) if right else B}
    batch = vectorize_graph(
        matrix_product(a, b), {core: pt.as_tensor(stack) for core, stack in stacks.items()}
    )
    np.testing.assert_allclose(batch.eval(mode=PYTHON), np.matmul(*stacks.values()), rtol=1e-12)


def test_batches_of_one_matrix_are_one_product():
    a, b = pt.dmatrix(), pt.dmatrix()
    batch = vectorize_graph(matrix_product(a, b), {b: pt.dtensor3()})
    products = [node for node in toposort([batch]) if isinstance(node.op, MatrixProduct)]
    assert len(products) == 1


def test_vectors_and_matrices_are_multiplied_with_each_matrix_of_a_stack():
    stack = np.stack([A, 2 * A])
    for left, right in ((A[:, 0], stack), (stack, B[:, 0]), (stack, B)):
        product = matrix_product(left, right)
        assert product.type.shape == (left @ right).shape
        np.testing.assert_allclose(product.eval(mode=PYTHON), left @ right, rtol=1e-12)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 3\), \(5, 3\)"):
        matrix_product(A, B.T)
    a, b = pt.dmatrix(), pt.dmatrix()
    product = pytensor.function([a, b], matrix_product(a, b), mode=PYTHON)
    with pytest.raises(ValueError, match=r"\(4,3\) and \(5,3\) not aligned"):
        product(A, B.T)
