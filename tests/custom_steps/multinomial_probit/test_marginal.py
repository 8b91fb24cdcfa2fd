import logging
from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest

from kernelzoo.custom_steps import AlbertChib, MarginalProbit
from kernelzoo.custom_steps.multinomial_probit import marginal
from kernelzoo.custom_steps.multinomial_probit.marginal import (
    FIRST_STEP,
    FULL_LENGTH,
    SHORTEST_AXIS,
    WINDOW,
)
from kernelzoo.models.combinations import sums as combination
from kernelzoo.models.combinations.products import FixedProduct
from kernelzoo.models.kernels import as_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_fixture import (
    PRIOR,
    WEIGHTS,
    State,
    assert_prior,
    assert_samplers_agree,
    declaration,
    expansion,
    functionals,
)


class Doubled(combination.WeightedSum):
    """A rule that no step knows."""

    def declare(self):
        return pm.Gamma("beta", 2.0, 1.0, dims="kernel")


QUIET = {"progressbar": False, "compute_convergence_checks": False}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def model():
    return MultinomialProbit.example()


def test_steps_after_tuning_are_of_the_average_size(model):
    step = MarginalProbit(model=model)
    step.setup_chain(np.random.default_rng(2), tune=5, draws=5)
    point = model.initial_point()
    # After the first sweep the average is the last step.
    for _ in range(4):
        point, _ = step.step(point)
    step.stop_tuning()
    _, (stats,) = step.step(point)
    assert stats["hmc_step"] == pytest.approx(step.tuning.current(tune=False))
    assert stats["hmc_step"] != pytest.approx(step.tuning.current(tune=True))


@pytest.mark.parametrize(("target", "sign"), [(0.95, -1), (0.65, 1)])
def test_steps_shrink_below_the_acceptance_that_is_asked_and_grow_above_it(model, target, sign):
    tuning = MarginalProbit(model=model, target_accept=target).initial_tuning()
    first = tuning.current(tune=False)
    for _ in range(200):
        tuning.update(0.8, tune=True)
    assert sign * (tuning.current(tune=False) - first) > 0


def evaluations_in_tuning(step, point, sweeps):
    counts = []
    for _ in range(sweeps):
        point, (stats,) = step.step(point)
        counts.append(stats["hmc_evaluations"])
    return point, np.mean(counts)


def test_trajectories_are_short_until_the_end_of_tuning(model):
    step = MarginalProbit(model=model)
    step.setup_chain(np.random.default_rng(3), tune=FULL_LENGTH + 100, draws=5)
    point, _ = evaluations_in_tuning(step, model.initial_point(), 50)
    point, short = evaluations_in_tuning(step, point, 50)
    _, full = evaluations_in_tuning(step, point, 50)
    assert short < 0.4 * full
    step.setup_chain(np.random.default_rng(3), tune=FULL_LENGTH, draws=5)
    point, _ = evaluations_in_tuning(step, model.initial_point(), 50)
    _, short_run = evaluations_in_tuning(step, point, 50)
    assert short_run > 0.45 * full


def test_axes_are_as_long_as_the_spread_that_tuning_sees(monkeypatch):
    # All trajectories are of full length, which show the spread soon.
    monkeypatch.setattr(marginal, "FULL_LENGTH", 4 * WINDOW)
    example = MultinomialProbit.example()
    model = MultinomialProbit(as_stack(np.exp(example.design)), example.label_codes, upsilon=1e3)
    step = MarginalProbit(model=model)
    step.setup_chain(np.random.default_rng(4), tune=3 * WINDOW, draws=5)
    shortest, axes, bend = step.lengths, step._target.axes, step._target.bend
    point, seen = model.initial_point(), []
    for _ in range(WINDOW):
        np.testing.assert_array_equal(step.lengths, shortest)
        point, _ = step.step(point)
        along = bend * np.arcsinh(point["W"] / (bend * np.sqrt(1e3 / model.tau))) @ axes
        seen.append(along - along.mean(axis=0))
    spread = np.array(seen).std(axis=0).mean(axis=0)
    np.testing.assert_allclose(step.lengths, (SHORTEST_AXIS * spread).clip(shortest, 1))
    assert (step.lengths > 2 * shortest).any()
    # Other lengths need another step: its tuning begins anew.
    assert step.tuning._count == 1
    # They stay when tuning is over, here before its time.
    fitted = step.lengths
    step.stop_tuning()
    for _ in range(WINDOW):
        point, _ = step.step(point)
    np.testing.assert_array_equal(step.lengths, fitted)
    resumed = MarginalProbit(model=model)
    resumed.sampling_state = step.sampling_state
    np.testing.assert_array_equal(resumed.lengths, fitted)
    step.setup_chain(np.random.default_rng(5), tune=5, draws=5)
    np.testing.assert_array_equal(step.lengths, shortest)


