import numpy as np
import pandas as pd
import pytest

from kernelzoo.models.kernels import as_stack, gaussian, inverse_multiquadric, linear, polynomial

N, NEW, D = 9, 4, 3


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, D))


@pytest.fixture
def X_new(rng):
    return rng.normal(size=(NEW, D))


def test_pandas_index_becomes_the_labels(X, X_new):
    train = pd.DataFrame(X, index=[f"mouse {i}" for i in range(N)])
    test = pd.DataFrame(X_new, index=["p", "q", "r", "s"])
    assert linear()(train)["basis"].values.tolist() == train.index.tolist()
    cross = linear()(test, train)
    assert cross["obs"].values.tolist() == ["p", "q", "r", "s"]
    assert cross["basis"].values.tolist() == train.index.tolist()


def test_unnamed_new_objects_never_share_a_label_with_training_objects(X):
    """Else a cross stack as large as the training stack would pass for a Gram matrix."""
    train = pd.DataFrame(X, index=np.arange(N) + N // 2)
    for objects in (X, train):
        cross = linear()(X[::-1].copy(), objects)
        assert not set(cross["obs"].values) & set(cross["basis"].values)
        as_stack(cross)


def test_dict_gives_one_kernel_a_space_and_bound_kernels_read_their_own(rng):
    views = {"fou": rng.normal(size=(N, 5)), "kar": rng.normal(size=(N, 2))}
    other = inverse_multiquadric()
    kernels = gaussian() | linear().on("kar") | polynomial(2).on("fou").named("p") | other
    stack = kernels(views)
    assert stack["kernel"].values.tolist() == [
        "gaussian[fou]",
        "gaussian[kar]",
        "linear[kar]",
        "p",
        "inverse_multiquadric[fou]",
        "inverse_multiquadric[kar]",
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
    with pytest.raises(ValueError, match=r"block 'b' of the training .* with \['a'\]"):
        linear()({"a": X_new}, {"a": X, "b": X})


def test_unknown_space_gets_the_nearest_suggestion(X):
    with pytest.raises(ValueError, match=r"'fou', 'kar'. Got 'fuo' \(the nearest is 'fou'\)"):
        linear().on("fuo")({"fou": X, "kar": X})


def test_bound_kernel_on_one_array(X):
    with pytest.raises(ValueError, match=r"a dict with the block 'fou'.* Got one array"):
        linear().on("fou")(X)


def test_indexes_of_the_spaces_must_agree(X):
    first, second = pd.DataFrame(X), pd.DataFrame(X, index=[1, 0, *range(2, N)])
    with pytest.raises(
        ValueError, match=r"""'X\["b"\]' .* Got the numbers 0 to 8, on one side in another order"""
    ):
        linear()({"a": first, "b": second})
    with pytest.raises(
        ValueError, match=r"""'X\["b"\]' .* the unknown 11, 10, .* none for 0, 1, 2"""
    ):
        linear()({"a": first, "b": second.rename(index=lambda row: row + 10)})
    assert linear()({"a": X, "b": second})["obs"].values.tolist() == second.index.tolist()


def test_repeated_labels(X):
    frame = pd.DataFrame(X[[0] * N], index=[0] * N)
    assert linear()(frame)["obs"].values.tolist() == [0] * N
    with pytest.raises(ValueError, match=r"by distinct ids. Got 0 more than once"):
        linear()({"a": pd.DataFrame(X, index=range(1, N + 1)), "b": frame})
