import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.custom_steps.multinomial_probit.albert_chib import AlbertChib
from kernelzoo.custom_steps.multinomial_probit.marginal import MarginalProbit
from kernelzoo.inference.engine.engine import Run
from toy_rule import NormalWeights

QUIET = {"progressbar": False, "log_likelihood": False, "random_seed": 1}


def model_of(combination):
    example = kz.MultinomialProbit.example()
    stack = np.exp(example.design)
    return kz.MultinomialProbit(stack, example.label_codes, combination=combination)


def step_of(combination, **settings):
    (step,) = kz.Gibbs(**settings).implement(model_of(combination), Run(random_seed=1))
    return type(step)


@pytest.mark.parametrize("combination", ["mean", "fixed", "fixed product", "product"])
def test_rules_have_both_schemes(combination):
    """Under the paper's, other steps take weights that are random."""
    assert step_of(combination) is MarginalProbit
    assert step_of(combination, scheme="marginal", length=2.0) is MarginalProbit
    assert step_of(combination, scheme="paper") is AlbertChib


def test_rules_that_the_marginal_scheme_does_not_know_have_the_papers():
    assert step_of(NormalWeights()) is AlbertChib
    with pytest.raises(ValueError, match="'scheme' argument of Gibbs must be 'auto' or 'paper'"):
        step_of(NormalWeights(), scheme="marginal")


def test_fewer_basis_functions_than_objects_have_the_papers_scheme_if_weights_are_known():
    example = kz.MultinomialProbit.example()
    cases = [
        ("fixed", {}, AlbertChib),
        ("fixed", {"scheme": "marginal"}, MarginalProbit),
        ("mean", {}, MarginalProbit),
    ]
    for rule, settings, expected in cases:
        design = kz.kernels.as_stack(example.design[..., :5])
        model = kz.MultinomialProbit(design, example.label_codes, combination=rule)
        (step,) = kz.Gibbs(**settings).implement(model, Run(random_seed=1))
        assert type(step) is expected


def test_parameters_of_kernels_have_the_marginal_scheme():
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = kz.MultinomialProbit(kz.gaussian(kz.kernels.Theta(1.0, 1.0))(X), np.arange(12) % 3)
    (step,) = kz.Gibbs().implement(model, Run(random_seed=1))
    assert type(step) is MarginalProbit


def test_wrong_settings():
    with pytest.raises(ValueError, match=r"'scheme' argument of Gibbs .* nearest is 'paper'"):
        step_of("mean", scheme="papers")
    with pytest.raises(ValueError, match="'length' argument of Gibbs"):
        step_of("mean", length=-1.0)


@pytest.mark.parametrize("settings", [{"length": 3.0}, {"target_accept": 0.9}])
def test_settings_of_what_is_not_done_are_not_ignored(settings):
    message = rf"The setting '{next(iter(settings))}' of Gibbs .* does not apply: AlbertChib, which"
    with pytest.raises(ValueError, match=message):
        step_of("mean", scheme="paper", **settings)


def test_the_papers_scheme_leaves_random_weights_to_other_steps():
    options = {"draws": 20, "tune": 20, "chains": 1} | QUIET
    result = kz.fit(model_of("mean"), kz.Gibbs(scheme="paper"), **options)
    assert float(result["posterior"]["beta"].std("draw").max()) > 0


def test_selections_need_the_marginal_scheme():
    assert step_of("binary") is MarginalProbit
    with pytest.raises(ValueError, match="a selection, which hardly moves given the regressors"):
        step_of("binary", scheme="paper")


def test_default_chain():
    result = kz.fit(
        kz.MultinomialProbit.example(), kz.Gibbs(), draws=30, tune=30, chains=2, **QUIET
    )
    stats = result["sample_stats"]
    assert 0.2 < float(stats["hmc_accept"].mean()) <= 1
    # Tuning has ended: one step a chain.
    assert (stats["hmc_step"] == stats["hmc_step"][:, :1]).all()
    assert result["posterior"]["W"].dims == ("chain", "draw", "class", "basis")


def test_interrupted_chain_keeps_its_draws():
    def stop(trace, draw):
        if not draw.tuning and draw.draw_idx == 24:
            raise KeyboardInterrupt

    result = kz.fit(
        *(kz.MultinomialProbit.example(), kz.Gibbs()),
        **{"draws": 1_000, "tune": 5, "chains": 1, "cores": 1, "callback": stop} | QUIET,
    )
    assert 10 <= result["posterior"].sizes["draw"] < 100
    assert result.attrs["converged"] == "no"
