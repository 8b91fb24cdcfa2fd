"""What PyMC relies on, for every step of the kernel models: points, states, tuning, processes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.state import equal_dataclass_values

import kernelzoo as kz
from kernelzoo import custom_steps
from kernelzoo.custom_steps import (
    AlbertChib,
    CompositeKernelGibbs,
    GibbsBlock,
    MarginalProbit,
)
from kernelzoo.models.declaration import Declaration

QUIET = {"progressbar": False, "compute_convergence_checks": False}


@dataclass(frozen=True)
class Case:
    """A step and a small model for it.

    Parameters
    ----------
    step, declare : callable
    settings : dict
        Of the step.
    may_stay : frozenset of str
        Value variables that a Metropolis move may leave where they are.
    """

    step: Callable[..., Any]
    declare: Callable[[], Declaration]
    settings: dict[str, Any] = field(default_factory=dict)
    may_stay: frozenset[str] = frozenset()


def probit(rule, *, parametric=False):
    """Nine objects, three classes, two kernels."""

    def declare():
        X, labels = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9) % 3
        first = kz.gaussian(kz.kernels.Theta(2.0, 3.0) if parametric else 0.5)
        return kz.MultinomialProbit((first | kz.gaussian(0.1))(X), labels, combination=rule)

    return declare


WEIGHTS = frozenset({"beta_simplex__"})
WALKED = frozenset({"beta_log__", "theta_log__"})
CASES = {
    "AlbertChib": Case(AlbertChib, kz.MultinomialProbit.example, may_stay=WEIGHTS),
    "MarginalProbit": Case(MarginalProbit, kz.MultinomialProbit.example, may_stay=WEIGHTS),
    "composite regression": Case(CompositeKernelGibbs, kz.CompositeKernelRegression.example),
    "composite regression, Metropolis": Case(
        CompositeKernelGibbs, kz.CompositeKernelRegression.example, {"scheme": "paper"}, WEIGHTS
    ),
    "composite classification": Case(
        CompositeKernelGibbs, kz.CompositeKernelClassification.example
    ),
    "AlbertChib, binary": Case(AlbertChib, probit("binary"), may_stay=frozenset({"beta"})),
    "AlbertChib, product, theta": Case(
        AlbertChib, probit("product", parametric=True), may_stay=WALKED
    ),
    "AlbertChib, mean, theta": Case(
        AlbertChib,
        probit("mean", parametric=True),
        may_stay=WEIGHTS | WALKED | {"rho_log__"},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def made(case):
    """The case's model, and a step that the tests set up anew."""
    model = case.declare()
    return model, case.step(model=model, **case.settings)


def test_every_step_is_exported():
    prefix = f"{custom_steps.__name__}."
    modules = [import_module(m.name) for m in walk_packages(custom_steps.__path__, prefix)]
    named = [pair for module in modules for pair in vars(module).items() if pair[0][0] != "_"]
    steps = {n for n, thing in named if isinstance(thing, type) and issubclass(thing, GibbsBlock)}
    assert steps == {*custom_steps.__all__}


def begin(step, tune=20):
    step.setup_chain(np.random.default_rng(2), tune=tune, draws=0)


def assert_same(point, other):
    for name, value in point.items():
        np.testing.assert_array_equal(value, other[name])


def test_points_keep_order_and_arrays(case, made):
    model, step = made
    begin(step)
    point = model.initial_point()
    kept = {name: value.copy() for name, value in point.items()}
    new, (stats,) = step.step(point)
    assert list(new) == list(point)
    for name, value in point.items():
        np.testing.assert_array_equal(value, kept[name])
        assert not np.shares_memory(new[name], value)
        assert (new[name].shape, new[name].dtype) == (value.shape, value.dtype)
        assert name in case.may_stay or not np.array_equal(new[name], value)
    assert set(stats) == set(case.step.stats_dtypes_shapes)


def test_order_of_a_point_and_what_others_hold_do_not_matter(made):
    model, step = made
    point = model.initial_point()
    ways = []
    elsewhere = {"held elsewhere": np.ones(3)}
    for given in (point, dict(reversed(point.items())) | elsewhere):
        begin(step)
        new, _ = step.step(given)
        assert list(new) == list(given)
        ways.append(new)
    assert_same(*ways)
    assert ways[1]["held elsewhere"] is elsewhere["held elsewhere"]


def test_chains_do_not_leak_and_a_saved_one_goes_on_the_same(made):
    model, step = made

    def chain():
        begin(step)
        point = model.initial_point()
        for _ in range(20):
            point, _ = step.step(point)
        step.stop_tuning()
        return point, step.sampling_state

    first, state = chain()
    second, again = chain()
    assert_same(first, second)
    assert equal_dataclass_values(state, again)
    ends = []
    for _ in range(2):
        step.sampling_state = state
        assert equal_dataclass_values(step.sampling_state, state)
        point = first
        for _ in range(3):
            point, _ = step.step(point)
        ends.append(point)
        assert not equal_dataclass_values(step.sampling_state, state)
        # Another chain comes between.
        begin(step)
        step.step(point)
    assert_same(*ends)


def test_proposals_stay_as_they_are_after_tuning(made):
    model, step = made
    begin(step, tune=5)
    point, _ = step.step(model.initial_point())
    tuned = step.sampling_state.tuning
    step.stop_tuning()
    step.step(point)
    assert equal_dataclass_values(step.sampling_state.tuning, tuned)


@pytest.mark.parametrize("name", ["AlbertChib", "MarginalProbit", "AlbertChib, product, theta"])
def test_one_and_two_cores_give_the_same_draws(name):
    case = CASES[name]
    with case.declare() as model:
        one, two = (
            pm.sample(
                *(30,),
                **{"tune": 30, "chains": 2, "cores": cores, "random_seed": 4} | QUIET,
                step=[case.step(**case.settings)],
            )
            for cores in (1, 2)
        )
    for rv in model.free_RVs:
        np.testing.assert_array_equal(one["posterior"][rv.name], two["posterior"][rv.name])
    assert not np.array_equal(one["posterior"]["W"][0], one["posterior"]["W"][1])
    for stat in case.step.stats_dtypes_shapes:
        assert one["sample_stats"][stat].dims == ("chain", "draw")


def test_some_of_the_variables_are_refused(case):
    model = case.declare()
    some = [rv.name for rv in model.free_RVs[1:]]
    with pytest.raises(ValueError, match=r"'vars' argument of .* must be .* Got"):
        case.step(some, model=model, **case.settings)


def test_other_models_and_amended_ones_are_refused(case):
    """A term of a variable that the step draws changes its conditional distribution."""
    with pm.Model() as other:
        pm.Normal("W")
        pm.Normal("alpha")
    with pytest.raises(TypeError, match=r"needs a .* Got Model"):
        case.step(model=other)
    model = case.declare()
    with model:
        pm.Potential("pull", -1e4 * (model["beta"][0] - 0.9) ** 2)
    with pytest.raises(ValueError, match=r"draws .*beta.* amended by pull"):
        case.step(model=model, **case.settings)


def test_a_variable_apart_is_left_to_others(case):
    """One that what the step draws does not depend on, and that does not depend on it."""
    model = case.declare()
    with model:
        pm.Normal("apart")
    step = case.step(model=model, rng=1, **case.settings)
    new, _ = step.step(model.initial_point())
    assert new["apart"] == 0.0
