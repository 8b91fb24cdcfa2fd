import itertools

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.kernel_approximation import Nystroem
from sklearn.preprocessing import KernelCenterer

from kernelzoo.models.kernels import (
    Kernels,
    as_stack,
    basis_expansion,
    cosine,
    covariance,
    cross_gram,
    gaussian,
    laplace,
    linear,
    polynomial,
    precomputed,
)

N, NEW, D = 9, 4, 3
BASES = {
    "gaussian": gaussian(0.3),
    "gaussian default": gaussian(),
    "laplace": laplace(0.2),
    "polynomial": polynomial(2),
    "cubic": polynomial(3, gamma=0.5, coef0=0.0),
    "linear": linear(),
    "cosine": cosine(),
    "covariance": covariance(2.0 * pm.gp.cov.Matern32(D, ls=1.3) + pm.gp.cov.Linear(D, c=0.1)),
}
CHAINS = [
    chain for r in range(4) for chain in itertools.permutations(("trace", "unit", "center"), r)
]
# A covariance function is compiled at each evaluation, so it meets one chain of each length.
PAIRS = [
    pytest.param(name, steps, id="-".join((name, *steps)))
    for name in BASES
    for steps in (CHAINS if name != "covariance" else [(), ("unit",), ("center", "unit", "trace")])
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


# --- values -----------------------------------------------------------------------------------


def formulas(x, y):
    dot, distance = x @ y, np.linalg.norm(x - y)
    matern = (1 + np.sqrt(3) * distance / 1.3) * np.exp(-np.sqrt(3) * distance / 1.3)
    return {
        "gaussian": np.exp(-0.3 * distance**2),
        "gaussian default": np.exp(-(distance**2) / D),
        "laplace": np.exp(-0.2 * np.abs(x - y).sum()),
        "polynomial": (dot + 1) ** 2,
        "cubic": (0.5 * dot) ** 3,
        "linear": dot,
        "cosine": dot / np.linalg.norm(x) / np.linalg.norm(y),
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
    st.sampled_from([(), ("trace",), ("center",)]),
)
def test_every_kernel_is_psd_for_every_input(X, name, chain):
    # Two constants, away from zero, give the trace something to divide by; the constants also
    # differ, so that centring leaves a trace.
    X = np.vstack([X, np.full((1, X.shape[1]), 3.0), np.full((1, X.shape[1]), -2.0)])
    as_stack(BASES[name].normalize(*chain)(X))


# --- normalisation ----------------------------------------------------------------------------


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


def test_trace_makes_the_training_trace_n(X):
    stack = (linear() | polynomial(3)).normalize("trace")(X)
    np.testing.assert_allclose(np.trace(stack.values, axis1=1, axis2=2), [N, N])


def test_trace_uses_the_training_factor_on_new_objects(X, X_new):
    stack = linear().normalize("trace")(X_new, X)
    np.testing.assert_allclose(stack.values[0], X_new @ X.T * N / np.sum(X**2))


def test_unit_of_linear_is_cosine(X, X_new):
    np.testing.assert_allclose(
        linear().normalize("unit")(X_new, X).values, cosine()(X_new, X).values
    )


def test_center_is_that_of_scikit_learn(X, X_new):
    base, centred = polynomial(2), polynomial(2).normalize("center")
    fitted = KernelCenterer().fit(base(X).values[0])
    np.testing.assert_allclose(centred(X).values[0], fitted.transform(base(X).values[0]))
    np.testing.assert_allclose(
        centred(X_new, X).values[0], fitted.transform(base(X_new, X).values[0])
    )


def test_center_of_linear_is_linear_on_centred_features(X, X_new):
    mean = X.mean(axis=0)
    np.testing.assert_allclose(
        linear().normalize("center")(X_new, X).values[0], (X_new - mean) @ (X - mean).T
    )


def test_order_of_a_chain_matters(X):
    first = polynomial(2).normalize("center", "unit")(X).values
    second = polynomial(2).normalize("unit", "center")(X).values
    np.testing.assert_allclose(np.diagonal(first[0]), 1.0)
    np.testing.assert_allclose(second.sum(axis=1), 0.0, atol=1e-12)
    assert not np.allclose(first, second)


def test_normalisations_accumulate_and_apply_to_the_whole_stack(X):
    kernels = (linear().normalize("center") | gaussian()).normalize("trace")
    assert [member.steps for member in kernels.members] == [("center", "trace"), ("trace",)]
    np.testing.assert_allclose(
        kernels.normalize("unit")(X).values[0],
        linear().normalize("center", "trace", "unit")(X).values[0],
    )


def test_training_gram_is_computed_for_centring_only(X, X_new):
    sizes = []

    class Counting(pm.gp.cov.Constant):
        def full(self, X, Xs=None):
            sizes.append("gram" if Xs is None else "cross")
            return super().full(X, Xs)

    base = covariance(Counting(2.0))
    base.normalize("unit", "trace")(X_new, X)
    assert sizes == ["cross"]
    base.normalize("center")(X_new, X)
    assert sizes == ["cross", "cross", "gram"]


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_training_stack_is_exactly_symmetric(chain, X):
    # BLAS fills both halves of X X' alike; normalisation must not undo it.
    stack = laplace().normalize(*chain)(X).values
    np.testing.assert_array_equal(stack, stack.swapaxes(1, 2))


def test_unit_needs_positive_self_similarities(X):
    X[2] = 0.0
    with pytest.raises(
        ValueError, match=r"positive self-similarities .* Got 0 for the object in r"
    ):
        linear().normalize("unit")(X)


def test_trace_needs_a_positive_trace():
    with pytest.raises(ValueError, match=r"'X' argument of linear must be of positive trace"):
        linear().normalize("trace")(np.zeros((3, 2)))


def test_unknown_normalisation():
    with pytest.raises(ValueError, match=r"one of 'trace', 'unit', 'center'. Got 'centre' \(the"):
        linear().normalize("centre")


# --- specification ----------------------------------------------------------------------------


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
    names = (linear().named("a") | gaussian() | cosine().named("b"))(X)["kernel"].values
    assert names.tolist() == ["a", "gaussian", "b"]


def test_given_names_must_differ():
    with pytest.raises(ValueError, match=r"different for each kernel of a stack. Got 'a' twice"):
        linear().named("a") | gaussian().named("a")


def test_given_name_wins_over_a_default_name(X):
    names = (gaussian() | linear().named("gaussian"))(X)["kernel"].values.tolist()
    assert names == ["gaussian #2", "gaussian"]


def test_one_name_for_several_kernels():
    with pytest.raises(ValueError, match=r"given to one kernel, before '|'. Got 2 kernels"):
        (linear() | cosine()).named("a")


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
        (lambda: laplace(-1), "'gamma' argument of laplace"),
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
        ([["a", "b"]], None, "must be an array of numbers. Got list"),
        ([[1.0, np.nan]], None, r"must be finite. Got 1 NaN .* position \(0, 1\)"),
        (np.ones((3, 2)), np.ones((1, 3)), "of 2 features, as the training .* Got 3 features"),
        (np.ones((3, 2)), {"a": np.ones((1, 2))}, "one array, as the training .* a dict with"),
        ({"a": np.ones((3, 2))}, np.ones((1, 2)), "with the feature space 'a' .* Got one array"),
        ({}, None, "a dict with at least one feature space"),
        ({"a": np.ones((3, 2)), "b": np.ones((4, 2))}, None, r"rows \{'a': 3, 'b': 4\}"),
        ({"a": [[np.inf]]}, None, r"""'X\["a"\]' argument of Kernels must be finite"""),
    ],
)
def test_bad_objects(train, new, message):
    with pytest.raises(ValueError, match=message):
        linear()(*([train] if new is None else [new, train]))


