"""The time that a fit may take: who ends, what is kept, who cannot."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.composite_kernel.vb import fit_composite_kernel
from kernelzoo.inference.engine import progress as clock_module
from kernelzoo.inference.engine.engine import Engine, Run
from kernelzoo.inference.engine.progress import Clock, OutOfTime, end_of_time
from kernelzoo.inference.multinomial_probit.vb import fit_multinomial_probit

# Over before anything is done: every engine ends where it first looks at the clock.
NO_TIME = 1e-6
QUIET = {"random_seed": 1, "progressbar": False}


@pytest.fixture
def now(monkeypatch):
    """The time, which tests turn on by hand."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: clock.now)
    return clock


def ended(model, engine, **options):
    with pytest.warns(UserWarning, match=f"{engine.name} was ended by max_seconds=1e-06"):
        result = kz.fit(model, engine, max_seconds=NO_TIME, **options | QUIET)
    assert result.attrs["converged"] == "no"
    assert result.attrs["ended_by"] == "max_seconds"
    assert "max_seconds=1e-06" in result.attrs["note"]
    return result


@pytest.mark.parametrize(
    ("fit", "example"),
    [
        (fit_multinomial_probit, kz.MultinomialProbit),
        (fit_composite_kernel, kz.CompositeKernelRegression),
        (fit_composite_kernel, kz.CompositeKernelClassification),
    ],
)
def test_vb_keeps_one_iteration(fit, example):
    run = Run(progressbar=False, clock=Clock(NO_TIME))
    answer = fit(example.example(), run)
    assert run.clock.ended
    assert not answer.converged
    assert [len(history) for history in answer.elbo] == [1]
    assert np.isfinite(answer.sample(3, run.rng())[1]).all()


def test_modes_and_points_are_kept():
    result = ended(normal(), kz.MAP())
    assert result["trajectory"]["objective"].sizes["iteration"] == 1
    with pytest.warns(UserWarning, match="After 1 iterations"):
        result = ended(kz.MutualKernelCompletion.example(), kz.EM(tolerance=1e-12))
    assert result["trajectory"]["objective"].sizes["iteration"] == 1
    assert "After 1 iterations" in result.attrs["note"]


def test_exact_keeps_the_blocks_that_are_drawn(monkeypatch):
    monkeypatch.setattr("kernelzoo.inference.engine.independent.BLOCK_BYTES", 1)
    result = ended(kz.WishartCompletion.example(), kz.Exact(), var_names=["K21"])
    assert result["posterior"].sizes["draw"] == 1


def test_advi_ends():
    result = ended(normal(), kz.ADVI(max_iterations=1000), draws=7)
    assert result["posterior"].sizes["draw"] == 7


def normal():
    with pm.Model() as model:
        pm.Normal("x", observed=[0.0, 1.0], mu=pm.Normal("mu"))
    return model


@pytest.mark.parametrize(("cores", "chains"), [(1, 3), (2, 2), (2, 3)])
@pytest.mark.parametrize("moments", [None, ["mu"]])
def test_every_chain_ends(cores, chains, moments):
    seen = []
    options = {"chains": chains, "cores": cores, "tune": 0, "moments": moments}
    result = ended(normal(), kz.NUTS(), callback=lambda trace, draw: seen.append(draw), **options)
    posterior = result["posterior"]
    assert posterior.sizes["draw"] == 1
    # One draw ends all that run at once; those that wait for a process are left out.
    assert posterior.sizes["chain"] == (chains if cores == 1 else 1)
    assert list(posterior["chain"].values) == list(range(posterior.sizes["chain"]))
    # The user's callback is called as well, and hears of the chains by their own numbers.
    assert len({draw.chain for draw in seen}) == posterior.sizes["chain"]
    if moments:
        assert np.isfinite(result["moments"]["mu_mean"].values[0]).all()


def test_chains_that_were_not_tuned_are_nothing_to_keep():
    with pytest.raises(ValueError, match="'max_seconds' argument of fit must be enough for NUTS"):
        kz.fit(normal(), kz.NUTS(), max_seconds=NO_TIME, tune=5, chains=1, cores=1, **QUIET)


