"""Contract of the base class, on a conjugate block that takes microseconds."""

from typing import ClassVar

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.transforms import LogTransform
from pymc.sampling.parallel import ParallelSamplingError
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import equal_dataclass_values
from scipy import stats

import kernelzoo as kz
from family import assert_z
from kernelzoo.custom_steps import CompositeKernelGibbs
from kernelzoo.custom_steps.block import _BY_NUMPY, GibbsBlock, ValueMap
from kernelzoo.models.distributions.dirichlet import Simplex
from kernelzoo.models.distributions.positive_definite import PositiveDefinite

Y = np.random.default_rng(0).normal(size=(4, 2))


class Toy(GibbsBlock):
    """mu | scale, tau2 and tau2 | mu of y ~ N(mu, 1), mu ~ N(0, scale^2 tau2), tau2 ~ IG(3, 2)."""

    name = "toy"
    stats_dtypes_shapes: ClassVar = {"toy_learned": (np.int64, [])}

    def initial_tuning(self):
        return (0, np.zeros(2))

    def sweep(self, values, rng):
        precision = len(Y) + 1 / (values["tau2"] * values["scale"] ** 2)
        mu = Y.sum(axis=0) / precision + rng.standard_normal(2) / np.sqrt(precision)
        rate = 2 + 0.5 * (mu / values["scale"]) ** 2
        tau2 = rate / rng.standard_gamma(3.5, size=2)
        count, total = self.tuning
        if self.tune:
            self.tuning = (count + 1, total + mu)
        return {"tau2": tau2, "mu": mu}, {"toy_learned": count}


class Writing(Toy):
    """Planted bug: a sweep that writes into what it was given."""

    def sweep(self, values, rng):
        values["mu"][:] = 0.0
        return super().sweep(values, rng)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        tau2 = pm.InverseGamma("tau2", 3.0, 2.0, shape=2)
        pm.Normal("between")
        mu = pm.Normal("mu", 0.0, scale * pm.math.sqrt(tau2), shape=2)
        rho = pm.Gamma("rho", 2.0, 1.0, shape=3)
        pm.Dirichlet("beta", rho)
        pm.Normal("y", mu, 1.0, observed=Y)
    return model


@pytest.fixture
def step(model):
    # Given in an order that is not the model's, by name here and as variables below.
    return Toy(["mu", "tau2"], reads=["scale"], model=model, rng=1)


def test_point_keeps_its_order_and_its_arrays(model, step):
    point = model.initial_point()
    kept = {name: value.copy() for name, value in point.items()}
    new, info = step.step(point)
    assert list(new) == list(point)
    for name, value in point.items():
        np.testing.assert_array_equal(value, kept[name])
        changed = name in ("mu", "tau2_log__")
        assert changed != np.array_equal(new[name], kept[name])
        assert changed != np.shares_memory(new[name], value)
        assert new[name].shape == value.shape
        assert value.flags.writeable
    assert info == [{"toy_learned": 0}]


def test_a_sweep_cannot_write_into_the_point(model):
    step = Writing([model["mu"], model["tau2"]], reads=[model["scale"]], model=model)
    with pytest.raises(ValueError, match="read-only"):
        step.step(model.initial_point())


def test_successive_points_share_nothing(model, step):
    first, _ = step.step(model.initial_point())
    kept = {name: value.copy() for name, value in first.items()}
    second, _ = step.step(first)
    for name in ("mu", "tau2_log__"):
        np.testing.assert_array_equal(first[name], kept[name])
        assert not np.shares_memory(first[name], second[name])


def test_same_seed_same_draws_and_nothing_learned_leaks(model, step):
    def chain():
        step.setup_chain(np.random.default_rng(3), tune=5, draws=5)
        assert step.tuning[0] == 0
        point, values = model.initial_point(), []
        for i in range(10):
            if i == 5:
                step.stop_tuning()
            point, _ = step.step(point)
            values.append(point["mu"])
        return np.array(values), step.tuning

    first, learned = chain()
    second, again = chain()
    np.testing.assert_array_equal(first, second)
    assert learned[0] == again[0] == 5
    np.testing.assert_array_equal(learned[1], again[1])


def test_no_tuning_without_tuning_steps(model, step):
    step.setup_chain(np.random.default_rng(3), tune=0, draws=5)
    step.step(model.initial_point())
    assert step.tuning[0] == 0


def test_restored_state_equals_the_saved_one(model, step):
    point, _ = step.step(model.initial_point())
    saved = step.sampling_state
    expected, _ = step.step(point)
    step.step(expected)
    assert not equal_dataclass_values(step.sampling_state, saved)
    step.sampling_state = saved
    assert equal_dataclass_values(step.sampling_state, saved)
    again, _ = step.step(point)
    np.testing.assert_array_equal(expected["mu"], again["mu"])


def test_never_assigned_automatically(model):
    assert Toy.competence(model["mu"], True) is Competence.INCOMPATIBLE


def test_map_of_a_dirichlet_whose_concentration_is_random(model):
    mapping = ValueMap(model, [model["beta"], model["tau2"], model["mu"]])
    point = model.initial_point()
    point["beta_simplex__"] = np.array([0.3, -1.2])
    values = mapping.constrain(point)
    log_ratios = np.array([0.3, -1.2, 0.9])
    np.testing.assert_allclose(values["beta"], np.exp(log_ratios) / np.exp(log_ratios).sum())
    back = mapping.unconstrain(values)
    assert list(back) == ["beta_simplex__", "tau2_log__", "mu"]
    for name, value in back.items():
        np.testing.assert_allclose(value, point[name], rtol=1e-12)


