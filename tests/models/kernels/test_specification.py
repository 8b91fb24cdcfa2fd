import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.kernel_approximation import Nystroem

from kernelzoo.models.kernels import (
    Kernels,
    as_stack,
    basis_expansion,
    covariance,
    gaussian,
    linear,
    polynomial,
    precomputed,
)

N, NEW, D = 9, 4, 3
BASES = {
    "gaussian": gaussian(0.3),
    "gaussian default": gaussian(),
    "polynomial": polynomial(2),
    "cubic": polynomial(3, gamma=0.5, coef0=0.0),
    "linear": linear(),
    "covariance": covariance(2.0 * pm.gp.cov.Matern32(D, ls=1.3) + pm.gp.cov.Linear(D, c=0.1)),
}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, D))


@pytest.fixture
def X_new(rng):
    return rng.normal(size=(NEW, D))


# --- values ------------------------------------------------------------------------------------


def formulas(x, y):
    dot, distance = x @ y, np.linalg.norm(x - y)
    matern = (1 + np.sqrt(3) * distance / 1.3) * np.exp(-np.sqrt(3) * distance / 1.3)
    return {
        "gaussian": np.exp(-0.3 * distance**2),
        "gaussian default": np.exp(-(distance**2) / D),
        "polynomial": (dot + 1) ** 2,
        "cubic": (0.5 * dot) ** 3,
        "linear": dot,
        "covariance": 2 * matern + (x - 0.1) @ (y - 0.1),
    }


@pytest.mark.parametrize("name", BASES)
def test_values_follow_the_formula(name, X, X_new):
    expected = [[formulas(x, y)[name] for y in X] for x in X_new]
    np.testing.assert_allclose(BASES[name](X_new, X).values[0], expected, rtol=1e-12, atol=1e-12)
    expected = [[formulas(x, y)[name] for y in X] for x in X]
    np.testing.assert_allclose(BASES[name](X).values[0], expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    arrays(
        float,
        st.tuples(st.integers(2, 12), st.integers(1, 4)),
        elements=st.floats(-50, 50, width=32),
    ),
    st.sampled_from([name for name in BASES if name != "covariance"]),
    st.sampled_from([(), ("trace",)]),
)
def test_every_kernel_is_psd_for_every_input(X, name, chain):
    # A constant away from zero gives the trace something to divide by.
    X = np.vstack([X, np.full((1, X.shape[1]), 3.0)])
    as_stack(BASES[name].normalize(*chain)(X))


# --- specification -----------------------------------------------------------------------------


def test_default_names_say_what_the_kernel_is(X):
    kernels = gaussian(1 / 13) | linear() | polynomial(2) | polynomial(3, gamma=2, coef0=0)
    assert kernels(X)["kernel"].values.tolist() == [
        "gaussian(0.07692)",
        "linear",
        "polynomial(2)",
        "polynomial(3, gamma=2, coef0=0)",
    ]


def test_repeated_default_names_are_numbered(X):
    names = (linear() | linear().normalize("unit") | gaussian() | linear())(X)["kernel"].values
    assert names.tolist() == ["linear", "linear #2", "gaussian", "linear #3"]


def test_given_names(X):
    names = (linear().named("a") | gaussian() | polynomial().named("b"))(X)["kernel"].values
    assert names.tolist() == ["a", "gaussian", "b"]


def test_given_names_must_differ():
    with pytest.raises(
        ValueError, match=r"different for each kernel of a stack. Got 'a' more than once"
    ):
        linear().named("a") | gaussian().named("a")


def test_a_name_that_a_block_makes_twice_is_refused():
    kernels = gaussian(0.1).on("a").named("x[b]") | linear().named("x")
    X = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(
        ValueError, match=r"different for each kernel .* Got 'x\[b\]' more than once"
    ):
        kernels({"a": X, "b": X})


def test_given_name_wins_over_a_default_name(X):
    names = (gaussian() | linear().named("gaussian"))(X)["kernel"].values.tolist()
    assert names == ["gaussian #2", "gaussian"]


def test_one_name_for_several_kernels():
    with pytest.raises(ValueError, match=r"given to one kernel, before '|'. Got 2 kernels"):
        (linear() | gaussian()).named("a")


def test_specifications_are_values():
    assert gaussian(0.5) | linear() == gaussian(0.5) | linear()
    assert hash(polynomial(2)) == hash(polynomial(2))
    kernel = linear()
    kernel.normalize("unit").named("x").on("y")
    assert kernel == linear()
    with pytest.raises(AttributeError):
        kernel.members = ()
    with pytest.raises(TypeError):
        kernel | "linear"


