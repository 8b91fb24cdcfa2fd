"""Streamed moments: equal to those of the draws, whatever the sampler."""

from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.variable import TensorConstant

import kernelzoo as kz
from kernelzoo.inference.engine import evaluation, independent
from kernelzoo.inference.engine.chains import MomentsOfChains
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.result import RunningMoments, pooled
from kernelzoo.models.declaration import Declaration

COMMON = {"random_seed": 1, "progressbar": False}


class Walk(Declaration):
    """A vector too large to keep, its square, and a scalar."""

    large = frozenset({"x", "square", "residual"})
    streamed = ("x", "square")

    def __init__(self):
        super().__init__(coords={"place": range(3)})
        with self:
            mu = pm.Normal("mu")
            x = pm.Normal("x", mu, 1, dims="place")
            pm.Deterministic("square", x**2, dims="place")
            y = pm.Normal("y", x, 1, observed=np.array([0.0, 1.0, 2.0]), dims="place")
            pm.Deterministic("residual", y - x, dims="place")
        self.seal()


def test_blocks_do_not_change_running_moments():
    draws = np.random.default_rng(0).normal(3.0, 0.1, size=(101, 2, 3))
    running = RunningMoments()
    for block in np.split(draws, [1, 2, 50, 97]):
        running.update(block)
    np.testing.assert_allclose(running.mean, draws.mean(0), rtol=1e-12)
    np.testing.assert_allclose(running.sd, draws.std(0, ddof=1), rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cores", [1, 2])
def test_moments_of_chains_are_those_of_their_draws(cores):
    calls = []
    options = {"draws": 40, "tune": 30, "chains": 2, "cores": cores, **COMMON}
    options |= {"compile_kwargs": {"mode": python_mode()}}
    lean = kz.fit(Walk(), "nuts", **options, callback=lambda trace, draw: calls.append(draw.chain))
    full = kz.fit(Walk(), "nuts", **options, var_names=["mu", "x", "square"])
    assert set(lean["posterior"].data_vars) == {"mu"}
    assert len(calls) == 2 * (40 + 30)
    for name in ("x", "square"):
        draws = full["posterior"][name]
        for tree in (lean, full):
            moments = tree["moments"]
            assert moments[f"{name}_mean"].dims == ("chain", "place")
            np.testing.assert_allclose(moments[f"{name}_mean"], draws.mean("draw"), rtol=1e-10)
            np.testing.assert_allclose(moments[f"{name}_sd"], draws.std("draw", ddof=1), rtol=1e-10)


@pytest.mark.filterwarnings("ignore")
def test_samplers_without_callbacks_drop_the_draws_afterwards():
    pytest.importorskip("nutpie")
    options = {"draws": 40, "tune": 30, "chains": 2, **COMMON}
    tree = kz.fit(Walk(), kz.NUTS(backend="nutpie"), **options)
    assert set(tree["posterior"].data_vars) == {"mu"}
    assert tree["moments"]["square_mean"].dims == ("chain", "place")
    assert (tree["moments"]["square_mean"] >= tree["moments"]["x_mean"] ** 2).all()


def test_independent_draws_come_in_blocks(monkeypatch):
    monkeypatch.setattr(independent, "BLOCK_BYTES", 7 * 8 * 4)
    sizes = []

    def sample(draws, rng):
        sizes.append(draws)
        return {"mu": rng.normal(size=draws), "x": rng.normal(size=(draws, 3))}

    model = Walk()
    run = Run(draws=50, random_seed=1)
    tree = independent.independent_draws(model, run, sample, exact=True)
    assert sum(sizes) == 50
    assert max(sizes) == 7
    assert tree["posterior"].sizes == {"chain": 1, "draw": 50}
    keep = Run(draws=50, random_seed=1, var_names=("x", "square", "residual"))
    kept = independent.independent_draws(model, keep, sample, exact=True)["posterior"]
    np.testing.assert_allclose(kept["square"], kept["x"] ** 2)
    assert len(np.unique(kept["x"])) == 150
    # An observed variable has its data as value, no draw of its own.
    np.testing.assert_allclose(kept["residual"], [0.0, 1.0, 2.0] - kept["x"])
    np.testing.assert_allclose(
        tree["moments"]["square_mean"], kept["square"].mean(("chain", "draw")), rtol=1e-10
    )


def test_what_depends_on_data_alone_is_computed_once():
    """The factor of W11 is no part of what runs for every draw, and its data no constant there."""
    theta = np.exp(-((np.arange(12)[:, None] - np.arange(12)) ** 2) / 4) + 0.1 * np.eye(12)
    model = kz.DiagonalWishartCompletion(theta, np.eye(8))
    outputs = model.replace_rvs_by_values([model["K22"], model["K21"]])
    known = evaluation._of_data_alone(model, outputs)
    stand_ins = {variable: variable.type() for variable in known}
    rest = toposort(graph_replace(outputs, stand_ins, strict=False))
    names = {type(getattr(node.op, "core_op", node.op)).__name__ for node in rest}
    assert "TriangularSolve" in names
    assert "CholeskyFactor" not in names
    inputs = [variable for node in rest for variable in node.inputs]
    assert not set(inputs) & set(model.data_vars)
    assert all(v.data.size < 20 for v in inputs if isinstance(v, TensorConstant))


def test_draws_in_memory_have_the_moments_of_a_sample():
    x = np.random.default_rng(0).normal(size=(5, 3))
    draws = {"mu": np.zeros(5), "x": x, "square": x**2, "residual": -x}
    tree = independent.lean_tree(Walk(), Run(draws=5), draws, {"lp": np.zeros(5)})
    for name in ("x", "square"):
        np.testing.assert_allclose(tree["moments"][f"{name}_mean"], draws[name].mean(0))
        np.testing.assert_allclose(tree["moments"][f"{name}_sd"], draws[name].std(0, ddof=1))


def test_moments_on_request():
    model = kz.WishartCompletion.example()
    options = {"draws": 60, "var_names": ["K21"], **COMMON}
    every = kz.fit(model, "exact", **options)["moments"]
    asked = kz.fit(model, "exact", **options, moments=["K21", "K22_1"])
    # What is known in closed form stays so, the rest comes from the draws.
    assert set(asked["moments"].data_vars) == {"K21_mean", "K21_sd", "K22_1_mean", "K22_1_sd"}
    np.testing.assert_array_equal(asked["moments"]["K21_sd"], every["K21_sd"])
    assert "moments" not in kz.fit(model, "exact", **options, moments=[]).children
    chain = kz.fit(model, "gibbs", **options, tune=5, chains=1, cores=1, moments=["B"])
    assert set(chain["moments"].data_vars) == {"B_mean", "B_sd"}
    with pytest.raises(ValueError, match="'moments' argument of fit must be one of"):
        kz.fit(model, "exact", moments=["K2"])


def test_pooled_moments_are_those_of_all_draws():
    chains = np.split(np.random.default_rng(0).normal(size=(60, 2)), [40, 57])
    chains[1] += 3.0
    of_chains = MomentsOfChains(["x"])
    for number, draws in enumerate(chains):
        of_chains.update(number, {"x": draws})
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    stored = of_chains.dataset(model)
    np.testing.assert_array_equal(stored["draws"], [40, 17, 3])
    every = np.concatenate(chains)
    both = pooled(stored)
    np.testing.assert_allclose(both["x_mean"], every.mean(0), rtol=1e-12)
    within = sum(len(draws) * draws.var(0, ddof=1) for draws in chains)
    between = sum(len(draws) * (draws.mean(0) - every.mean(0)) ** 2 for draws in chains)
    np.testing.assert_allclose(both["x_sd"], np.sqrt((within + between) / 60), rtol=1e-12)
    # Moments that say nothing of the numbers of draws, and those that know no chains.
    equal = pooled(stored.drop_vars("draws"))
    np.testing.assert_allclose(equal["x_mean"], stored["x_mean"].mean("chain"))
    xr.testing.assert_identical(pooled(both), both)


def finite(tree, name):
    """Which elements of a variable have a mean, and a standard deviation."""
    entries = tree["moments"].to_dataset()
    return [np.isfinite(entries[f"{name}_{kind}"].values) for kind in ("mean", "sd")]


@pytest.mark.parametrize(
    ("eta", "scale", "root"),
    [(3.9, [0, 0], [1, 0]), (4.1, [1, 0], [1, 1]), (6.1, [1, 1], [1, 1])],
)
def test_no_sample_moments_where_the_wishart_posterior_has_none(eta, scale, root):
    """Three test objects: S has a mean for eta > 4 and a variance for eta > 6."""
    model = kz.WishartCompletion(np.eye(4) + 0.3, [[2.0]], eta=eta, r=3.05)
    names = ["Sigma11", "Sigma22_1", "B", "K21", "K22_1", "K22", "trace_K22"]
    options = {"draws": 50, "var_names": ["trace_K22"], **COMMON}
    tree = kz.fit(model, "exact", **options, moments=[*names, "log_det_Sigma22_1"])
    for name in ("Sigma22_1", "K22_1", "K22", "trace_K22"):
        for exists, expected in zip(finite(tree, name), scale, strict=True):
            assert (exists == expected).all()
    for name in ("B", "K21"):
        for exists, expected in zip(finite(tree, name), root, strict=True):
            assert (exists == expected).all()
    assert np.all(finite(tree, "log_det_Sigma22_1"))
    # Sigma11, of one row, has r + eta - 3 degrees of freedom and needs more than 2, more than 4.
    assert [bool(exists.all()) for exists in finite(tree, "Sigma11")] == [True, eta > 4]
    # By default what is missing altogether is left out, as before.
    assert ("K22_mean" in kz.fit(model, "exact", **options)["moments"]) == bool(scale[0])


@pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])
@pytest.mark.parametrize(
    ("eta", "once", "twice"),
    [(0.4, [0, 0], [0, 0]), (0.9, [0, 0], [1, 0]), (1.1, [1, 0], [1, 1]), (2.1, [1, 1], [1, 1])],
)
def test_no_sample_moments_where_the_simplified_posterior_has_none(eta, once, twice, diagonal):
    model = kz.DiagonalWishartCompletion.example(eta=eta, diagonal_W22_1=diagonal)
    names = ["lambda", "delta", "W21", "W22_1", "K21", "K22"]
    tree = kz.fit(model, "exact", draws=50, var_names=["lambda"], moments=names, **COMMON)
    exists = {name: finite(tree, name) for name in names}
    own = np.eye(2, dtype=bool)
    for moment in (0, 1):
        assert exists["lambda"][moment]
        assert exists["delta"][moment][:3].all()
        assert (exists["delta"][moment][3:] == once[moment]).all()
        assert (exists["W21"][moment] == twice[moment]).all()
        assert (exists["K21"][moment] == twice[moment]).all()
        assert (exists["K22"][moment] == once[moment]).all()
        W22_1 = exists["W22_1"][moment]
        assert ((W22_1 if diagonal else W22_1[own]) == once[moment]).all()
        assert diagonal or (W22_1[~own] == twice[moment]).all()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("asked", [True, False])
