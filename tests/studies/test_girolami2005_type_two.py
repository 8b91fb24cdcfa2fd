"""Type-II maximum likelihood: the most likely priors, and the iterations with them."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from kernelzoo.inference.variational.factors import Gamma
from kernelzoo.models import CompositeKernelClassification
from kernelzoo.models.combinations.sums import DirichletWeights
from studies import girolami2005 as type_two
from studies.girolami2005 import LARGEST_SHAPE, fit_type_two, most_likely


def expected_log_density(log_parameters, factor):
    shape, rate = np.exp(log_parameters)
    prior = Gamma(shape, np.full(np.shape(factor.rate), rate))
    return prior.log_constant + np.sum((shape - 1) * factor.mean_log - rate * factor.mean)


@pytest.mark.parametrize("shape", [0.05, 0.8, 30.0, 1e4])
def test_most_likely_prior_maximises_the_expected_log_density(shape):
    factor = Gamma(shape, np.random.default_rng(0).gamma(2.0, size=7))
    fitted = most_likely(factor)
    found = np.log([fitted.shape, float(fitted.rate)])
    best = minimize(
        lambda x: -expected_log_density(x, factor),
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000},
    )
    assert expected_log_density(found, factor) >= -best.fun - 1e-9
    for step in 1e-4 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
        assert expected_log_density(found + step, factor) < expected_log_density(found, factor)


def test_one_factor_is_its_own_most_likely_prior():
    factor = Gamma(37.5, np.asarray(4.0))
    fitted = most_likely(factor)
    np.testing.assert_allclose([fitted.shape, fitted.rate], [37.5, 4.0], rtol=1e-9)


def test_a_point_has_a_prior_of_the_largest_shape():
    point = SimpleNamespace(mean=np.full(3, 2.0), mean_log=np.full(3, np.log(2.0)))
    assert most_likely(point).shape == LARGEST_SHAPE


def test_priors_are_fitted_from_the_iteration_on_and_bounds_do_not_fall(monkeypatch):
    rule = DirichletWeights(3.0, 1.5)
    model = CompositeKernelClassification.example(sigma=2.0, varsigma=0.5, combination=rule)
    made, sound = [], type_two.update

    def noted(data, state):
        after = sound(data, state)
        made.append((data.priors, after))
        return after

    monkeypatch.setattr(type_two, "update", noted)
    n = len(model.coords["kernel"])
    settings = {"type_two_from": 7, "max_iterations": 40, "draws": 5, "seed": 1}
    fitted = fit_type_two(model, [np.full(n, 1 / n), np.eye(n)[0]], **settings)
    assert len(made) == 80
    for half in (made[:40], made[40:]):
        assert all(priors["phi"] == Gamma(2.0, 0.5) for priors, _ in half[:7])
        assert all(priors["varphi"] == Gamma(3.0, 1.5) for priors, _ in half[:7])
        # The prior of each iteration is that of the factors before it.
        for (_, before), (priors, _) in pairwise(half[6:]):
            assert priors["phi"] == most_likely(before.phi)
            assert priors["varphi"] == most_likely(before.weights.rho)
        bounds = np.array([state.objective for _, state in half])
        assert (np.diff(bounds) > -1e-8 * np.abs(bounds[1:])).all()
    assert fitted.bounds.tolist() == [made[39][1].objective, made[79][1].objective]
    np.testing.assert_array_equal(fitted.weights[1], made[79][1].weights.mean)
    assert fitted.result["posterior"]["beta"].shape == (1, 5, n)
