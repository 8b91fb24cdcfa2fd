"""EM with a model matrix of low rank: the paper's steps at full rank, and what it completes."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference.mutual_completion import em
from kernelzoo.inference.mutual_completion.low_rank import FeatureBlock, Problem, m_step, minimize
from kernelzoo.inference.mutual_completion.objective import MutualObjective, cholesky_factor
from mutual_fixture import problem_of

QUIET = {"random_seed": 1, "progressbar": False}


def random_features(n, n_kernels, seed, width=4):
    """Features (n, width) of related objects, and which objects each kernel has (n, kernel)."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 3))
    features = [
        shared @ rng.normal(size=(3, width)) + 0.5 * rng.normal(size=(n, width))
        for _ in range(n_kernels)
    ]
    visible = rng.random((n, n_kernels)) > 0.35
    visible[np.arange(n), rng.integers(n_kernels, size=n)] = True
    visible[:2] = True
    return features, visible


def problems(n, n_kernels, seed, lam=0.1):
    """The same problem by features and by whole matrices, of mean self-similarity one."""
    features, visible = random_features(n, n_kernels, seed)
    features = [
        F / np.sqrt(np.mean(np.sum(F[v] ** 2, axis=1)))
        for F, v in zip(features, visible.T, strict=True)
    ]
    blocks = [FeatureBlock(F[v], v) for F, v in zip(features, visible.T, strict=True)]
    whole = problem_of(np.array([F @ F.T for F in features]), visible, lam=lam)
    return Problem(blocks, lam), MutualObjective.of(whole)


def matrix(M):
    return M.components @ M.components.T + M.noise * np.eye(len(M.vectors))


@pytest.mark.parametrize("lam", [0.1, 1.5])
def test_steps_of_full_rank_are_the_paper_s(lam):
    problem, dense = problems(14, 3, 0, lam)
    n = problem.n
    M, directions = problem.start(n - 1, np.random.default_rng(1))
    np.testing.assert_allclose(matrix(M), dense.start(means=True), atol=1e-12)
    for _ in range(3):
        target, expected, objective = problem.expect(M)
        printed = dense.evaluate(cholesky_factor(matrix(M)), matrix(M))
        np.testing.assert_allclose(target.times(np.eye(n)), printed.target, atol=1e-12)
        assert objective == pytest.approx(2 * printed.objective, abs=1e-9)
        M, directions = m_step(target, directions, n - 1)
        np.testing.assert_allclose(matrix(M), printed.target, atol=1e-12)
    # Missing rows have the covariance of the E-step but for delta on the diagonal.
    for each, block in zip(expected, problem.blocks, strict=True):
        assert not each.spread[block.visible].any()


