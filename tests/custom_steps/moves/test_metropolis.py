import numpy as np
import pytest
from scipy import stats

from family import assert_ks, assert_z
from kernelzoo.custom_steps.moves import metropolis as sm

MU, LAM = 2.0, 1.5


def prior_draw(n_kernels, rng):
    rho = rng.gamma(MU, 1 / LAM, n_kernels)
    log_g = np.log(rng.gamma(rho + 1)) - rng.exponential(size=n_kernels) / rho
    log_beta = log_g - np.logaddexp.reduce(log_g)
    return np.exp(log_beta), rho


def observe(beta, rng):
    """Data y ~ N(A beta, I) and their log-likelihood: any function of beta will do."""
    a = np.linspace(-2.0, 3.0, 4 * len(beta)).reshape(4, -1) ** 2
    y = a @ beta + rng.standard_normal(4)
    return lambda b: -0.5 * float(((y - a @ b) ** 2).sum())


def functionals(beta, rho, log_likelihood):
    log_beta = np.log(np.maximum(beta, 1e-300))
    return np.array(
        [
            *beta,
            *np.log(rho),
            *rho,
            beta @ beta,
            log_beta.clip(-20).sum(),
            np.log(rho) @ log_beta.clip(-20),
            rho @ beta,
            np.tanh(log_likelihood(beta)),
            beta @ (rho > 1),
        ]
    )


def joint_test(n_kernels, replicates=1_500, sweeps=3, seed=1):
    """Getting it right: after sweeps from (prior, data | prior), the joint law is unchanged.

    Independent replicates; means are compared through paired differences, margins by KS.
    """
    rng = np.random.default_rng(seed)
    weights, concentrations = (
        sm.initial_weight_tuning(n_kernels),
        sm.initial_concentration_tuning(n_kernels),
    )
    differences, rhos = [], []
    for _ in range(replicates):
        beta, rho = prior_draw(n_kernels, rng)
        log_likelihood = observe(beta, rng)
        before = functionals(beta, rho, log_likelihood)
        for _ in range(sweeps):
            beta, _ = sm.update_weights(beta, rho, log_likelihood, weights, rng, 2)
            rho, _ = sm.update_concentrations(rho, beta, MU, LAM, concentrations, rng, 8)
        differences.append(functionals(beta, rho, log_likelihood) - before)
        rhos.append(rho)
    differences = np.array(differences)
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    for column in np.array(rhos).T:
        assert_ks(column, stats.gamma(MU, scale=1 / LAM).cdf)


@pytest.mark.parametrize("n_kernels", [2, 3])
def test_joint_law_is_invariant(n_kernels):
    joint_test(n_kernels)


def test_wrong_dirichlet_ratio_is_detected(monkeypatch):
    """Planted bug: the exponents rho - 1 of the density, without the log-ratios' Jacobian."""
    monkeypatch.setattr(sm, "log_weights_density", lambda lb, rho: float((rho - 1) @ lb))
    with pytest.raises(AssertionError):
        joint_test(2, replicates=750)


def test_missing_jacobian_of_the_concentrations_is_detected(monkeypatch):
    correct = sm.log_concentration_density
    monkeypatch.setattr(
        sm, "log_concentration_density", lambda x, g, mu, lam: correct(x, g, mu - 1, lam)
    )
    with pytest.raises(AssertionError):
        joint_test(2, replicates=750)


def test_inputs_are_not_modified():
    rng = np.random.default_rng(1)
    beta, rho = prior_draw(3, rng)
    kept = beta.copy(), rho.copy()
    sm.update_weights(beta, rho, observe(beta, rng), sm.initial_weight_tuning(3), rng, 5)
    sm.update_concentrations(rho, beta, MU, LAM, sm.initial_concentration_tuning(3), rng, 5)
    np.testing.assert_array_equal(beta, kept[0])
    np.testing.assert_array_equal(rho, kept[1])


def narrow(beta):
    return -0.5 * float((((beta - [0.2, 0.5, 0.3]) / 0.002) ** 2).sum())


def test_adaptation_reaches_its_targets():
    """On a narrow likelihood untuned proposals are almost never accepted, tuned ones are."""
    rng = np.random.default_rng(1)
    weights, concentrations = sm.initial_weight_tuning(3), sm.initial_concentration_tuning(3)
    beta, rho = np.array([0.2, 0.5, 0.3]), np.ones(3)
    _, untuned = sm.update_weights(beta, rho, narrow, weights, rng, 1_000)
    assert untuned < 0.02
    accepted = []
    for _ in range(3_000):
        beta, rate = sm.update_weights(beta, rho, narrow, weights, rng, 2)
        rho, rates = sm.update_concentrations(rho, beta, MU, LAM, concentrations, rng, 2)
        weights = sm.adapt_weights(weights, beta, rate)
        concentrations = sm.adapt_concentrations(concentrations, rates)
        accepted.append([rate, *rates])
    tuned = np.mean(accepted[-1_000:], axis=0)
    assert 0.2 < tuned[0] < 0.4
    assert ((tuned[1:] > 0.34) & (tuned[1:] < 0.54)).all()


def test_corner_weights_stay_finite():
    rng = np.random.default_rng(1)
    beta, rho = np.array([1.0, 0.0]), np.array([1e-3, 1e-3])
    with np.errstate(all="raise", under="ignore"):
        for _ in range(200):
            beta, _ = sm.update_weights(
                beta, rho, lambda b: 0.0, sm.initial_weight_tuning(2), rng, 2
            )
            rho, _ = sm.update_concentrations(
                rho, beta, MU, LAM, sm.initial_concentration_tuning(2), rng, 2
            )
            assert np.isfinite(beta).all()
            assert (beta > 0).all()
            assert np.isfinite(rho).all()


def test_many_moves_of_concentrations_have_their_conditional(monkeypatch):
    """Bug: later moves compare with the density of a point that was left."""
    monkeypatch.setattr(sm, "log_gamma_draw", lambda shape, rng: 0.0)
    chains, log_gamma = 4_000, np.log(0.4)
    tuning, rng = sm.initial_concentration_tuning(chains), np.random.default_rng(1)
    beta = np.full(chains, np.exp(log_gamma))
    # From the mode such moves would be right: with its density all others are compared well.
    start = np.full(chains, 6.0)
    rho, _ = sm.update_concentrations(start, beta, MU, LAM, tuning, rng, 200)
    grid = np.linspace(-15.0, 5.0, 20_001)
    density = np.exp(sm.log_concentration_density(grid, log_gamma, MU, LAM))
    share = density.cumsum() / density.sum()
    assert_ks(np.log(rho), lambda log_rho: np.interp(log_rho, grid, share))