# --- labels and feature spaces ----------------------------------------------------------------


def test_pandas_index_becomes_the_labels(X, X_new):
    train = pd.DataFrame(X, index=[f"mouse {i}" for i in range(N)])
    test = pd.DataFrame(X_new, index=["p", "q", "r", "s"])
    assert linear()(train)["basis"].values.tolist() == train.index.tolist()
    cross = linear()(test, train)
    assert cross["obs"].values.tolist() == ["p", "q", "r", "s"]
    assert cross["basis"].values.tolist() == train.index.tolist()


def test_unnamed_new_objects_never_share_a_label_with_training_objects(X):
    """Else a cross stack as large as the training stack would pass for a Gram matrix."""
    train = pd.DataFrame(X, index=np.arange(N) + 40)
    for objects in (X, train):
        cross = linear()(X[::-1].copy(), objects)
        assert not set(cross["obs"].values) & set(cross["basis"].values)
        as_stack(cross)


def test_dict_gives_one_kernel_a_space_and_bound_kernels_read_their_own(rng):
    views = {"fou": rng.normal(size=(N, 5)), "kar": rng.normal(size=(N, 2))}
    kernels = gaussian() | linear().on("kar") | polynomial(2).on("fou").named("p") | cosine()
    stack = kernels(views)
    assert stack["kernel"].values.tolist() == [
        "gaussian[fou]",
        "gaussian[kar]",
        "linear[kar]",
        "p",
        "cosine[fou]",
        "cosine[kar]",
    ]
    np.testing.assert_array_equal(stack.values[0], gaussian()(views["fou"]).values[0])
    np.testing.assert_array_equal(stack.values[2], linear()(views["kar"]).values[0])
    np.testing.assert_array_equal(stack.values[3], polynomial(2)(views["fou"]).values[0])


