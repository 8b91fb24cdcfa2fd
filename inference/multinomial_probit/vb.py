r"""Variational Bayes for the multinomial probit with several kernels (Damoulas & Girolami 2009).

Mean field q(Y) q(W) q(zeta) q(beta) q(rho) for the model augmented with utilities y_n ~ N(f_n, I),
t_n = argmax y_n, by coordinate ascent on the bound of eq 5. With G(B) = sum_ij B_ij K_i'K_j and
K_bar = sum_s E[beta_s] K_s:

| factor | paper | here |
|---|---|---|
| Y | eqs 6-8, B.1: normals truncated to cones | `log_probability_and_gradient`, exact quadrature |
| W | eqs 9-10, B.2-B.3: V_c, mean V_c K_bar'E[y_c] | B = E[beta beta'], not E[beta]E[beta]' |
| Z_c in V_c | eq 10, B.3: "expected variances" | E[1/zeta_c] for the inverse |
| zeta | eq 11 | 1/zeta ~ Gamma(tau + 1/2, upsilon + E[w^2]/2) |
| beta | appendix B.4, importance sampling | quadrature (`simplex_factor`), with the V_c terms |
| rho | appendix B.4, importance sampling | `concentration_factor` with E[log beta] |
| beta, binary | not derived | `binary_factor`, all 2^S states |
| beta, product; theta | appendix B.4, importance sampling | `vb_kernel_parameters`, jointly |
| pi, chi | importance sampling | exact given beta, without a factor |

Errors of mean field, measured on 24 objects against Gibbs (`test_agreement.py` has bounds):
contrasts of W shrink towards zero by up to .8 posterior standard deviations, the weights' means are
off by .6, and the standard deviations are .2 to .45 (contrasts) and .3 (weights) of the true ones.

The bound includes all factors and never falls, except for more than three weights by the error of
the quadrature when new points are placed: at most .001 (S = 4), .004 (S = 6), .012 (S = 8) on small
problems. The printed Algorithm 1 has E[beta] for beta in V_c and in Q(rho), leaves the covariance
of W out of Q(beta), and monitors E.5-E.7, which may fall; `studies.damoulas2009_printed` has it.

One iteration costs C Cholesky inverses of order M and O(S^2 M^2 + S N M C + N C^1.5); the products
K_i'K_j take S (S + 1) / 2 M x M matrices of memory. From about 300 objects with Gram matrices on,
the inverses are kept (C more matrices, at most 1 GB), and all factors except the covariances of W
are updated up to 6 times more with them: on 700 digits the ascent takes 0.6 of the time.

Iterations are accelerated (`variational.ascent`), except those with exponents or kernel parameters,
which would end at lower maxima.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from ...models.combinations.normal_coordinates import (
    draw_hyperparameters,
    log_hyperparameter_density,
)
from ...models.combinations.sums import Mean, WeightedSum
from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, Positive, PositiveOrInf
from ..engine.engine import Run
from ..engine.result import VariationalOutput
from ..variational.ascent import FIRST_ROUND, ascended, multistart_ascent
from ..variational.concentration import check_prior
from ..variational.factors import precision_factor, why_not
from ..variational.simplex import SimplexFactor, warn_of_imprecision
from .vb_updates import COORDINATES, RULES, Data, State, start, update

__all__ = ["Approximation", "fit_multinomial_probit", "path_of_scales"]

type Array = npt.NDArray[np.float64]

# Largest remaining increase, in nats, for up to 200 contrasts (objects times classes minus one).
REMAINING, CONTRASTS = 0.01, 200


def unsupported(model: MultinomialProbit) -> str | None:
    """Why VB does not apply to a model; None when it does."""
    if isinstance(model.upsilon, LearnedScale):
        return "it cannot learn upsilon; give a number, which kz.select can choose"
    rule, rules = model.combination, list[type](RULES)
    if isinstance(rule, WeightedSum) and hasattr(rule, "variational_factor"):
        rules.append(type(rule))
    return why_not(model, rules, " and weighted sums with a method variational_factor")


def fit_multinomial_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf | None = None,
    starts: Count | None = None,
) -> VariationalOutput:
    """Fit q by coordinate ascent from several starts; `VB` explains the settings.

    When interrupted: the output so far, unconverged. Raises ValueError for priors Mean(mu, lam)
    beyond the integrals over the concentrations, FloatingPointError when no start has a finite
    objective, and LinAlgError when the kernels' scale makes a covariance numerically singular.
    """
    model.check_stand_ins()
    contrasts = len(model.coords["obs"]) * max(model.n_classes - 1, 2)
    remaining = REMAINING * max(1.0, contrasts / CONTRASTS) if remaining is None else remaining
    data, rule = Data.of(model), model.combination
    if isinstance(rule, Mean):
        check_prior(rule.mu, rule.lam, rule, ("mu", "lam"), "VB on MultinomialProbit")
    result = multistart_ascent(
        [partial(start, data)],
        partial(update, data),
        run,
        len(model.coords["kernel"]),
        known=None if model.composition.learned else model.composition.known,
        starts=starts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        first_round=FIRST_ROUND["probit"],
        # With exponents or kernel parameters, an accelerated ascent ends at lower maxima.
        coordinates=None if data.known is None else COORDINATES,
    )
    if isinstance(result.state.beta, SimplexFactor):
        warn_of_imprecision(result.state.beta)
    approximation = Approximation(data, result.state)
    return VariationalOutput(
        elbo=result.histories,
        best=result.best,
        converged=result.converged,
        parameters=approximation.parameters(model),
        sample=approximation.sample,
    )


def path_of_scales(
    model: MultinomialProbit, scales: Sequence[float]
) -> Iterator[Callable[[int, np.random.Generator], Any]]:
    """Fit q for one upsilon after another, each from the last solution; yield its `sample`."""
    n_kernels = len(model.coords["kernel"])
    data = Data.of(model)
    # The start does not depend on upsilon.
    state, before = start(data, np.full(n_kernels, 1 / n_kernels)), None
    for upsilon in scales:
        data = replace(data, upsilon=upsilon)
        if before is not None:
            rate = state.zeta_rate + (upsilon - before)
            state = replace(state, zeta_rate=rate, objective=-np.inf)
        state, before = ascended(state, partial(update, data), COORDINATES), upsilon
        yield Approximation(data, state).sample


@dataclass(frozen=True)
class Approximation:
    """The distribution q of a state."""

    data: Data
    state: State

    def parameters(self, model: MultinomialProbit) -> xr.Dataset:
        """Parameters of q as a Dataset."""
        state = self.state
        shape = self.data.tau + 0.5
        regressor, kernel = ("class", "basis"), ("kernel",)
        variables = {
            "W_mean": (regressor, state.W_mean),
            "W_sd": (regressor, np.sqrt(state.W_var)),
            "zeta_shape": ((), shape),
            "zeta_rate": (regressor, state.zeta_rate),
        }
        if len(state.utilities.mean):
            variables["y_mean"] = ("obs", "class"), state.utilities.mean
        if state.beta is not None:
            variables |= {
                "beta_mean": (kernel, state.beta.mean),
                "beta_sd": (kernel, state.beta.sd),
            }
        if isinstance(state.beta, SimplexFactor) and state.rho is not None:
            variables |= {
                "beta_mean_log": (kernel, state.beta.mean_log),
                "beta_ess": ((), state.beta.ess),
                "rho_mean": (kernel, state.rho.mean),
                "rho_sd": (kernel, state.rho.sd),
            }
        if state.psi is not None:
            points, weights = state.psi.expectation
            for name, values in self.data.family.coordinates.values(points).items():
                mean, of = weights @ values, kernel if name == "beta" else ("parameter",)
                variables[f"{name}_mean"] = (of, mean)
                variables[f"{name}_sd"] = (of, np.sqrt(weights @ (values - mean) ** 2))
        dims = {dim for variable in variables.values() for dim in variable[0]}
        coords = {dim: list(model.coords[dim]) for dim in sorted(dims)}
        return xr.Dataset(variables, coords=coords)

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of rho, beta, zeta, W and log q. O(C M^3 + draws C M^2)."""
        state = self.state
        out: dict[str, Array] = {}
        log_q = np.zeros(draws)
        if state.rho is not None:
            out["rho"] = state.rho.sample(draws, rng)
            log_q += state.rho.log_density(out["rho"])
        if state.beta is not None:
            out["beta"] = state.beta.sample(draws, rng)
            log_q += state.beta.log_density(out["beta"])
        if state.psi is not None:
            psi, log_density = state.psi.sample(draws, rng)
            coordinates = self.data.family.coordinates
            values = coordinates.values(psi)
            out |= values
            # The Jacobian of psi is the ratio of the prior densities; the prior of psi is N(0, I).
            jacobian = coordinates.log_density(values)
            log_q += log_density + jacobian - stats.norm.logpdf(psi).sum(axis=1)
            if coordinates.n_exponents:
                # The exponents' hyperparameters are exact given the exponents.
                rates = coordinates.a, coordinates.b
                out["pi"], out["chi"] = draw_hyperparameters(out["beta"], *rates, rng)
                densities = log_hyperparameter_density(out["pi"], out["chi"], out["beta"], *rates)
                log_q += densities.sum(axis=1)
        shape = self.data.tau + 0.5
        inverse = rng.gamma(shape, size=(draws, *state.zeta_rate.shape))
        out["zeta"] = state.zeta_rate / inverse
        # An inverse gamma density, from the Gamma variable that was drawn.
        of_zeta = (shape + 1) * np.log(inverse) - inverse - np.log(state.zeta_rate)
        log_q += of_zeta.sum(axis=(1, 2)) - state.zeta_rate.size * gammaln(shape)
        out["W"] = np.empty((draws, *state.W_mean.shape))
        for c, mean in enumerate(state.W_mean):
            factor, pivots = precision_factor(state.W_gram, state.W_precision[c])
            noise = rng.normal(size=(len(mean), draws))
            out["W"][:, c] = mean + solve_triangular(factor, noise, lower=True, trans="T").T
            log_q += np.log(pivots).sum() - 0.5 * np.einsum("md,md->d", noise, noise)
        log_q -= 0.5 * state.W_mean.size * np.log(2 * np.pi)
        return out, log_q