def test_stack_has_dims_coords_and_layout(X, X_new):
    kernels = gaussian() | linear()
    train, cross = kernels(X), kernels(X_new, X)
    assert train.dims == cross.dims == ("kernel", "obs", "basis")
    assert train.dtype == float
    assert train.values.flags.c_contiguous
    assert train["obs"].values.tolist() == train["basis"].values.tolist() == list(range(N))
    assert cross["obs"].values.tolist() == list(range(N, N + NEW))
    assert cross["basis"].equals(train["basis"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gaussian(0), "'gamma' argument of gaussian must be a finite number above 0"),
        (lambda: polynomial(0), "'degree' argument of polynomial must be a whole number from 1"),
        (lambda: polynomial(1.5), "'degree' argument of polynomial"),
        (lambda: polynomial(2, gamma=np.nan), "'gamma' argument of polynomial"),
        (lambda: polynomial(2, coef0=-1), "'coef0' argument of polynomial must be 0 or positive"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("train", "new", "message"),
    [
        (np.ones(3), None, r"'X' argument of Kernels must be of shape \(objects, features\). Got"),
        (np.ones((0, 3)), None, r"Got shape \(0, 3\)"),
        ([["a", "b"]], None, "must be real numbers. Got str"),
        ([[1.0, np.nan]], None, r"must be finite. Got 1 NaN .* position \(0, 1\)"),
        (np.ones((3, 2)), np.ones((1, 3)), "of 2 features, as the training .* Got 3 features"),
        (np.ones((3, 2)), {"a": np.ones((1, 2))}, "one array, as the training .* a dict with"),
        ({"a": np.ones((3, 2))}, np.ones((1, 2)), "with the block 'a' .* Got one array"),
        ({}, None, "a dict with at least one block"),
        ({"a": np.ones((3, 2)), "b": np.ones((4, 2))}, None, r"rows \{'a': 3, 'b': 4\}"),
        ({"a": [[np.inf]]}, None, r"""'X\["a"\]' argument of Kernels must be finite"""),
    ],
)
def test_bad_objects(train, new, message):
    with pytest.raises(ValueError, match=message):
        linear()(*([train] if new is None else [new, train]))


# --- precomputed, covariances, basis expansions ------------------------------------------------


def test_precomputed_beside_features(X, X_new):
    gram, cross = linear()(X).values[0], linear()(X_new, X).values[0]
    kernels = gaussian().on("x") | precomputed().on("sequence")
    stack = kernels({"x": X_new, "sequence": cross}, {"x": X, "sequence": gram})
    assert stack["kernel"].values.tolist() == ["gaussian[x]", "sequence"]
    np.testing.assert_array_equal(stack.values[1], cross)


def test_normalisation_does_not_write_into_a_precomputed_matrix(X):
    gram = linear()(X).values[0]
    before = gram.copy()
    precomputed().normalize("trace")(gram)
    np.testing.assert_array_equal(gram, before)


@pytest.mark.parametrize("chain", [("unit",), ("trace", "unit")])
def test_precomputed_unit_needs_self_similarities(chain, X, X_new):
    gram, cross = linear()(X).values[0], linear()(X_new, X).values[0]
    with pytest.raises(ValueError, match=r"normalised beforehand, k.* 'unit'"):
        precomputed().normalize(*chain)(cross, gram)


@pytest.mark.parametrize(
    ("new", "train", "message"),
    [
        (None, np.ones((3, 2)), r"a square Gram matrix .* Got shape \(3, 2\)"),
        (np.ones((3, 2)), np.eye(3), r"Got shape \(3, 2\), which looks transposed"),
        (np.ones((2, 4)), np.eye(3), r"\(new objects, 3 training objects\). Got shape \(2, 4\)\."),
    ],
)
def test_precomputed_shapes(new, train, message):
    with pytest.raises(ValueError, match=message):
        precomputed()(*([train] if new is None else [new, train]))


def test_covariance_with_a_random_hyperparameter(X):
    with pm.Model():
        kernel = covariance(pm.gp.cov.ExpQuad(D, ls=pm.HalfNormal("ls")))
        with pytest.raises(ValueError, match=r"fixed hyperparameters. Got the random variable ls"):
            kernel(X)


def test_basis_expansion_with_nystroem_features(X, X_new):
    features = Nystroem(gamma=0.3, n_components=5, random_state=0).fit(X)
    kernels = basis_expansion(features.transform).named("nystroem")
    train, cross = kernels(X), kernels(X_new, X)
    assert train.shape == (1, N, 5)
    assert train["kernel"].values.tolist() == ["nystroem"]
    assert train["basis"].values.tolist() == [f"phi{m}" for m in range(5)]
    assert cross["basis"].equals(train["basis"])
    np.testing.assert_array_equal(cross.values[0], features.transform(X_new))


def test_square_basis_expansion_is_not_taken_for_a_gram_matrix(X):
    stack = basis_expansion(lambda x: np.tile(x, 3))(X)
    assert stack.shape == (1, N, N)
    as_stack(stack)


def test_basis_expansion_of_another_size_beside_a_kernel(X):
    with pytest.raises(ValueError, match=r"as many basis functions by every kernel. Got \{'linear"):
        (linear() | basis_expansion(np.square))(X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[:2], r"a map of 9 objects to features of shape \(9, M\). Got shape \(2, 3\)"),
        (lambda x: x[:, 0], r"Got shape \(9,\)"),
        (lambda x: x * np.nan, "'function' argument of basis_expansion must be finite"),
    ],
)
def test_bad_basis_expansions(function, message, X):
    with pytest.raises(ValueError, match=message):
        basis_expansion(function)(X)


def test_basis_expansion_is_not_normalised():
    with pytest.raises(ValueError, match=r"applied to kernels: .* the basis expansion 'square'"):
        (linear() | basis_expansion(np.square)).normalize("trace")


def test_public_constructors_give_specifications():
    assert all(isinstance(kernel, Kernels) for kernel in BASES.values())


@pytest.mark.parametrize("function", [pm.gp.cov.Matern52, lambda ls: pm.gp.cov.Matern52(3, ls=ls)])
def test_functions_that_make_covariance_functions_are_refused(function):
    with pytest.raises(TypeError, match=r"must be a covariance function of pm.gp.cov"):
        covariance(function)
