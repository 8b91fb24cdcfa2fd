import logging

import arviz as az
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.state import equal_dataclass_values

from family import assert_z
from kernelzoo.custom_steps import AlbertChib
from kernelzoo.models import combination
from kernelzoo.models.multinomial_probit import MultinomialProbit

QUIET = {"progressbar": False, "compute_convergence_checks": False}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def model():
    return MultinomialProbit.example()


def expansion(**options):
    """Twelve objects, a basis expansion of two functions, two kernels."""
    rng = np.random.default_rng(3)
    labels = np.arange(12) % 3
    stack = rng.normal(size=(2, 12, 2)) + np.eye(3)[labels][None, :, :2]
    return MultinomialProbit(stack, labels, tau=2.0, upsilon=2.0, **options)


def functionals(tree):
    """Class contrasts and weights: what the likelihood knows about."""
    posterior = tree["posterior"]
    W = posterior["W"].transpose("chain", "draw", "class", "basis").values
    out = [np.arcsinh(W[:, :, 0] - W[:, :, 1]), np.arcsinh(W[:, :, 1] - W[:, :, 2])]
    out.append(np.log(posterior["zeta"].values[:, :, 0]))
    if "beta" in posterior:
        out += [posterior["beta"].values[..., :1], np.log(posterior["rho"].values)]
    return np.concatenate(out, axis=-1)


def assert_agree(a, b):
    a, b = functionals(a), functionals(b)
    z = []
    for i in range(a.shape[-1]):
        error = np.hypot(float(az.mcse(a[..., i])), float(az.mcse(b[..., i])))
        z.append((a[..., i].mean() - b[..., i].mean()) / error)
    assert_z(z)


def test_points_keep_order_and_arrays(model):
    step = AlbertChib(model=model, rng=1)
    point = model.initial_point()
    kept = {name: value.copy() for name, value in point.items()}
    new, stats = step.step(point)
    assert list(new) == list(point)
    for name, value in point.items():
        np.testing.assert_array_equal(value, kept[name])
        assert not np.shares_memory(new[name], value)
        assert new[name].shape == value.shape
        assert not np.array_equal(new[name], value) or name == "beta_simplex__"
    assert set(stats[0]) == set(AlbertChib.stats_dtypes_shapes)


def test_state_restored_is_state_equal_and_chains_do_not_leak(model):
    step = AlbertChib(model=model)

    def chain():
        step.setup_chain(np.random.default_rng(2), tune=20, draws=0)
        point = model.initial_point()
        for _ in range(20):
            point, _ = step.step(point)
        return point, step.sampling_state

    first, state = chain()
    second, again = chain()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
    assert equal_dataclass_values(state, again)
    expected, _ = step.step(first)
    assert not equal_dataclass_values(step.sampling_state, state)
    step.sampling_state = state
    assert equal_dataclass_values(step.sampling_state, state)
    actual, _ = step.step(first)
    np.testing.assert_array_equal(expected["W"], actual["W"])


def test_proposals_stay_as_they_are_after_tuning(model):
    step = AlbertChib(model=model)
    step.setup_chain(np.random.default_rng(2), tune=5, draws=5)
    point, _ = step.step(model.initial_point())
    tuned = step.tuning
    assert tuned.weights.updates == tuned.concentrations.updates == 1
    step.stop_tuning()
    step.step(point)
    assert step.tuning is tuned


def test_one_and_two_cores_give_the_same_draws(model):
    def draws(cores):
        with model:
            return pm.sample(
                100, tune=50, chains=2, cores=cores, random_seed=4, step=[AlbertChib()], **QUIET
            )

    one, two = draws(1), draws(2)
    for name in ("W", "zeta", "beta", "rho"):
        np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])
    assert not np.array_equal(one["posterior"]["W"][0], one["posterior"]["W"][1])
    for name in ("beta_accept", "rho_accept"):
        assert one["sample_stats"][name].dims == ("chain", "draw")
        assert float(one["sample_stats"][name].mean()) > 0


def test_fixed_weights_and_a_single_kernel():
    for kernels, rule in ((slice(None), combination.FixedWeights([0.3, 0.7])), (slice(1), "mean")):
        example = MultinomialProbit.example()
        model = MultinomialProbit(example.design[kernels], example.label_codes, combination=rule)
        point, stats = AlbertChib(model=model, rng=1).step(model.initial_point())
        assert list(point) == ["zeta_log__", "W"]
        assert np.isnan(stats[0]["beta_accept"])


def test_weights_that_are_not_owned_are_left_alone(model):
    step = AlbertChib([model["W"]], model=model, rng=1)
    point = model.initial_point()
    new, stats = step.step(point)
    assert [name for name in point if new[name] is not point[name]] == ["W"]
    assert np.isnan(stats[0]["beta_accept"])
    assert np.isnan(stats[0]["rho_accept"])


def test_wrong_requests(model):
    with pytest.raises(ValueError, match="'vars' argument of AlbertChib must include W"):
        AlbertChib([model["zeta"], model["beta"]], model=model)
    with pytest.raises(ValueError, match="'moves' argument of AlbertChib"):
        AlbertChib(model=model, moves=0)
    with pm.Model() as other:
        pm.Normal("W")
    with pytest.raises(TypeError, match=r"needs a MultinomialProbit .* Got Model"):
        AlbertChib(model=other)


@pytest.mark.slow
def test_gibbs_agrees_with_gibbs_and_nuts_on_the_rest():
    """All variables by Gibbs, against W and zeta by Gibbs with NUTS on the marginal declaration."""
    model = expansion()
    options = {"chains": 2, "cores": 1, "random_seed": 6, **QUIET}
    with model:
        full = pm.sample(3_000, tune=300, step=[AlbertChib()], **options)
        step = AlbertChib([model["W"], model["zeta"]])
        mixed = pm.sample(500, tune=300, step=[step], **options)
    assert_agree(full, mixed)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["mean", combination.FixedWeights([0.3, 0.7])])
def test_gibbs_agrees_with_nuts(rule):
    model = expansion(combination=rule)
    with model:
        options = {"chains": 2, "cores": 1, "random_seed": 6, **QUIET}
        gibbs = pm.sample(20_000, tune=1_000, step=[AlbertChib()], **options)
        nuts = pm.sample(3_000, tune=1_000, nuts_sampler="pymc", target_accept=0.9, **options)
    assert_agree(gibbs, nuts)
