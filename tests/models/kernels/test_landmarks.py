"""Columns at landmarks: those of the kernel with all of them; on arrays and Dask arrays."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.models.kernels import (
    Theta,
    as_stack,
    gaussian,
    linear,
    polynomial,
    precomputed,
)

RNG = np.random.default_rng(3)
X, X_NEW = RNG.normal(size=(30, 4)), RNG.normal(size=(7, 4))


def landmarks(number, seed):
    """Rows drawn among the objects in the order of the first feature, which differs for all."""
    drawn = np.random.default_rng(seed).choice(30, number, replace=False)
    return np.argsort(X[:, 0])[drawn]


ALL_STEPS = [(), ("trace",), ("unit",), ("unit", "trace")]


@pytest.mark.parametrize("steps", ALL_STEPS)
@pytest.mark.parametrize("kernel", [gaussian(0.3), linear(), polynomial(2)])
def test_columns_at_all_landmarks_are_those_of_the_kernel(kernel, steps):
    normalized = kernel.normalize(*steps) if steps else kernel
    columns = normalized.landmarks(30, seed=5)
    order = landmarks(30, 5)
    for found, expected in (
        (columns(X), normalized(X)),
        (columns(X_NEW, X), normalized(X_NEW, X)),
    ):
        np.testing.assert_allclose(found.values[0], expected.values[0][:, order], atol=1e-7)


@pytest.mark.parametrize("steps", ALL_STEPS)
@pytest.mark.parametrize("kernel", [gaussian(0.3), polynomial(2)])
def test_columns_at_some_landmarks_are_exact(steps, kernel):
    normalized = kernel.normalize(*steps) if steps else kernel
    order = landmarks(8, 5)
    columns = normalized.landmarks(8, seed=5)
    found, expected = columns(X_NEW, X).values[0], normalized(X_NEW, X).values[0][:, order]
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert columns(X)["kernel"].item().startswith("landmarks ")


def test_stack_is_an_expansion_with_the_same_landmarks_for_new_objects():
    kernels = (gaussian(0.3) | linear()).landmarks(6, seed=2)
    train, cross = kernels(X), kernels(X_NEW, X)
    assert train.shape == (2, 30, 6)
    assert train["kernel"].values.tolist() == ["landmarks gaussian(0.3)", "landmarks linear"]
    assert cross["basis"].equals(train["basis"])
    # An object's features do not depend on the other objects.
    np.testing.assert_allclose(kernels(X[:3], X).values, train.values[:, :3], atol=1e-12)
    as_stack(cross, like=train)
    other = (gaussian(0.3) | linear()).landmarks(6, seed=3)(X)
    assert not np.allclose(other.values, train.values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: gaussian().landmarks(0),
            "'n_components' argument of landmarks must be an integer",
        ),
        (lambda: gaussian().landmarks(31)(X), "at most the number of training objects, 30. Got 31"),
        (lambda: precomputed().landmarks(3), "functions of features"),
        (lambda: gaussian(Theta(1, 1)).landmarks(3), "without parameters to learn"),
        (lambda: gaussian().landmarks(3).landmarks(2), "Got 'landmarks gaussian'"),
        (lambda: gaussian().landmarks(3).normalize("unit"), "applied to kernels"),
        (lambda: gaussian().landmarks(3)(X_NEW[:, :2], X), "of 4 features"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


SPECIFICATIONS = {
    "uniform": gaussian("median").normalize("trace").landmarks(8),
    "unit": polynomial(2).normalize("unit").landmarks(8),
    "together": gaussian(0.1).landmarks(8) | linear().landmarks(8),
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_features_of_dask_arrays_are_those_of_arrays(name):
    da = pytest.importorskip("dask.array")
    kernels = SPECIFICATIONS[name]
    many = np.random.default_rng(1).normal(size=(900, 3)).astype(np.float32)
    chunked, expected = da.from_array(many, chunks=(100, 3)), kernels(many.astype(float))
    xr.testing.assert_allclose(kernels(chunked).compute(), expected, atol=1e-12)
    found = kernels(chunked[:9], chunked).compute()
    in_memory = kernels(many[:9], many)
    xr.testing.assert_allclose(found, in_memory, atol=1e-12)


def with_nan():
    bad = X.copy()
    bad[21, 2] = np.nan
    return bad


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (gaussian().landmarks(4) | gaussian().landmarks(6))(X), "as many basis functions"),
        (lambda: gaussian().landmarks(4)(with_nan()), r"position \(21, 2\)"),
        (lambda: gaussian().landmarks(4)(X_NEW[:, :2], X), "of 4 features.* Got 2 features"),
        (lambda: linear().normalize("unit").landmarks(4)(0 * X), "positive self-similarit"),
        (lambda: linear().normalize("trace").landmarks(4)(0 * X), "positive trace"),
    ],
)  # fmt: skip
def test_what_is_refused_of_features(make, message):
    with pytest.raises(ValueError, match=message):
        make()


MAPS = {
    "uniform": kz.gaussian(0.3).landmarks(6, seed=1),
    "normalised": kz.gaussian(0.3).normalize("unit", "trace").landmarks(6, seed=1),
    "width": kz.gaussian("median").named("a").landmarks(6, seed=1),
    "trace": kz.linear().normalize("trace").landmarks(4),
    "beside": kz.gaussian(0.3).landmarks(3, seed=1) | kz.kernels.basis_expansion(np.abs),
}


@pytest.mark.parametrize("name", MAPS)
def test_features_of_another_training_set_are_refused(name):
    rng = np.random.default_rng(3)
    kernels = MAPS[name]
    train = pd.DataFrame(rng.normal(size=(40, 3)), [f"a{i}" for i in range(40)])
    new = pd.DataFrame(rng.normal(size=(4, 3)), [f"n{i}" for i in range(4)])
    like = kernels(train)
    given = kernels(new, train)
    xr.testing.assert_identical(as_stack(given, like=like).drop_attrs(), given.drop_attrs())
    # Of another machine, with other last digits.
    as_stack(kernels(new, train * (1 + 1e-15)), like=like)
    others = 2 * train if name in ("width", "trace") else train + rng.normal(size=train.shape)
    with pytest.raises(ValueError, match="training objects, in their order"):
        as_stack(kernels(new, others), like=like)
    if name != "beside":
        with pytest.raises(ValueError, match="training objects, in their order"):
            as_stack(kernels(new, others).chunk(obs=2).compute(), like=like)
    turned = as_stack(kernels(new, train[::-1]), like=like)
    xr.testing.assert_allclose(turned.drop_attrs(), given.drop_attrs(), rtol=1e-12)


def in_orders(X):
    """Three orders of the rows of an array."""
    rows = np.arange(len(X))
    return rows, rows[::-1], np.random.default_rng(8).permutation(rows)


#: Objects of which some have the same first features, or are copies.
GRID = np.random.default_rng(2).integers(-1, 2, size=(40, 4)).astype(float)
SPACES = {"b": GRID[:, :2], "a": GRID[:, 2:]}


@pytest.mark.parametrize("objects", [X, GRID, np.r_[X, X]])
@pytest.mark.parametrize("ids", [False, True])
def test_landmarks_are_the_same_objects_in_any_order_of_the_rows(objects, ids):
    """Bug: they were drawn by position."""
    kernels = (gaussian("median") | linear()).landmarks(8)
    names = np.array([f"a{i}" for i in range(len(objects))])
    found = []
    for order in in_orders(objects):
        rows = objects[order]
        rows = pd.DataFrame(rows, index=names[order]) if ids else rows
        found.append(kernels(X_NEW, rows).drop_attrs())
    for each in found[1:]:
        # Of objects without ids, or their copies, it says where the landmarks are.
        if ids and objects is X:
            assert np.array_equal(each["landmark"], found[0]["landmark"])
        xr.testing.assert_allclose(
            each.drop_vars("landmark"), found[0].drop_vars("landmark"), rtol=1e-12
        )


def test_landmarks_are_the_same_objects_after_standardisation():
    """Sums in another order have other last digits: 0 becomes 1e-17."""
    genotypes = np.random.default_rng(1).integers(0, 3, size=(60, 5)).astype(float)
    kernels = linear().landmarks(8)
    found = []
    for order in in_orders(genotypes):
        rows = genotypes[order]
        found.append(kernels((rows - rows.mean(axis=0)) / rows.std(axis=0)).values)
        found[-1] = found[-1][:, np.argsort(order)]
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=1e-12)


def test_kernels_of_all_spaces_share_their_landmarks_in_any_order():
    """One column is of one object, which no space alone tells from all others."""
    kernels = gaussian(0.3).landmarks(9)
    new = {name: values[:5] for name, values in SPACES.items()}
    distinct = np.unique(GRID, axis=0)
    found = []
    for order in in_orders(GRID):
        train = {name: values[order] for name, values in SPACES.items()}
        stack = kernels(new, train if len(found) else dict(reversed(train.items())))
        found.append(stack.drop_attrs().drop_vars("landmark").sortby("kernel"))
        # The kernel on both spaces side by side is the product of those on each.
        both = np.exp(-0.3 * ((GRID[:5, None] - distinct) ** 2).sum(-1))
        for column in stack.prod("kernel").to_numpy().T:
            assert np.abs(both - column[:, None]).max(axis=0).min() < 1e-12
    for each in found[1:]:
        xr.testing.assert_allclose(each, found[0], rtol=1e-12)


def test_a_trace_of_other_training_objects_is_told():
    kernels = kz.polynomial(2).normalize("trace").landmarks(4)
    others = np.setdiff1d(np.arange(30), landmarks(4, 0))
    changed = X.copy()
    # The first feature decides which objects are drawn.
    changed[others, 1:] *= 2
    with pytest.raises(ValueError, match="training objects, in their order"):
        as_stack(kernels(X_NEW, changed), like=kernels(X))


def test_features_go_by_the_names_of_their_kernels():
    one, other = kz.gaussian(0.3).landmarks(4), kz.linear().landmarks(4)
    X = np.random.default_rng(3).normal(size=(9, 4))
    swapped = as_stack((other | one)(X[:3], X), like=(one | other)(X))
    xr.testing.assert_identical(swapped.drop_attrs(), (one | other)(X[:3], X).drop_attrs())
