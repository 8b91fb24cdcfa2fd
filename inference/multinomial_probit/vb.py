r"""Variational Bayes for the multinomial probit with several kernels (Damoulas & Girolami 2009).

Mean field q(Y) q(W) q(zeta) q(beta) q(rho) for the model augmented with utilities y_n ~ N(f_n, I),
t_n = argmax y_n, by coordinate ascent on the bound of eq 5. With G(B) = sum_ij B_ij K_i'K_j and
K_bar = sum_s E[beta_s] K_s:

| factor | paper | here |
|---|---|---|
| Y | eqs 6-8, B.1: normals truncated to cones | `truncated_moments`, exact quadrature |
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
are updated up to 6 times more with them. This needs a fifth of the iterations, at 1.4 times the
cost of each.

Iterations are accelerated (`variational.anderson`), except in batches and those with exponents or
kernel parameters, which would end at lower maxima. On 43 problems of 33 to 160
objects, of this model and of the composite-kernel models, acceleration reached the same bound as
plain iterations or a higher one, in 4 (median) to 20 times fewer iterations.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from ...models.combinations.sums import Mean, WeightedSum
from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, Positive, PositiveOrInf, argument_error
from ..engine.engine import Run, setting_of_no_use
from ..engine.outputs import VariationalOutput
from ..variational.ascent import FIRST_ROUND, ascended, multistart_ascent
from ..variational.binary import why_not
from ..variational.concentration import check_prior
from ..variational.simplex import SimplexFactor, warn_of_imprecision
from .vb_inner_steps import MOST_KEPT
from .vb_output import Approximation
from .vb_updates import COORDINATES, RULES, Data, start, update

__all__ = ["fit_multinomial_probit", "path_of_scales"]

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


def _check_batches(model: MultinomialProbit, owner: str) -> None:
    """Raise unless batches can take turns."""
    if not model.kernel_source.in_memory:
        raise setting_of_no_use("batch", owner, "kernels in a Dask array are read all at once")
    n_basis = len(model.coords["basis"])
    if len(model.composition.coordinates):
        reason = f"{model.variant} has exponents or kernel parameters"
        raise setting_of_no_use("batch", owner, reason)
    if model.n_classes * n_basis**2 > MOST_KEPT:
        got = f"{model.n_classes} of {n_basis} x {n_basis} numbers"
        rule = "left out unless the covariances of the regressors fit into 1 GB"
        raise argument_error("batch", owner, rule, got)


def fit_multinomial_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf | None = None,
    starts: Count | None = None,
    begin: Literal["zero", "random"] = "zero",
    batch: Count | None = None,
) -> VariationalOutput:
    """Fit q by coordinate ascent from several starts; `VB` explains the settings.

    Parameters
    ----------
    model : MultinomialProbit
    run : Run
        Seed and progress bar.

    Returns
    -------
    VariationalOutput
        When interrupted: the output so far, unconverged.

    Raises
    ------
    ValueError
        For settings out of range, and for priors Mean(mu, lam) with mu or lam outside .01..1e8 or
        mu / lam above 1e7.
    FloatingPointError
        When no start has a finite objective.
    LinAlgError
        When the kernels' scale makes a covariance numerically singular.
    """
    owner = "VB on MultinomialProbit"
    model.check_stand_ins()
    contrasts = len(model.coords["obs"]) * max(model.n_classes - 1, 2)
    remaining = REMAINING * max(1.0, contrasts / CONTRASTS) if remaining is None else remaining
    n_kernels, rule = len(model.coords["kernel"]), model.combination
    if batch is not None:
        _check_batches(model, owner)
    data = Data.of(model, batch)
    if isinstance(rule, Mean):
        check_prior(rule.mu, rule.lam, rule, ("mu", "lam"), owner)
    # With exponents or kernel parameters, an accelerated ascent ends at lower maxima.
    accelerated = data.known is not None and batch is None
    result = multistart_ascent(
        [partial(start, data, rng=run.rng(2), random=begin == "random")],
        partial(update, data),
        run,
        n_kernels,
        known=None if data.learned else data.family.composition.known,
        starts=starts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        rounds_from=FIRST_ROUND if batch is None else 1,
        coordinates=COORDINATES if accelerated else None,
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