def test_minimum_of_full_rank_is_that_of_all_matrices():
    problem, dense = problems(12, 3, 2)
    found = minimize(problem, 11, np.random.default_rng(1), max_iterations=5000, tolerance=1e-9)
    whole = em.minimize(dense, dense.start(means=True), 5000, 1e-6, 5)
    assert found.converged
    assert found.objective[-1] == pytest.approx(2 * whole.last.objective, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_features_at_the_end_are_near_the_limit(seed):
    """Directions that were not seen to move when the changes were measured leave a little more."""
    problem, _ = problems(40, 3, seed)
    ends = [
        minimize(problem, 5, np.random.default_rng(1), max_iterations=20_000, tolerance=tolerance)
        for tolerance in (0.01, 1e-5)
    ]
    assert ends[0].converged
    for found, limit in zip(ends[0].expected, ends[1].expected, strict=True):
        error = np.abs(found.features - limit.features).max() / np.abs(limit.features).max()
        assert error < 0.06


@pytest.mark.parametrize("n_components", [1, 3, 7, 20])
@pytest.mark.parametrize("seed", range(3))
def test_objective_never_rises_and_more_components_reach_lower(n_components, seed):
    problem, _ = problems(30, 4, seed)
    ends = {}
    for R in (n_components, n_components + 6):
        rng = np.random.default_rng(seed)
        found = minimize(problem, R, rng, max_iterations=300, tolerance=1e-6)
        assert np.diff(found.objective).max() < 1e-9
        ends[R] = found.objective[-1]
    assert ends[n_components + 6] < ends[n_components] + 1e-6


def test_at_the_end_small_changes_of_the_model_matrix_do_not_help():
    """The gradient vanishes among matrices of R components and noise."""
    problem, dense = problems(14, 3, 5)
    found = minimize(problem, 4, np.random.default_rng(1), max_iterations=20_000, tolerance=1e-12)
    U, noise = found.model.components, found.model.noise
    rng = np.random.default_rng(0)

    def objective(U, noise):
        M = U @ U.T + noise * np.eye(len(U))
        return 2 * dense.evaluate(cholesky_factor(M), M).objective

    for _ in range(5):
        direction, step = rng.normal(size=U.shape), 1e-4
        slope = objective(U + step * direction, noise) - objective(U - step * direction, noise)
        assert abs(slope / (2 * step)) < 1e-3
    slope = objective(U, noise * (1 + 1e-4)) - objective(U, noise * (1 - 1e-4))
    assert abs(slope / 2e-4) < 1e-3


def tables(n=20, seed=3):
    """Tables of the objects that each kernel has, by id, with rows in other orders."""
    features, visible = random_features(n, 3, seed)
    rng, ids = np.random.default_rng(seed), np.array([f"s{i}" for i in range(n)])
    frames = {}
    for name, F, v in zip("abc", features, visible.T, strict=True):
        rows = rng.permutation(np.flatnonzero(v))
        frames[name] = pd.DataFrame(F[rows], ids[rows])
    arrays = {
        name: np.where(v[:, None], F, np.nan)
        for name, F, v in zip("abc", features, visible.T, strict=True)
    }
    return frames, arrays, ids


def test_tables_go_by_their_ids():
    frames, arrays, ids = tables()
    options = {"n_components": 5, "tolerance": 1e-9, "max_iterations": 3000} | QUIET
    by_id = kz.completion.complete_features(frames, **options)
    by_position = kz.completion.complete_features(arrays, **options)
    assert set(by_id["obs"].values) == set(ids)
    one = by_id.sel(obs=ids)
    np.testing.assert_array_equal(one["visible"], by_position["visible"])
    for name in "abc":
        F, G = (found["features"].sel(kernel=name).values for found in (one, by_position))
        np.testing.assert_allclose(F @ F.T, G @ G.T, atol=1e-4)
    # Visible objects keep their features, in the units given.
    seen = one["visible"].sel(kernel="a").values
    given = frames["a"].loc[ids[seen]].to_numpy()
    np.testing.assert_allclose(one["features"].sel(kernel="a").values[seen, :4], given)
    assert not one["features"].sel(kernel="a").values[seen, 4:].any()


@pytest.mark.parametrize("unit", [1e-170, 1e50])
def test_features_may_be_in_any_unit(unit):
    """Squares of features of 1e-170 are zero."""
    _, arrays, _ = tables()
    options = {"n_components": 3, "max_iterations": 20, "tolerance": 1.0} | QUIET
    expected = kz.completion.complete_features(arrays, **options)["features"]
    small = {name: unit * array for name, array in arrays.items()}
    found = kz.completion.complete_features(small, **options)["features"]
    np.testing.assert_allclose(found.values / unit, expected.values, atol=1e-9)


def test_completed_kernels_are_those_of_the_whole_matrices():
    _, arrays, _ = tables()
    visible = np.array([~np.isnan(array[:, 0]) for array in arrays.values()]).T
    kernels = {name: np.nan_to_num(F) @ np.nan_to_num(F).T for name, F in arrays.items()}
    dense = kz.completion.complete_kernels(
        kernels,
        visible,
        engine="em",
        normalize=(),
        progressbar=False,
        model={"collapsed": True},
    ).mean
    options = {"n_components": 19, "tolerance": 1e-10, "max_iterations": 5000} | QUIET
    ours = kz.completion.complete_features(arrays, **options)
    for name, v in zip("abc", visible.T, strict=True):
        F = ours["features"].sel(kernel=name).values
        scale = np.mean(np.sum(arrays[name][v] ** 2, axis=1))
        completed = F @ F.T + ours.attrs["noise"] * scale * np.diag(~v)
        np.testing.assert_allclose(completed, dense.sel(kernel=name).values, atol=5e-3 * scale)


def test_completed_features_are_a_stack_that_models_take():
    frames, _, ids = tables()
    completed = kz.completion.complete_features(frames, n_components=4, **QUIET)
    again = kz.completion.complete_features(frames, n_components=4, **QUIET)
    xr.testing.assert_identical(completed, again)
    stack = completed["features"]
    labels = pd.Series(np.arange(20) % 2, ids)
    model = kz.MultinomialProbit(stack.isel(obs=slice(15)), labels[stack["obs"].values[:15]])
    result = kz.fit(model, "vb", draws=20, **QUIET)
    predicted = kz.predict(model, result, stack.isel(obs=slice(15, None)), progressbar=False)
    assert predicted["probability"].shape[0] == 5
    other = kz.completion.complete_features(frames, n_components=4, lam=0.5, **QUIET)["features"]
    with pytest.raises(ValueError, match="computed against the training objects"):
        kz.predict(model, result, other.isel(obs=slice(15, None)), progressbar=False)


def test_iterations_that_end_early_say_so():
    frames, _, _ = tables()
    with pytest.warns(UserWarning, match="ended after 2 iterations"):
        completed = kz.completion.complete_features(frames, max_iterations=2, **QUIET)
    assert completed.attrs["converged"] == "no"


def _gap(frames):
    frames["a"].iloc[1, 2] = np.nan


def _nowhere(frames):
    frames["a"].loc["t"] = np.nan


def _twice(frames):
    frames["b"] = pd.concat([frames["b"], frames["b"].iloc[:1]])


def _levels(frames):
    frames["c"].index = pd.MultiIndex.from_product([["x"], frames["c"].index])


def _array(frames):
    frames["c"] = frames["c"].to_numpy()


def _one(frames):
    frames["c"] = frames["c"].iloc[:1]


def _zeros(frames):
    frames["c"] *= 0


def _infinity(frames):
    frames["c"].iloc[0, 0] = np.inf


def _huge(frames):
    frames["c"].iloc[0, 0] = 1e200


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_gap, r"features\[\"a\"\].*wholly NaN in each row.*'s"),
        (_nowhere, "each object has the features of at least one kernel. Got 't' in none"),
        (_twice, r"features\[\"b\"\].*distinct ids.*more than once"),
        (_levels, r"features\[\"c\"\].*one level"),
        (_array, "DataFrames, or arrays, all of them. Got 'c'"),
        (_one, r"features\[\"c\"\].*at least two objects. Got 1"),
        (_zeros, r"features\[\"c\"\].*other than zero"),
        (_infinity, r"features\[\"c\"\].*at most 1e\+60 in size elsewhere. Got one of inf"),
        (_huge, r"features\[\"c\"\].*at most 1e\+60 in size elsewhere. Got one of 1e\+200"),
    ],
)
def test_bad_tables_are_refused(spoil, message):
    frames, _, _ = tables()
    spoil(frames)
    with pytest.raises(ValueError, match=message):
        kz.completion.complete_features(frames, **QUIET)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([np.ones((3, 2))], {}, "a dict with a table for each kernel. Got list"),
        ({}, {}, "Got none"),
        ({"a": np.ones((3, 2)), "b": np.ones((4, 2))}, {}, "of the same objects"),
        ({"a": np.ones(3)}, {}, "of shape"),
        ({"a": np.ma.masked_equal([[1.0, 2], [3, 4]], 2)}, {}, "mask"),
        ({"a": np.ones((3, 2))}, {"n_components": 0}, "'n_components'"),
        ({"a": np.ones((3, 2))}, {"lam": 0}, "'lam'"),
        ({"a": np.ones((3, 2))}, {"tolerance": -1}, "'tolerance'"),
    ],
)
def test_bad_arguments_are_refused(given, options, message):
    with pytest.raises(ValueError, match=message):
        kz.completion.complete_features(given, **options, **QUIET)
