"""Weighted sums of a stack of matrices: values and gradients on every linker."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.models.operations.arrays import weighted_sum

rng = np.random.default_rng(0)
STACK, WEIGHTS, OTHER = rng.normal(size=(3, 4, 5)), rng.normal(size=3), rng.normal(size=(4, 5))


@pytest.mark.parametrize("mode", ["python", "NUMBA", "JAX"])
def test_values_and_gradients_of_every_layout(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    # JAX needs known shapes; data of a model are constants there.
    shape = STACK.shape if mode == "JAX" else (None, None, None)
    k, w, other = pt.tensor("k", shape=shape), pt.vector("w"), pt.matrix("other")
    total = weighted_sum(k, w)
    outputs = [total, *pt.grad(None, [k, w], known_grads={total: other})]
    function = pytensor.function(
        [k, w, other], outputs, mode=python_mode() if mode == "python" else mode
    )
    for stack in (STACK, np.asfortranarray(STACK), STACK[:, ::-1]):
        value, of_stack, of_weights = function(stack, WEIGHTS, OTHER)
        np.testing.assert_allclose(value, np.einsum("s,snm->nm", WEIGHTS, stack), rtol=1e-12)
        np.testing.assert_allclose(of_stack, WEIGHTS[:, None, None] * OTHER, rtol=1e-12)
        np.testing.assert_allclose(of_weights, np.einsum("snm,nm->s", stack, OTHER), rtol=1e-12)


def test_gradients_have_gradients():
    def slope(k, w):
        return (pt.grad((weighted_sum(k, w) ** 2).sum(), w) ** 2).sum()

    with pytensor.config.change_flags(mode=python_mode()):
        pytensor.gradient.verify_grad(slope, [STACK, WEIGHTS], rng=rng)


@pytest.mark.parametrize("mode", ["python", "NUMBA"])
def test_weights_of_another_number_are_refused(mode):
    w = pt.vector()
    total = weighted_sum(STACK, w)
    with pytest.raises(ValueError, match=r"not aligned|incompatible"):
        total.eval({w: WEIGHTS[:2]}, mode=python_mode() if mode == "python" else mode)


def test_shapes_are_known_where_the_operands_are():
    assert weighted_sum(STACK, WEIGHTS).type.shape == (4, 5)