def test_transform_that_depends_on_a_random_variable_is_refused():
    with pm.Model() as model:
        top = pm.HalfNormal("top")
        pm.Uniform("x", 0.0, top)
    with pytest.raises(ValueError, match=r"'x': its transform depends on .* top"):
        ValueMap(model, [model["x"]])


def test_packed_variables_keep_their_unconstrained_form(model):
    class Packed(GibbsBlock):
        packed = frozenset({"tau2"})
        stats_dtypes_shapes: ClassVar = {}

        def sweep(self, values, rng):
            np.testing.assert_array_equal(values["tau2"], point["tau2_log__"])
            np.testing.assert_allclose(values["scale"], np.exp(point["scale_log__"]))
            return {"tau2": values["tau2"] - 1, "mu": values["mu"]}, {}

    point = model.initial_point() | {"tau2_log__": np.array([0.3, -1.2])}
    step = Packed([model["mu"], model["tau2"]], reads=[model["scale"]], model=model)
    new, _ = step.step(point)
    np.testing.assert_array_equal(new["tau2_log__"], [-0.7, -2.2])
    assert list(new) == list(point)


def test_a_block_inside_pm_sample_with_nuts_on_the_rest():
    """Cores 1 and 2 give the same draws, and they have the exact mean."""
    with pm.Model():
        scale = pm.Uniform("scale", 0.5, 2.0)
        tau2 = pm.InverseGamma("tau2", 3.0, 2.0, shape=2)
        mu = pm.Normal("mu", 0.0, scale * pm.math.sqrt(tau2), shape=2)
        pm.Normal("y", mu, 1.0, observed=Y)
        options = {
            "tune": 50,
            "chains": 2,
            "random_seed": 5,
            "progressbar": False,
            "compute_convergence_checks": False,
        }

        def draws(cores):
            step = Toy([mu, tau2], reads=[scale])
            return pm.sample(100, cores=cores, step=[step], **options)

        one, two = draws(1), draws(2)
        for name in ("mu", "tau2", "scale"):
            np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])
        assert one["sample_stats"]["toy_learned"].max() == 50

    posterior = one["posterior"]["mu"].values
    ess = [float(az.ess(posterior[..., i])) for i in range(2)]
    z = (posterior.mean(axis=(0, 1)) - exact_means()) / posterior.std(axis=(0, 1)) * np.sqrt(ess)
    assert_z(z)


def exact_means():
    """E[mu | y] with tau2 integrated out (mu / scale is Student t) and scale on a grid."""
    scale, mu = np.linspace(0.5, 2.0, 201), np.linspace(-6, 6, 2_001)
    prior = stats.t(6, scale=scale[:, None] * np.sqrt(2 / 3)).pdf(mu)
    joint = [prior * np.exp(-0.5 * len(Y) * (mu - centre) ** 2) for centre in Y.mean(axis=0)]
    weights = np.prod([j.sum(axis=1) for j in joint], axis=0)
    means = [(j @ mu) / j.sum(axis=1) for j in joint]
    return [np.average(m, weights=weights) for m in means]


@pytest.mark.parametrize(
    ("transform", "value"),
    [
        (LogTransform(), np.array([[0.3, 2.0], [1e-200, 1e200]])),
        (LogTransform(), np.array(0.7)),
        (Simplex(), np.array([0.2, 0.5, 0.3])),
        (Simplex(), np.array([[0.1, 0.9], [1e-250, 1.0]])),
        (PositiveDefinite(), np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.5]])),
        (PositiveDefinite(), np.array([[[2.0, 0.3], [0.3, 1.0]], [[1.0, 0.9], [0.9, 1.0]]])),
    ],
)
def test_transforms_by_numpy_are_those_of_pymc(transform, value):
    forward, backward = _BY_NUMPY[type(transform)]
    x = pt.as_tensor(value)
    packed = transform.forward(x).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(forward(value), packed, rtol=1e-12)
    back = transform.backward(pt.as_tensor(packed)).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(backward(packed), back, rtol=1e-12)


def test_a_step_of_the_model_as_it_was_is_refused():
    """Bug: a term that was added after the step was made, or data set since, were ignored."""
    options = {"draws": 3, "tune": 3, "chains": 2, "progressbar": False, "random_seed": 1}
    # The second is PyMC's, for a chain in a process of its own.
    model, refused = kz.CompositeKernelRegression.example(), (ValueError, ParallelSamplingError)
    with model:
        step = CompositeKernelGibbs()
        pm.sample(step=step, cores=2, **options)
        pm.set_data({"targets": model["targets"].get_value() + 1.0})
        for cores in (1, 2):
            with pytest.raises(refused, match=r"before pm.set_data set targets, .* new step"):
                pm.sample(step=step, cores=cores, **options)
        step = CompositeKernelGibbs()
        pm.sample(step=step, cores=1, **options)
        pm.Potential("high", 500.0 * pm.math.log(model["beta"][0]))
        for cores in (1, 2):
            with pytest.raises(refused, match="the model was amended by high"):
                pm.sample(step=step, cores=cores, **options)
