"""A paper added from outside the package: a normal sample.

Its prior is the conjugate one.
"""

from contextlib import suppress

import numpy as np
import pymc as pm
from scipy import special, stats
from xarray import Dataset

from kernelzoo import inference
from kernelzoo.custom_steps import GibbsBlock
from kernelzoo.models import Declaration
from kernelzoo.validation import Positive


class NormalSample(Declaration):
    """Normal sample: x_n ~ N(mu, 1 / tau).

    The prior is tau ~ Gamma(a, b), mu ~ N(m, 1 / (k tau)).
    """

    def __init__(self, x, *, m=0.0, k=1.0, a=2.0, b=2.0):
        super().__init__(coords={"obs": np.arange(len(x))})
        self.prior = m, k, a, b
        x = np.asarray(x, dtype=float)
        with self:
            observed = pm.Data("data", x, dims="obs")
            tau = pm.Gamma("tau", alpha=a, beta=b)
            mu = pm.Normal("mu", m, tau=k * tau)
            pm.Normal("x", mu, tau=tau, observed=observed, dims="obs")
        self.seal()

    @property
    def posterior(self):
        """The prior's m, k, a, b after the data."""
        x, (m, k, a, b) = self["data"].get_value(), self.prior
        k_n, mean = k + len(x), x.mean()
        scatter = ((x - mean) ** 2).sum()
        scatter += k * len(x) * (mean - m) ** 2 / k_n
        m_n = (k * m + x.sum()) / k_n
        return m_n, k_n, a + len(x) / 2, b + scatter / 2


def log_evidence(model: NormalSample) -> float:
    (_, k, a, b), (_, k_n, a_n, b_n) = model.prior, model.posterior
    prior = a * np.log(b) - special.gammaln(a) + 0.5 * np.log(k)
    posterior = a_n * np.log(b_n) - special.gammaln(a_n)
    posterior += 0.5 * np.log(k_n)
    return prior - posterior + (a - a_n) * np.log(2 * np.pi)


def exact(model, run):
    """Draw tau, then mu given tau."""
    m, k, a, b = model.posterior

    def sample(draws, rng):
        tau = rng.gamma(a, 1 / b, size=draws)
        return {"tau": tau, "mu": rng.normal(m, 1 / np.sqrt(k * tau))}

    evidence = log_evidence(model)
    return inference.ExactOutput(sample, log_evidence=evidence)


class NormalGibbs(GibbsBlock):
    """Redraw mu given tau, then tau given mu."""

    def sweep(self, values, rng):
        m, k, a, b = self.posterior
        mu = rng.normal(m, 1 / np.sqrt(k * values["tau"]))
        rate = b + 0.5 * k * (mu - m) ** 2
        return {"mu": mu, "tau": rng.gamma(a + 0.5, 1 / rate)}, {}


def gibbs(model, run):
    """One block for both variables."""
    step = NormalGibbs(["mu", "tau"], model=model)
    step.posterior = model.posterior
    return [step]


def variational(
    model,
    run,
    *,
    tolerance: Positive = 1e-10,
    first_rate: Positive | None = None,
):
    """Fit q(mu) q(tau) by coordinate ascent.

    Parameters
    ----------
    tolerance : float, default=1e-10
        The ascent ends when the bound gains less.
    first_rate : float, optional
        Rate of q(tau) at the start. By default b of the posterior.
    """
    m, k, a, b = model.posterior
    rate, elbo, converged = first_rate or b, [], False
    # When the time is over or the user stops it, the ascent ends with
    # what it has.
    with suppress(KeyboardInterrupt), run.track(None, "VB") as bar:
        while not converged:
            q_mu = stats.norm(m, np.sqrt(rate / (k * (a + 0.5))))
            rate = b + 0.5 * k * q_mu.var()
            q_tau = stats.gamma(a + 0.5, scale=1 / rate)
            # The density of x, mu and tau is the evidence times that of
            # the posterior.
            log_p = a * np.log(b) - special.gammaln(a)
            log_p += 0.5 * np.log(k / (2 * np.pi))
            log_tau = special.digamma(a + 0.5) - np.log(rate)
            log_p += (a - 0.5) * log_tau - q_tau.mean() * rate
            entropy = q_mu.entropy() + q_tau.entropy()
            elbo.append(log_evidence(model) + log_p + entropy)
            # A bound that is NaN ends the loop, too: `fit` refuses it.
            gain = np.diff(elbo)[-1] if len(elbo) > 1 else np.inf
            converged = not abs(gain) >= tolerance
            bar.advance()

    def sample(draws, rng):
        mu = q_mu.rvs(draws, random_state=rng)
        tau = q_tau.rvs(draws, random_state=rng)
        log_q = q_mu.logpdf(mu) + q_tau.logpdf(tau)
        return {"mu": mu, "tau": tau}, log_q

    q = Dataset({"mu_sd": q_mu.std(), "tau_mean": q_tau.mean()})
    bounds = [np.array(elbo)]
    return inference.VariationalOutput(bounds, 0, converged, q, sample)


def predict(model: NormalSample, result, kernels_new, *, keep_draws):
    """Mean and standard deviation of one more observation."""
    drawn = result["posterior"].to_dataset()
    variance = drawn["mu"].var() + (1 / drawn["tau"]).mean()
    mean = drawn["mu"].mean()
    return Dataset({"mean": mean, "target_sd": variance**0.5})


def identified(result, variant):
    """Compare engines on the standardised mean."""
    drawn = result["posterior"].to_dataset()
    standardised = drawn["mu"] * np.sqrt(drawn["tau"])
    return Dataset({"standardised": standardised})


inference.add_paper(
    inference.Paper(
        NormalSample,
        exact=inference.Algorithm(exact),
        gibbs=inference.Algorithm(gibbs),
        vb=inference.Algorithm(variational),
        predict=predict,
        identified=identified,
        identified_reads=["mu", "tau"],
        log_evidence=log_evidence,
    )
)