def test_the_last_window_tunes_the_step_alone(model):
    step = MarginalProbit(model=model)
    step.setup_chain(np.random.default_rng(4), tune=2 * WINDOW, draws=5)
    rng, shape = np.random.default_rng(5), (model.n_classes, len(model.coords["basis"]))
    for _ in range(WINDOW):
        # Wider than the prior: axes are never longer than 1.
        step._adapt(0.75, {"W": 1e6 * rng.normal(size=shape)})
    assert (step.lengths == 1).all()
    assert len(step.lengths) > 0
    # The tuning goes on from the step that was found.
    assert step.tuning._initial_step != FIRST_STEP
    for _ in range(WINDOW):
        step._adapt(0.75, {"W": np.zeros(shape)})
    assert (step.lengths == 1).all()
    assert step.tuning._count == WINDOW + 1
    assert not step._seen


@cache
def prior_draws(*, learn_weights, replicates=600):
    """Parameters and labels that the declaration draws."""
    model = declaration(learn_weights=learn_weights)
    variables = [*model.free_RVs, model["t"]]
    rng = np.random.default_rng(1)
    draws = pm.draw(variables, replicates, random_seed=rng, mode="FAST_COMPILE")
    return [
        dict(zip([rv.name for rv in variables], row, strict=True))
        for row in zip(*draws, strict=True)
    ]


def prior_invariance_test(*, learn_weights=True, prior=PRIOR):
    """One step from the declaration's prior, labels drawn by the declaration, leaves their law.

    The step is built on a declaration with the hyperparameters `prior`; the draws are of one with
    those of the fixture.
    """
    step = MarginalProbit(model=declaration(learn_weights=learn_weights, prior=prior), rng=2)
    step.stop_tuning()
    step.tuning = step.initial_tuning(0.4)
    prototype, known = step._target, {} if learn_weights else {"beta": WEIGHTS, "rho": np.ones(2)}
    draws, starts, last = prior_draws(learn_weights=learn_weights), [], []
    for draw in draws:
        start = {name: value for name, value in draw.items() if name != "t"}
        step._target = replace(prototype, labels=draw["t"].astype(np.intp))
        point, _ = step.step(step._output_map.unconstrain(start))
        starts.append(State(**(start | known)))
        last.append(State(**(step._output_map.constrain(point) | known)))
    labels = [draw["t"] for draw in draws]
    differences = functionals(last, labels) - functionals(starts, labels)
    if not learn_weights:
        last = [state._replace(rho=np.empty(0)) for state in last]
    assert_prior(differences, last)


@pytest.mark.parametrize("learn_weights", [True, False])
def test_prior_of_the_declaration_is_invariant(learn_weights):
    prior_invariance_test(learn_weights=learn_weights)


@pytest.mark.parametrize(
    "wrong",
    [
        {"upsilon": 1 / PRIOR.upsilon},
        pytest.param({"lam": 1 / PRIOR.lam}, marks=pytest.mark.slow),
        pytest.param({"tau": PRIOR.tau + 0.5}, marks=pytest.mark.slow),
    ],
)
def test_hyperparameters_misread_are_detected(wrong):
    """Planted bugs: a rate taken for a scale, half a degree of freedom too many."""
    with pytest.raises(AssertionError):
        prior_invariance_test(prior=replace(PRIOR, **wrong))


def test_fixed_weights_and_a_single_kernel():
    example = MultinomialProbit.example()
    stack = np.exp(example.design)
    for kernels, rule in (
        (slice(None), combination.FixedWeights([0.3, 0.7])),
        (slice(None), FixedProduct([1.0, 0.5])),
        (slice(1), "mean"),
    ):
        model = MultinomialProbit(stack[kernels], example.label_codes % 2, combination=rule)
        step = MarginalProbit(model=model, rng=1)
        np.testing.assert_allclose(
            step._target.kernels.composition.composite({}),
            model.combination.combine(model["K"], model["beta"]).eval(),
        )
        point, _ = step.step(model.initial_point())
        assert list(point) == ["zeta_log__", "W"]
        assert point["W"].shape == (2, 12)


def test_wrong_requests(model):
    for names in (["W"], ["W", "zeta", "beta"], ["W", "zeta"]):
        with pytest.raises(ValueError, match=r"'vars' argument of MarginalProbit must be .*beta"):
            MarginalProbit([model[name] for name in names], model=model)
    with pytest.raises(ValueError, match="'length' argument of MarginalProbit"):
        MarginalProbit(model=model, length=0)
    with pytest.raises(ValueError, match="'target_accept' argument of MarginalProbit"):
        MarginalProbit(model=model, target_accept=1)
    stack = as_stack(model.design)
    of_a_rule_unknown = MultinomialProbit(stack, model.label_codes, combination=Doubled())
    with pytest.raises(TypeError, match=r"available for Mean, Product and Binary\. Got Dou"):
        MarginalProbit(model=of_a_rule_unknown)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["mean", combination.FixedWeights([0.3, 0.7])])
def test_both_schemes_agree(rule):
    model = expansion(combination=rule)
    options = {"chains": 2, "cores": 1, "random_seed": 6, **QUIET}
    with model:
        marginal = pm.sample(1_500, tune=300, step=[MarginalProbit()], **options)
        paper = pm.sample(8_000, tune=500, step=[AlbertChib()], **options)
    assert_samplers_agree(marginal, paper)
