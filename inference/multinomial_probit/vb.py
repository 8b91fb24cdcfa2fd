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
| beta | appendix B.4, importance sampling | `simplex_factor`, the V_c terms included |
| rho | appendix B.4, importance sampling | `concentration_factor` with E[log beta] |
| beta, binary | not derived | `binary_factor`, all 2^S states |
| beta, product; theta | appendix B.4, importance sampling | `vb_kernel_parameters`, jointly |
| pi, chi | importance sampling | exact given beta, without a factor |

Errors of mean field, measured on 24 objects against Gibbs (`test_agreement.py` has bounds):
contrasts of W shrink towards zero by up to .8 posterior standard deviations, the weights' means are
off by .6, and the standard deviations are .2 to .45 (contrasts) and .3 (weights) of the true ones.

The bound includes all factors and never falls, except for more than three weights by the error of
the quadrature when new points are placed: at most .001 (S = 4), .004 (S = 6), .012 (S = 8) on small
problems. `weights="plug-in"` is the printed Algorithm 1: E[beta] replaces beta in V_c and in
Q(rho), Q(beta) leaves out the covariance of W, and the monitored objective is E.5-E.7, the sum of
E.1-E.4, with Z = 1/E[1/zeta], which may fall. Exponents and kernel parameters then enter by their
expectations ("first order"), Q(psi) leaves out the covariance of W, and E.5-E.7 leave out the
priors of these parameters.

One iteration costs C Cholesky inverses of order M and O(S^2 M^2 + S N M C + N C^1.5); the products
K_i'K_j take S (S + 1) / 2 M x M matrices of memory. From about 300 objects with Gram matrices on,
the inverses are kept (C more matrices, at most 1 GB), and all factors except the covariances of W
are updated up to 6 times more with them. This needs a fifth of the iterations, at 1.4 times the
cost of each.

Iterations are accelerated (`variational.anderson`), except those of the printed equations and those
with exponents or kernel parameters, which would end at lower maxima. On 43 problems of 33 to 160
objects, of this model and of the composite-kernel models, acceleration reached the same bound as
plain iterations or a higher one, in 4 (median) to 20 times fewer iterations.
"""

from functools import partial, singledispatch
from typing import Literal

import numpy as np

from ...models.combinations.normal_coordinates import NormalCoordinates
from ...models.combinations.sums import Combination, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...user_warnings import warn_user
from ...validation import Count, Positive, PositiveOrInf, argument_error
from ..engine.applicability import combination_unknown_to, setting_of_no_use
from ..engine.engine import Run
from ..engine.outputs import VariationalOutput
from ..engine.vb import VB
from ..variational.ascent import (
    FIRST_ROUND,
    multistart_ascent,
)
from ..variational.binary import too_many
from ..variational.concentration import check_prior
from ..variational.simplex import SimplexFactor, warn_of_imprecision
from .vb_inner_steps import MOST_KEPT
from .vb_updates import COORDINATES, Approximation, Data, start, update, update_weights

__all__ = ["fit_multinomial_probit"]

type Weights = Literal["mean-field", "plug-in"]
type Begin = Literal["zero", "random"]

# Largest number of iterations of a start, and largest remaining increase, in nats, for up to 200
# contrasts (objects times classes minus one). The objective of the printed equations may fall, so
# its remaining increase cannot be estimated, and a start that cycles must end by its change alone.
ENDS: dict[Weights, tuple[int, float]] = {"mean-field": (5000, 0.01), "plug-in": (500, np.inf)}
# Fewer effective samples leave errors of more than a tenth of a standard deviation.
LEAST_ESS = 100


_other_combination = combination_unknown_to(update_weights)


def _unless(model: MultinomialProbit) -> str | None:
    """Why VB does not apply to a model; None when it does."""
    return _other_combination(model) or too_many(model.combination, len(model.coords["kernel"]))


@singledispatch
def _check_rule(rule: Combination, owner: str) -> None:
    """Raise unless the factors of a rule's weights are accurate for its prior."""


@_check_rule.register
def _(rule: Mean, owner: str) -> None:
    check_prior(rule.mu, rule.lam, rule, ("mu", "lam"), owner)


def _check_batches(model: MultinomialProbit, weights: Weights, owner: str) -> None:
    """Raise unless batches can take turns."""
    if model.blocks is not None:
        raise setting_of_no_use("batch", owner, "kernels in Dask's blocks are read all at once")
    n_kernels, n_basis = len(model.coords["kernel"]), len(model.coords["basis"])
    moving = len(NormalCoordinates.of(model.combination, n_kernels, model.parametric))
    if weights == "plug-in" or moving:
        reason = f"{model.variant} has exponents or kernel parameters"
        if weights == "plug-in":
            reason = "the printed equations are for all objects"
        raise setting_of_no_use("batch", owner, reason)
    if model.n_classes * n_basis**2 > MOST_KEPT:
        got = f"{model.n_classes} of {n_basis} x {n_basis} numbers"
        rule = "left out unless the covariances of the regressors fit into 1 GB"
        raise argument_error("batch", owner, rule, got)


@VB.register(MultinomialProbit, unless=_unless, in_blocks=True)
def fit_multinomial_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    max_iterations: Count | None = None,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf | None = None,
    starts: Count | None = None,
    weights: Weights = "mean-field",
    begin: Begin = "zero",
    prior_samples: Count | None = None,
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
    model.check_parametric(owner)
    most, left = ENDS[weights]
    max_iterations = most if max_iterations is None else max_iterations
    contrasts = len(model.coords["obs"]) * max(model.n_classes - 1, 2)
    remaining = left * max(1.0, contrasts / 200) if remaining is None else remaining
    n_kernels = len(model.coords["kernel"])
    moving = NormalCoordinates.of(model.combination, n_kernels, model.parametric)
    if prior_samples is not None and not len(moving):
        raise setting_of_no_use(
            "prior_samples", owner, f"{model.variant} has no exponents or kernel parameters"
        )
    if batch is not None:
        _check_batches(model, weights, owner)
    data = Data.of(model, weights == "plug-in", prior_samples, batch)
    _check_rule(model.combination, owner)
    known = None if data.learned else data.family.composition.known
    # With exponents or kernel parameters, an accelerated ascent ends at lower maxima.
    accelerated = data.known is not None and not data.plug_in and batch is None
    ascended = multistart_ascent(
        [partial(start, data, rng=run.rng(2), random=begin == "random")],
        partial(update, data),
        run,
        n_kernels,
        known=known,
        starts=starts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        rounds_from=FIRST_ROUND if batch is None else 1,
        coordinates=COORDINATES if accelerated else None,
        monotone=not data.plug_in,
    )
    if isinstance(ascended.state.beta, SimplexFactor):
        warn_of_imprecision(ascended.state.beta)
    if prior_samples and ascended.state.psi is not None and ascended.state.psi.ess < LEAST_ESS:
        warn_user(
            f"VB's kernel parameters have {ascended.state.psi.ess:,.0f} effective samples of their "
            "prior: raise prior_samples, or leave it out for a normal factor."
        )
    approximation = Approximation(data, ascended.state)
    return VariationalOutput(
        elbo=ascended.histories,
        best=ascended.best,
        converged=ascended.converged,
        parameters=approximation.parameters(model),
        sample=approximation.sample,
    )
