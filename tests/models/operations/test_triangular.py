"""Operations on triangular matrices: values and gradients on every linker."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from scipy.linalg import solve_triangular

from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.models.distributions.positive_definite import PositiveDefinite
from kernelzoo.models.operations.arrays import cholesky_or_nan, log_det, solve_lower


def _mode(linker):
    if linker == "python":
        return python_mode()
    if linker == "JAX":
        pytest.importorskip("jax")
    return get_mode(linker)


@pytest.fixture(params=["python", "NUMBA", "JAX"])
def mode(request):
    return _mode(request.param)


def _positive_definite(rng, n):
    a = rng.normal(size=(n, n + 2))
    return a @ a.T


TRANSFORM = PositiveDefinite()
# Each takes a square matrix and another, and uses nothing above the diagonal of the first.
FUNCTIONS = {
    "factor": lambda a, b: (cholesky_or_nan(a) * b).sum(),
    "solve": lambda a, b: (solve_lower(cholesky_or_nan(a), b) ** 2).sum(),
    "solve transposed": lambda a, b: (
        solve_lower(cholesky_or_nan(a), b.T, transposed=True) ** 3
    ).sum(),
    "packed": lambda a, b: (TRANSFORM.forward(a) ** 2).sum() * b[0, 0],
    "unpacked": lambda a, b: (TRANSFORM.backward(b[0, :6]) * cholesky_or_nan(a[:3, :3])).sum() ** 2,
    "log_det": lambda a, b: log_det(cholesky_or_nan(a)) ** 2 * b[0, 0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    rng = np.random.default_rng(1)
    a, b = _positive_definite(rng, 6), rng.normal(size=(6, 6))
    with pytensor.config.change_flags(mode=python_mode()):
        pytensor.gradient.verify_grad(FUNCTIONS[name], [a, b], rng=rng)


@pytest.mark.parametrize("name", ["factor", "solve", "log_det"])
def test_gradients_have_gradients(name):
    rng = np.random.default_rng(2)
    a, b = _positive_definite(rng, 4), rng.normal(size=(4, 4))

    def slope(a, b):
        return (pt.grad(FUNCTIONS[name](a, b), a) * np.cos(np.arange(16.0)).reshape(4, 4)).sum()

    with pytensor.config.change_flags(mode=python_mode()):
        pytensor.gradient.verify_grad(slope, [a, b], rng=rng)


def test_linkers_agree(mode):
    """In all memory layouts; vector instructions and what is left of a row."""
    rng = np.random.default_rng(3)
    n = 13
    a, b, c = (pt.matrix(name, shape=(n, n)) for name in "abc")
    factor = cholesky_or_nan(a)
    forward, backward = solve_lower(factor, b), solve_lower(factor, b, transposed=True)
    outputs = [
        *pt.grad(None, [a, b], known_grads={forward: c}),
        pt.grad(None, a, known_grads={backward: c}),
    ]
    here = pytensor.function([a, b, c], outputs, mode=mode)
    there = pytensor.function([a, b, c], outputs, mode=python_mode())
    left, right, slope = _positive_definite(rng, n), *rng.normal(size=(2, n, n))
    for arrays in ((left, right, slope), (np.asfortranarray(left), right[::-1], slope.T)):
        for got, expected in zip(here(*arrays), there(*arrays), strict=True):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11 * scale)


def test_values_are_those_of_lapack(mode):
    rng = np.random.default_rng(4)
    matrix, right = _positive_definite(rng, 5), rng.normal(size=(5, 3))
    a, b = pt.matrix("a"), pt.matrix("b")
    factor = cholesky_or_nan(a)
    function = pytensor.function(
        [a, b], [factor, solve_lower(factor, b), solve_lower(factor, b, transposed=True)], mode=mode
    )
    # Nothing above the diagonal is read.
    spoilt = np.where(np.tri(5), matrix, np.nan)
    got = function(spoilt, right)
    lower = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(got[0], lower, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(got[1], solve_triangular(lower, right, lower=True), rtol=1e-10)
    np.testing.assert_allclose(
        got[2], solve_triangular(lower, right, lower=True, trans=1), rtol=1e-10
    )


@pytest.mark.parametrize("matrix", [[[1.0, 2.0], [2.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]])
def test_no_factor_is_nan(mode, matrix):
    a = pt.matrix("a")
    factor = pytensor.function([a], cholesky_or_nan(a), mode=mode)(np.array(matrix))
    assert np.isnan(factor[np.tril_indices(2)]).all()


# Numba takes some two seconds for each operation over a stack.
@pytest.mark.parametrize("linker", ["python", "JAX", pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_stacks_of_matrices(linker):
    mode = _mode(linker)
    rng = np.random.default_rng(5)
    stack = np.stack([_positive_definite(rng, 3) for _ in range(4)])
    right = rng.normal(size=(3, 2))
    a, b = pt.tensor("a", shape=(4, 3, 3)), pt.matrix("b", shape=(3, 2))
    factor = cholesky_or_nan(a)
    entries = TRANSFORM.forward(a)
    outputs = [factor, solve_lower(factor, b), entries, TRANSFORM.backward(entries)]
    slope = pt.grad(sum(output.sum() for output in outputs), a)
    *got, got_slope = pytensor.function([a, b], [*outputs, slope], mode=mode)(stack, right)
    one = pt.matrix("one", shape=(3, 3))
    factor = cholesky_or_nan(one)
    entries = TRANSFORM.forward(one)
    outputs = [factor, solve_lower(factor, b), entries, TRANSFORM.backward(entries)]
    slope = pt.grad(sum(output.sum() for output in outputs), one)
    each = pytensor.function([one, b], [*outputs, slope], mode=python_mode())
    for i, matrix in enumerate(stack):
        for whole, alone in zip([*got, got_slope], each(matrix, right), strict=True):
            np.testing.assert_allclose(whole[i], alone, rtol=1e-9, atol=1e-12)


def test_numba_goes_through_stacks():
    rng = np.random.default_rng(5)
    stack = np.stack([_positive_definite(rng, 3) for _ in range(4)])
    a = pt.tensor("a", shape=(4, 3, 3))
    factors = pytensor.function([a], cholesky_or_nan(a), mode="NUMBA")(stack)
    np.testing.assert_allclose(factors, np.linalg.cholesky(stack), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n", [1, 4])
def test_packing_goes_by_rows_there_and_back(mode, n):
    length = n * (n + 1) // 2
    entries, matrix = pt.vector("entries", shape=(length,)), pt.matrix("matrix", shape=(n, n))
    values = np.arange(1.0, length + 1) / length
    there = pytensor.function([entries], TRANSFORM.backward(entries), mode=mode)(values)
    back = pytensor.function([matrix], TRANSFORM.forward(matrix), mode=mode)(there)
    factor = np.zeros((n, n))
    factor[np.tril_indices(n)] = values
    factor[np.diag_indices(n)] = np.exp(np.diagonal(factor))
    np.testing.assert_allclose(there, factor @ factor.T, rtol=1e-12)
    np.testing.assert_allclose(back, values, rtol=1e-9)


def test_shapes_are_known_where_the_operands_are():
    assert TRANSFORM.backward(pt.vector(shape=(6,))).type.shape == (3, 3)
    assert TRANSFORM.forward(pt.matrix(shape=(3, 3))).type.shape == (6,)
    assert solve_lower(pt.matrix(), pt.matrix(shape=(3, 2))).type.shape == (3, 2)
    length = pt.vector()
    shape = TRANSFORM.backward(length).shape
    assert shape.eval({length: np.zeros(6)}, mode=python_mode()).tolist() == [3, 3]


def test_the_slope_is_zero_above_the_diagonal(mode):
    rng = np.random.default_rng(6)
    matrix, slope = pt.matrix("matrix"), pt.matrix("slope")
    factor = cholesky_or_nan(matrix)
    of_matrix = pt.grad(None, matrix, known_grads={factor: slope})
    out = pytensor.function([matrix, slope], of_matrix, mode=mode)(
        _positive_definite(rng, 4), rng.normal(size=(4, 4))
    )
    assert np.all(np.triu(out, 1) == 0)


# Functions of an operand, and one of lengths that do not fit.
MISFITS = {
    "factor": (cholesky_or_nan, np.ones((2, 3))),
    "too few rows": (lambda b: solve_lower(pt.as_tensor(np.eye(3)), b), np.ones((2, 1))),
    "too many rows": (lambda b: solve_lower(pt.as_tensor(np.eye(3)), b), np.ones((4, 1))),
}


@pytest.mark.parametrize("linker", ["python", "NUMBA"])
@pytest.mark.parametrize("name", MISFITS)
def test_lengths_that_do_not_fit_are_refused(name, linker):
    """Compiled loops would read what lies beside an array."""
    function, value = MISFITS[name]
    operand = pt.tensor(dtype="float64", shape=(None,) * value.ndim)
    of_operand = pytensor.function([operand], function(operand), mode=_mode(linker))
    with pytest.raises(ValueError, match=r"square|incompatible|as many rows"):
        of_operand(value)


def test_zeros_on_the_diagonal_are_no_errors(mode):
    a, b = pt.matrix("a"), pt.matrix("b")
    outputs = solve_lower(a, b), solve_lower(a, b, transposed=True)
    function = pytensor.function([a, b], outputs, mode=mode)
    with np.errstate(divide="ignore"):
        forward, backward = function(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0], [2.0]]))
    # LAPACK gives no solution; the others divide by zero.
    assert not np.isfinite([forward[1], backward[1]]).any()


def test_nan_after_the_first_row_reaches_the_last_of_the_diagonal(mode):
    a = pt.matrix("a")
    matrix = np.eye(3) + np.diag([0.0, np.nan, 0.0])
    assert np.isnan(pytensor.function([a], cholesky_or_nan(a), mode=mode)(matrix)[-1, -1])
