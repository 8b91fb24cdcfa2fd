import itertools

import numpy as np
import pymc as pm
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from kernelzoo.models.kernels import (
    as_stack,
    covariance,
    gaussian,
    inverse_multiquadric,
    linear,
    polynomial,
    precomputed,
)

N, NEW, D = 9, 4, 3
BASES = {
    "gaussian": gaussian(0.3),
    "gaussian default": gaussian(),
    "multiquadric": inverse_multiquadric(0.3),
    "polynomial": polynomial(2),
    "cubic": polynomial(3, gamma=0.5, coef0=0.0),
    "linear": linear(),
    "covariance": covariance(2.0 * pm.gp.cov.Matern32(D, ls=1.3) + pm.gp.cov.Linear(D, c=0.1)),
}
CHAINS = [chain for r in range(3) for chain in itertools.permutations(("trace", "unit"), r)]
# A covariance function is compiled at each evaluation, so it meets one chain of each length.
PAIRS = [
    pytest.param(name, steps, id="-".join((name, *steps)))
    for name in BASES
    for steps in (CHAINS if name != "covariance" else [(), ("unit",), ("unit", "trace")])
]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, D))


@pytest.fixture
def X_new(rng):
    return rng.normal(size=(NEW, D))


@pytest.mark.parametrize(("name", "chain"), PAIRS)
def test_cross_stack_of_training_objects_is_the_training_stack(name, chain, X):
    kernels = BASES[name].normalize(*chain)
    train = kernels(X)
    cross = kernels(X.copy(), X)
    np.testing.assert_allclose(cross.values, train.values, rtol=1e-9, atol=1e-11)
    as_stack(train)


@pytest.mark.parametrize(("name", "chain"), PAIRS)
def test_new_objects_are_normalised_one_by_one(name, chain, X, X_new):
    """Adding or taking away new objects changes nothing: constants are those of the training."""
    kernels = BASES[name].normalize(*chain)
    together = kernels(np.vstack([X_new, 100 * X_new]), X).values
    alone = np.concatenate([kernels(x[None], X).values for x in X_new[:2]], axis=1)
    np.testing.assert_allclose(together[:, :2], alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("steps", CHAINS[1:], ids="-".join)
def test_every_step_of_a_chain_has_its_property(steps, X):
    gram = polynomial(2).normalize(*steps)(X).values[0]
    found = {
        "trace": np.trace(gram) / N - 1,
        "unit": np.diagonal(gram) - 1,
    }
    for step in steps:
        np.testing.assert_allclose(found[step], 0, atol=1e-10)


def test_trace_makes_the_training_trace_n(X):
    stack = (linear() | polynomial(3)).normalize("trace")(X)
    np.testing.assert_allclose(np.trace(stack.values, axis1=1, axis2=2), [N, N])


def test_trace_uses_the_training_factor_on_new_objects(X, X_new):
    stack = linear().normalize("trace")(X_new, X)
    np.testing.assert_allclose(stack.values[0], X_new @ X.T * N / np.sum(X**2))


def test_unit_of_linear_is_cosine(X, X_new):
    values = linear().normalize("unit")(X_new, X).values[0]
    np.testing.assert_allclose(values, cosine_similarity(X_new, X))


def test_normalisations_accumulate_and_apply_to_the_whole_stack(X):
    kernels = (linear().normalize("unit") | gaussian()).normalize("trace")
    assert [member.steps for member in kernels.members] == [("unit", "trace"), ("trace",)]
    np.testing.assert_allclose(kernels(X).values[0], linear().normalize("unit")(X).values[0])


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_training_stack_is_exactly_symmetric(chain, X):
    # BLAS fills both halves of X X' alike; normalisation must not undo it.
    stack = polynomial(2).normalize(*chain)(X).values
    np.testing.assert_array_equal(stack, stack.swapaxes(1, 2))


def test_unit_needs_positive_self_similarities(X):
    X[2] = 0.0
    with pytest.raises(ValueError, match=r"positive self-similarities .* Got 0 for an object"):
        linear().normalize("unit")(X)


def test_trace_needs_a_positive_trace():
    with pytest.raises(ValueError, match=r"'X' argument of linear must be of positive trace"):
        linear().normalize("trace")(np.zeros((3, 2)))


def test_unknown_normalisation():
    with pytest.raises(ValueError, match=r"one of 'trace', 'unit'. Got 'traces' \(the"):
        linear().normalize("traces")


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_precomputed_equals_the_kernel_it_was_computed_from(chain, X, X_new):
    base = polynomial(2)
    gram, cross = base(X).values[0], base(X_new, X).values[0]
    expected, kernel = base.normalize(*chain), precomputed().normalize(*chain)
    np.testing.assert_allclose(kernel(gram).values, expected(X).values)
    if "unit" not in chain:
        np.testing.assert_allclose(kernel(cross, gram).values, expected(X_new, X).values)