def test_named_kernel_on_every_space():
    stack = linear().named("l")({"a": np.ones((2, 1)), "b": np.ones((2, 3))})
    assert stack["kernel"].values.tolist() == ["l[a]", "l[b]"]


def test_new_objects_need_only_the_spaces_that_are_read(X, X_new):
    cross = linear().on("a")({"a": X_new}, {"a": X, "b": X})
    np.testing.assert_allclose(cross.values[0], X_new @ X.T)
    with pytest.raises(ValueError, match=r"feature space 'b' of the training .* with \['a'\]"):
        linear()({"a": X_new}, {"a": X, "b": X})


def test_unknown_space_gets_the_nearest_suggestion(X):
    with pytest.raises(ValueError, match=r"'fou', 'kar'. Got 'fuo' \(the nearest is 'fou'\)"):
        linear().on("fuo")({"fou": X, "kar": X})


def test_bound_kernel_on_one_array(X):
    with pytest.raises(ValueError, match=r"a dict with the feature space 'fou'.* Got one array"):
        linear().on("fou")(X)


def test_indexes_of_the_spaces_must_agree(X):
    first, second = pd.DataFrame(X), pd.DataFrame(X, index=[1, 0, *range(2, N)])
    with pytest.raises(
        ValueError, match=r"same order in every .* Got 0 in 'a' but 1 in 'b', row 0"
    ):
        linear()({"a": first, "b": second})
    assert linear()({"a": X, "b": second})["obs"].values.tolist() == second.index.tolist()


def test_repeated_labels(X):
    with pytest.raises(ValueError, match=r"of objects with distinct labels. Got repeated labels"):
        linear()(pd.DataFrame(X, index=[0] * N))


# --- precomputed, covariances, basis expansions -----------------------------------------------


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_precomputed_equals_the_kernel_it_was_computed_from(chain, X, X_new):
    base = polynomial(2)
    gram, cross = base(X).values[0], base(X_new, X).values[0]
    self_similarity = np.diagonal(base(X_new).values[0])
    expected, kernel = base.normalize(*chain), precomputed().normalize(*chain)
    np.testing.assert_allclose(kernel(gram).values, expected(X).values)
    np.testing.assert_allclose(
        kernel(cross_gram(cross, self_similarity=self_similarity), gram).values,
        expected(X_new, X).values,
    )


def test_precomputed_beside_features(X, X_new):
    gram, cross = linear()(X).values[0], linear()(X_new, X).values[0]
    kernels = gaussian().on("x") | precomputed().on("sequence")
    stack = kernels({"x": X_new, "sequence": cross}, {"x": X, "sequence": gram})
    assert stack["kernel"].values.tolist() == ["gaussian[x]", "sequence"]
    np.testing.assert_array_equal(stack.values[1], cross)


def test_normalisation_does_not_write_into_a_precomputed_matrix(X):
    gram = linear()(X).values[0]
    before = gram.copy()
    precomputed().normalize("center", "unit", "trace")(gram)
    np.testing.assert_array_equal(gram, before)


@pytest.mark.parametrize("chain", [("unit",), ("center", "unit"), ("trace", "unit")])
def test_precomputed_unit_needs_self_similarities(chain, X, X_new):
    gram, cross = linear()(X).values[0], linear()(X_new, X).values[0]
    with pytest.raises(ValueError, match=r"cross_gram\(similarities, self_similarity=...\)"):
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


def test_self_similarities_have_one_entry_an_object():
    with pytest.raises(ValueError, match=r"'self_similarity' argument of cross_gram must be of s"):
        cross_gram(np.ones((2, 3)), self_similarity=np.ones(3))


def test_covariance_with_a_random_hyperparameter(X):
    with pm.Model():
        kernel = covariance(pm.gp.cov.ExpQuad(D, ls=pm.HalfNormal("ls")))
        with pytest.raises(ValueError, match=r"fixed hyperparameters. Got the random variable ls"):
            kernel(X)


def test_basis_expansion_with_nystroem_features(X, X_new):
    features = Nystroem(gamma=0.3, n_components=5, random_state=0).fit(X)
    kernels = basis_expansion(features.transform, "nystroem")
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
