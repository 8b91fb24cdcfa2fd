"""A paper added from outside the package: a normal sample under its conjugate prior."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy import special, stats
from xarray import Dataset

import kernelzoo as kz
from kernelzoo import inference
from kernelzoo.custom_steps import GibbsBlock
from kernelzoo.models import Declaration
from kernelzoo.validation import Positive


class NormalSample(Declaration):
    """tau ~ Gamma(a, b), mu ~ N(m, 1 / (k tau)), x_n ~ N(mu, 1 / tau)."""

    def __init__(self, x, *, m=0.0, k=1.0, a=2.0, b=2.0):
        super().__init__(coords={"obs": np.arange(len(x))})
        self.prior = m, k, a, b
        with self:
            observed = pm.Data("data", np.asarray(x, dtype=float), dims="obs")
            tau = pm.Gamma("tau", alpha=a, beta=b)
            mu = pm.Normal("mu", m, tau=k * tau)
            pm.Normal("x", mu, tau=tau, observed=observed, dims="obs")
        self.seal()

    @property
    def posterior(self):
        """The prior's m, k, a, b after the data."""
        x, (m, k, a, b) = self["data"].get_value(), self.prior
        scatter = ((x - x.mean()) ** 2).sum() + k * len(x) * (x.mean() - m) ** 2 / (k + len(x))
        return (k * m + x.sum()) / (k + len(x)), k + len(x), a + len(x) / 2, b + scatter / 2


def log_evidence(model: NormalSample) -> float:
    (_, k, a, b), (_, k_n, a_n, b_n) = model.prior, model.posterior
    prior, posterior = a * np.log(b) - special.gammaln(a), a_n * np.log(b_n) - special.gammaln(a_n)
    return prior - posterior + 0.5 * np.log(k / k_n) + (a - a_n) * np.log(2 * np.pi)


def exact(model, run):
    """Draw tau, then mu given tau."""
    m, k, a, b = model.posterior

    def sample(draws, rng):
        tau = rng.gamma(a, 1 / b, size=draws)
        return {"tau": tau, "mu": rng.normal(m, 1 / np.sqrt(k * tau))}

    return inference.ExactOutput(sample, log_evidence=log_evidence(model))


class NormalGibbs(GibbsBlock):
    """Redraw mu given tau, then tau given mu."""

    def sweep(self, values, rng):
        m, k, a, b = self.posterior
        mu = rng.normal(m, 1 / np.sqrt(k * values["tau"]))
        return {"mu": mu, "tau": rng.gamma(a + 0.5, 1 / (b + 0.5 * k * (mu - m) ** 2))}, {}


def gibbs(model, run):
    """One block for both variables."""
    step = NormalGibbs(["mu", "tau"], model=model)
    step.posterior = model.posterior
    return [step]


@dataclass(frozen=True, kw_only=True)
class NormalVB(kz.VB):
    """VB with a setting that the package's engines lack.

    Parameters
    ----------
    first_rate : float, optional
        Rate of q(tau) at the start. Default: b of the posterior.
    """

    first_rate: Positive | None = None


def variational(model, run, *, tolerance: Positive = 1e-10, first_rate: Positive | None = None):
    """Fit q(mu) q(tau) by coordinate ascent, until the bound gains less than `tolerance`."""
    m, k, a, b = model.posterior
    rate, elbo, converged = first_rate or b, [], False
    # When the time is over or the user stops it, the ascent ends with what it has.
    with suppress(KeyboardInterrupt), run.track(None, "VB") as bar:
        while not converged:
            q_mu = stats.norm(m, np.sqrt(rate / (k * (a + 0.5))))
            rate = b + 0.5 * k * q_mu.var()
            q_tau = stats.gamma(a + 0.5, scale=1 / rate)
            # The density of x, mu and tau is the evidence times that of the posterior.
            log_p = a * np.log(b) - special.gammaln(a) + 0.5 * np.log(k / (2 * np.pi))
            log_p += (a - 0.5) * (special.digamma(a + 0.5) - np.log(rate)) - q_tau.mean() * rate
            elbo.append(log_evidence(model) + log_p + q_mu.entropy() + q_tau.entropy())
            # A bound that is NaN ends the loop, too: `fit` refuses it.
            converged = len(elbo) > 1 and not abs(elbo[-1] - elbo[-2]) >= tolerance
            bar.advance()

    def sample(draws, rng):
        mu, tau = (q.rvs(draws, random_state=rng) for q in (q_mu, q_tau))
        return {"mu": mu, "tau": tau}, q_mu.logpdf(mu) + q_tau.logpdf(tau)

    parameters = Dataset({"mu_sd": q_mu.std(), "tau_mean": q_tau.mean()})
    return inference.VariationalOutput([np.array(elbo)], 0, converged, parameters, sample)


def predict(model: NormalSample, result, kernels_new, *, keep_draws):
    """Mean and standard deviation of one more observation."""
    drawn = result["posterior"].to_dataset()
    return Dataset(
        {
            "mean": drawn["mu"].mean(),
            "target_sd": (drawn["mu"].var() + (1 / drawn["tau"]).mean()) ** 0.5,
        }
    )


def identified(result, variant):
    """Compare engines on the standardised mean."""
    drawn = result["posterior"].to_dataset()
    return Dataset({"standardised": drawn["mu"] * np.sqrt(drawn["tau"])})


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