def test_chains_in_turn_share_the_time(now):
    end = end_of_time(Clock(8.0), chains=3, in_turn=True)
    now.now = 2.0
    ends = []

    def chain(number):
        while True:
            end(None, SimpleNamespace(chain=number))
            now.now += 0.5

    for number in range(3):
        with pytest.raises(OutOfTime):
            chain(number)
        ends.append(now.now)
    assert ends == [4.0, 6.0, 8.0]


def test_chains_at_once_have_all_the_time(now):
    end = end_of_time(Clock(8.0), chains=3, in_turn=False)
    for now.now in (0.0, 4.0, 7.9):
        for chain in range(3):
            end(None, SimpleNamespace(chain=chain))
    now.now = 8.0
    with pytest.raises(OutOfTime):
        end(None, SimpleNamespace(chain=2))


def test_what_follows_the_end_runs_to_its_own(now):
    clock = Clock(1.0)
    clock.check()
    now.now = 1.0
    with pytest.raises(KeyboardInterrupt):
        clock.check()
    clock.check()
    assert clock.ended


def test_enough_time_changes_nothing():
    plain, bounded = (kz.fit(normal(), "map", max_seconds=s, **QUIET) for s in (None, 1e6))
    assert bounded.attrs["converged"] == "yes"
    assert "ended_by" not in bounded.attrs
    assert bounded["posterior"].equals(plain["posterior"])


ENGINES = {
    "nuts": (kz.NUTS(), None),
    "advi": (kz.ADVI(max_iterations=1000), None),
    "map": (kz.MAP(), None),
    "vb": (kz.VB(), kz.MultinomialProbit),
    "em": (kz.EM(tolerance=1e-12), kz.MutualKernelCompletion),
    "gibbs": (kz.Gibbs(), kz.DiagonalWishartCompletion),
    "exact": (kz.Exact(), kz.WishartCompletion),
    "inla": (kz.INLA(), kz.GaussianProcessRegression),
}
# Their libraries call nothing between two steps, or they have no result before their end.
ENDLESS = [
    *(kz.NUTS(backend="nutpie"), kz.NUTS(backend="numpyro")),
    *(kz.Pathfinder(), kz.SMC(), kz.Laplace()),
]
DRAWS = 50


def test_the_contract_is_asked_of_every_engine():
    asked = [*(engine for engine, _ in ENGINES.values()), *ENDLESS]
    assert {type(engine).name.lower() for engine in asked} == set(Engine.registry)


@pytest.mark.parametrize("engine", ENDLESS, ids=repr)
def test_engines_without_a_callback_refuse_a_time_limit(engine):
    if reason := engine.why_not(normal()):
        pytest.skip(reason)
    rule = "'max_seconds' argument of fit must be left out for .*(calls nothing|no result)"
    with pytest.raises(ValueError, match=rule):
        kz.fit(normal(), engine, max_seconds=60, **QUIET)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_ends_with_a_marked_result(name, monkeypatch):
    monkeypatch.setattr("kernelzoo.inference.engine.independent.BLOCK_BYTES", 1)
    engine, example = ENGINES[name]
    model = example.example() if example else normal()
    if reason := engine.why_not(model):
        pytest.skip(reason)
    options = {"draws": DRAWS, "tune": 0, "chains": 2, "cores": 2, "log_likelihood": False} | QUIET
    fit = partial(kz.fit, model, engine, max_seconds=NO_TIME, **options)
    assert_marked(fit(), engine)


def assert_marked(result, engine):
    assert result.attrs["converged"] == "no"
    assert result.attrs["ended_by"] == "max_seconds"
    assert f"{engine.name} was ended by max_seconds=1e-06" in result.attrs["note"]
    draws = result["posterior"].to_dataset()
    assert all(draws[v].size and np.isfinite(draws[v]).all() for v in draws)


@pytest.mark.parametrize("seconds", [0, -1.0, np.nan, np.inf])
def test_seconds_are_checked(seconds):
    with pytest.raises(ValueError, match="'max_seconds' argument of fit must be"):
        kz.fit(normal(), kz.NUTS(), max_seconds=seconds)
