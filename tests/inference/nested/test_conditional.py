"""The ratio of a particle is that of the declaration's density to the approximation's."""

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import cholesky

import composite_fixture
import kernelzoo as kz
from kernelzoo.inference.composite_kernel.nested import _likelihood
from kernelzoo.inference.engine.density import log_density
from kernelzoo.inference.nested.conditional import Conditional
from kernelzoo.inference.nested.coordinates import LogGamma

BETA = np.array([0.3, 0.7])


def composite(kind):
    known = {"combination": kz.combinations.FixedWeights(BETA), "sigma": 1.5, "varsigma": 0.6}
    stack, response = composite_fixture.KERNELS, composite_fixture.RESPONSE
    if kind == "regression":
        model = kz.CompositeKernelRegression(stack, response, rho=2.0, varrho=1.3, **known)
    else:
        model = kz.CompositeKernelClassification(stack, response > 0.5, **known)
    conditional = Conditional(_likelihood(model), 0.6, LogGamma.of(1.5), 2)

    def values(point):
        named = {"alpha": point.regressors[0], "phi": np.exp(point.log_precisions[0])}
        return named | ({"gamma": np.exp(point.own[0])} if len(point.own) else {})

    return model, conditional, values


CASES = {
    "regression": lambda: composite("regression"),
    "classification": lambda: composite("classification"),
}


def matrix(model):
    return model.design[0]


@pytest.mark.parametrize("name", CASES)
def test_ratio_is_declared_density_over_proposal(name):
    model, conditional, values = CASES[name]()
    rng, mode = np.random.default_rng(1), conditional.mode(matrix(model))
    size = conditional.n_regressors
    for _ in range(3):
        noise_of_z = rng.standard_normal(conditional.size)
        noise = rng.standard_normal(size)
        point, log_ratio = conditional.evaluate(matrix(model), mode, noise_of_z, noise)
        named = values(point)
        declared = log_density(model, {key: np.array([x]) for key, x in named.items()})[0]
        # The approximation, from its definition: z is normal, and so are regressors given z.
        log_phi = point.log_precisions.ravel()
        z = np.concatenate([conditional.coordinate.inverse(log_phi + np.log(0.6)), point.own])
        cov = np.linalg.inv(mode.root @ mode.root.T)
        proposal = stats.multivariate_normal(mode.z, cov).logpdf(z)
        precision = np.diag(np.exp(log_phi))
        sites = conditional.likelihood.sites_given(mode.sites, point.own)
        rows = np.einsum("ab,nm->namb", np.eye(len(sites.W[0])), matrix(model))
        rows = rows.transpose(0, 1, 3, 2).reshape(len(sites.W), len(sites.W[0]), -1)
        precision += np.einsum("nai,nab,nbj->ij", rows, sites.W, rows)
        mean = np.linalg.solve(precision, np.einsum("nai,na->i", rows, sites.linear))
        w = point.regressors.ravel()
        proposal += stats.multivariate_normal(mean, np.linalg.inv(precision)).logpdf(w)
        # From z to the declared variables: phi or zeta (both |dlog| = 1 / value), and gamma.
        proposal += np.sum(stats.gamma.logpdf(np.exp(log_phi), 1.5, scale=1 / 0.6) + log_phi)
        proposal -= stats.norm.logpdf(z[:size]).sum()
        proposal -= np.sum(log_phi if "phi" in named else -log_phi) + point.own.sum()
        assert log_ratio == pytest.approx(declared - proposal, abs=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_noise_of_a_point_gives_the_point(name):
    model, conditional, _ = CASES[name]()
    rng = np.random.default_rng(2)
    mode = conditional.mode(matrix(model))
    noise = rng.standard_normal(conditional.size + conditional.n_regressors)
    parts = np.split(noise, [conditional.size])
    point, log_ratio = conditional.evaluate(matrix(model), mode, *parts)
    found, same, same_ratio = conditional.locate(matrix(model), mode, point)
    np.testing.assert_allclose(found, noise, atol=1e-4)
    np.testing.assert_allclose(same.regressors, point.regressors)
    np.testing.assert_allclose(same.log_precisions, point.log_precisions, atol=1e-5)
    assert same_ratio == pytest.approx(log_ratio, abs=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_mode_has_no_slope_and_does_not_depend_on_its_start(name):
    """The evidence at the mode is stationary in z, for sites that are kept."""
    model, conditional, _ = CASES[name]()
    composite_kernel = matrix(model)
    mode = conditional.mode(composite_kernel)
    other = conditional.mode(0.5 * composite_kernel)
    again = conditional.mode(composite_kernel, other)
    np.testing.assert_allclose(again.z, mode.z, atol=0.1)
    np.testing.assert_allclose(again.log_evidence, mode.log_evidence, atol=0.05)


def test_precisions_are_redrawn_from_their_conditional():
    model, conditional, _ = composite("regression")
    mode = conditional.mode(matrix(model))
    point, _ = conditional.evaluate(matrix(model), mode, np.zeros(3), np.ones(2))
    rng = np.random.default_rng(3)
    drawn = np.array(
        [conditional.redraw_precisions(point, rng).log_precisions[0] for _ in range(4000)]
    )
    exact = stats.gamma(2.0, scale=1 / (0.6 + 0.5 * point.regressors[0, 0] ** 2))
    assert stats.kstest(np.exp(drawn[:, 0]), exact.cdf).pvalue > 1e-4


def test_curvatures_that_are_not_positive_are_raised():
    from kernelzoo.inference.nested.conditional import LEAST_CURVATURE, _positive_root

    matrix = np.array([[1.0, 2.0], [2.0, 1.0]])
    root = np.tril(_positive_root(matrix))
    assert np.linalg.eigvalsh(root @ root.T).min() > LEAST_CURVATURE - 1e-9
    np.testing.assert_allclose(
        np.tril(_positive_root(np.eye(2) + 0.1)), cholesky(np.eye(2) + 0.1, lower=True)
    )
