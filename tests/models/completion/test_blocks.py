"""Blocks of a kernel matrix against whole matrices, for numbers of objects that differ."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.basic import logp
from pytensor.graph.replace import graph_replace
from scipy import stats

from kernelzoo.models.completion.blocks import (
    Blocks,
    declare_inverse_wishart,
    declare_kernel,
    object_coords,
    partition,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODE = "FAST_COMPILE"
#: Fewer and more training than test objects, and one alone.
SIZES = [(2, 3), (3, 1), (1, 2)]
R, ETA = 9.7, 8.3


def positive_definite(n, seed):
    x = np.random.default_rng(seed).normal(size=(n, n + 2))
    return x @ x.T / n + 0.2 * np.eye(n)


def blocks_of(matrix, n1):
    """(x11, x21, x22.1, x21 x11^-1) of a matrix, by inverses."""
    inverse = np.linalg.inv(matrix)
    schur = np.linalg.inv(inverse[n1:, n1:])
    return matrix[:n1, :n1], matrix[n1:, :n1], schur, -schur @ inverse[n1:, :n1]


def log_density(model, **values):
    """Sum of the log densities of the named variables at these values."""
    given = {model[name]: pt.constant(value) for name, value in values.items()}
    total = sum(logp(variable, value) for variable, value in given.items())
    # Parameters that are variables themselves take their values as well.
    return float(graph_replace(total, given, strict=False).eval(mode=MODE))


@pytest.mark.parametrize(("n1", "n2"), SIZES)
def test_partition(n1, n2):
    whole = positive_definite(n1 + n2, 0)
    found = [part.eval(mode=MODE) for part in partition(pt.as_tensor(whole), n1)]
    x11, _, schur, coefficients = blocks_of(whole, n1)
    for ours, expected in zip(
        found, (x11, np.linalg.cholesky(x11), schur, coefficients), strict=True
    ):
        np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_partition_of_no_positive_definite_matrix_is_not_a_number():
    """A sampler that steps out of the space is told so, not stopped."""
    found = partition(pt.as_tensor(np.diag([-1.0, 1.0, 1.0])), 2)
    assert np.isnan(found.schur.eval(mode=MODE)).all()


@pytest.mark.parametrize(("n1", "n2"), SIZES)
def test_inverse_wishart_in_blocks_is_that_of_the_whole_matrix(n1, n2):
    """The change from Sigma to its blocks has the Jacobian determinant |Sigma11|^n2."""
    n = n1 + n2
    theta, Sigma = positive_definite(n, 1), positive_definite(n, 2)
    with pm.Model(coords=object_coords(np.arange(n), n1)) as model:
        declare_inverse_wishart(pt.as_tensor(theta), ETA, n1)
    S11, _, schur, B = blocks_of(Sigma, n1)
    ours = log_density(model, Sigma11=S11, Sigma22_1=schur, B=B)
    exact = stats.invwishart(ETA, theta).logpdf(Sigma) + n2 * np.linalg.slogdet(S11)[1]
    np.testing.assert_allclose(ours, exact, rtol=1e-10)


def kernel_model(n1, n2):
    """K given a Sigma, and the observed block."""
    n = n1 + n2
    Sigma, K11 = positive_definite(n, 2), positive_definite(n1, 3)
    S11, _, schur, B = blocks_of(Sigma, n1)
    factor = np.linalg.cholesky(schur)
    with pm.Model(coords=object_coords(np.arange(n), n1)) as model:
        sigma = Blocks(*map(pt.as_tensor, (S11, schur, factor, B)))
        declare_kernel(sigma, R, pm.Data("K11_values", K11), n1)
    return model, Sigma, K11


@pytest.mark.parametrize(("n1", "n2"), SIZES)
def test_kernel_in_blocks_is_that_of_the_whole_matrix(n1, n2):
    """The change from K to its blocks has no Jacobian."""
    model, Sigma, K11 = kernel_model(n1, n2)
    K = positive_definite(n1 + n2, 4)
    K[:n1, :n1] = K11
    K[n1:, n1:] += 10 * np.eye(n2)
    _, K21, K22_1, _ = blocks_of(K, n1)
    ours = log_density(model, K11=K11, K21=K21, K22_1=K22_1)
    np.testing.assert_allclose(ours, stats.wishart(R, Sigma).logpdf(K), rtol=1e-10)
    assert [rv.name for rv in model.observed_RVs] == ["K11"]
    np.testing.assert_array_equal(model.rvs_to_values[model["K11"]].eval(), K11)


@pytest.mark.parametrize(("n1", "n2"), SIZES)
def test_what_follows_from_the_blocks(n1, n2):
    model, Sigma, _ = kernel_model(n1, n2)
    names = ["K11", "K21", "K22_1", "K22", "trace_K22", "log_det_Sigma22_1"]
    found = dict(zip(names, pm.draw([model[x] for x in names], random_seed=1, mode=MODE),
                     strict=True))  # fmt: skip
    K = np.block([[found["K11"], found["K21"].T], [found["K21"], found["K22"]]])
    np.testing.assert_allclose(found["K22_1"], blocks_of(K, n1)[2], atol=1e-9)
    np.testing.assert_allclose(found["trace_K22"], np.trace(found["K22"]))
    log_det = np.linalg.slogdet(blocks_of(Sigma, n1)[2])[1]
    np.testing.assert_allclose(found["log_det_Sigma22_1"], log_det)


def test_dims_bear_the_names_of_the_objects():
    coords = object_coords(np.array(list("pqrst")), 2)
    rows = {"object": list("pqrst"), "train": list("pq"), "test": list("rst")}
    columns = {f"{dim}_": names for dim, names in rows.items()}
    assert {dim: names.tolist() for dim, names in coords.items()} == rows | columns