def test_independent_draws_show_their_progress(monkeypatch, capsys, asked):
    monkeypatch.setattr(independent, "BLOCK_BYTES", 7 * 8 * 4)
    bar = independent.Run.track
    steps = []

    @contextmanager
    def watched(run, total, description):
        with bar(run, total, description) as shown:
            steps.append(total)
            advance = shown.advance
            shown.advance = lambda n=1: (steps.append(-n), advance(n))
            yield shown

    monkeypatch.setattr(independent.Run, "track", watched)

    def sample(draws, rng):
        return {"mu": rng.normal(size=draws), "x": rng.normal(size=(draws, 3))}

    independent.independent_draws(Walk(), Run(draws=30, progressbar=asked), sample, exact=True)
    assert steps == [30, -7, -7, -7, -7, -2]
    assert ("30/30" in capsys.readouterr().out) == asked


def test_interrupted_independent_draws_are_kept(monkeypatch):
    monkeypatch.setattr(independent, "BLOCK_BYTES", 1)
    calls = iter(range(10**6))

    def sample(draws, rng):
        if next(calls) == 7:
            raise KeyboardInterrupt
        return {"mu": rng.normal(size=draws), "x": rng.normal(size=(draws, 3))}

    tree = independent.independent_draws(Walk(), Run(draws=50, random_seed=1), sample, exact=True)
    assert tree["posterior"].sizes["draw"] == 7
    assert tree.attrs["converged"] == "no"
