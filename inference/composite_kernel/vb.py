r"""Variational Bayes on a composite kernel (Girolami & Rogers 2005, section 4).

Mean field Q(alpha) Q(phi) Q(gamma) Q(beta) Q(varphi). With f = K_beta alpha, B = E[beta beta'],
and a likelihood of precisions w_n and linear terms l_n, log p = sum_n l_n f_n - w_n f_n^2 / 2:

| factor | paper | here |
|---|---|---|
| alpha | N(m, Sigma), section 4.1, with E[beta] E[beta]' | with B |
| phi | Gamma(sigma + 1/2, varsigma + E[alpha^2] / 2) | the same |
| gamma | (N + 2 rho) / (E[e'e] + 2 rho) | 2 varrho in the denominator |
| beta | importance sampling from the prior | quadrature, `simplex_factor` |
| selection beta | not in the paper | all 2^K states |
| varphi | importance sampling from the prior | quadrature, `concentration_factor` |
| xi, section 4.4 | f(E[beta]) | xi_n^2 = E[f_n^2] = tr(B K_n' E[alpha alpha'] K_n) |

Regression has w = E[gamma], l = E[gamma] t. In classification Jaakkola's bound replaces the
likelihood, which lowers the bound: w = tanh(xi / 2) / (2 xi), l = t - 1/2.

The bound holds all terms and never falls with exact moments. For more than three kernels it may
fall by the error of the quadrature when new points are placed (see `simplex`).

Mean field neglects dependence: the standard deviations of beta are several times too small, and the
bound has several maxima in beta. It is nearly certain of selections where the posterior is not:
take Gibbs for inclusion probabilities. Hence the fit uses several starts, and the Pareto k-hat of
the result compares Q with the declaration's density.

With several outputs, E[f^2] and l f are summed over them: Q(beta), Q(phi) and Q(alpha) of all
outputs are one fit. Outputs that share nothing have a fit each.

Iterations are accelerated (`variational.anderson`), except in batches.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from ...models.combinations.sums import Binary, DirichletWeights, FixedWeights
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...models.kernels.dask_stack import DaskStack
from ...models.learned_scale import LearnedScale
from ...validation import Count, Positive, PositiveOrInf
from ..engine.engine import Run, setting_of_no_use
from ..engine.outputs import VariationalOutput
from ..variational.ascent import FIRST_ROUND, MultistartResult, ascended, multistart_ascent
from ..variational.binary import BinaryFactor, why_not
from ..variational.concentration import check_prior
from ..variational.gamma import Gamma
from ..variational.simplex import warn_of_imprecision
from .vb_batches import BatchedBernoulli
from .vb_dask import bernoulli_of_dask, gaussian_of_dask
from .vb_likelihoods import Bernoulli, Gaussian, Likelihood
from .vb_output import Approximation
from .vb_updates import COORDINATES, Data, State, start, update, update_in_turns

__all__ = ["fit_composite_kernel", "path_of_scales"]

# Rules of combination whose weights have a factor here.
RULES = FixedWeights, DirichletWeights, Binary


def unsupported(model: CompositeKernelRegression) -> str | None:
    if model.collapsed:
        return "it needs alpha in the declaration; declare it with collapsed=False"
    return other_weights(model)


def other_weights(model: CompositeKernelRegression | CompositeKernelClassification) -> str | None:
    if isinstance(model.varsigma, LearnedScale):
        return "it cannot learn varsigma; give a number, which kz.select can choose"
    return why_not(model, RULES)


def _priors(model: Any, owner: str) -> dict[str, Gamma]:
    """Priors of the precisions, and of the weights' concentrations if they are learned."""
    priors, rule = {"phi": Gamma(model.sigma, model.varsigma)}, model.combination
    if isinstance(rule, DirichletWeights) and rule.varphi is None:
        check_prior(rule.tau, rule.nu, rule, ("tau", "nu"), owner)
        priors["varphi"] = Gamma(rule.tau, rule.nu)
    return priors


def _likelihoods(
    model: CompositeKernelRegression | CompositeKernelClassification, batch: int | None
) -> tuple[list[Likelihood], dict[str, Gamma]]:
    """Likelihood of each independent part of a model, and the prior of its noise."""
    source = model.kernel_source
    if isinstance(model, CompositeKernelClassification):
        if isinstance(source, DaskStack):
            return [bernoulli_of_dask(model, source)], {}
        if batch is None:
            return [Bernoulli.of(model.design, model.label_codes)], {}
        return [BatchedBernoulli.of(model.design, model.label_codes, batch)], {}
    priors, targets = {"gamma": Gamma(model.rho, model.varrho)}, model.target_values
    shared_noise = model.shared != "weights" or not model.several
    if isinstance(source, DaskStack):
        return [gaussian_of_dask(model, source, shared_noise)], priors
    first = Gaussian.of(model.design, targets[:, 0] if model.apart else targets, shared_noise)
    others = targets.T[1:] if model.apart else ()
    return [first, *(first.with_targets(model.design, column) for column in others)], priors


def _check_batch(model: Any, batch: int | None, owner: str) -> None:
    """Raise unless batches, if any, can take turns."""
    if batch is not None and not isinstance(model, CompositeKernelClassification):
        raise setting_of_no_use("batch", owner, "sums over all objects are formed once")
    if batch is not None and not model.kernel_source.in_memory:
        raise setting_of_no_use("batch", owner, "kernels in a Dask array are read all at once")


def fit_composite_kernel(
    model: CompositeKernelRegression | CompositeKernelClassification,
    run: Run,
    *,
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf = 0.01,
    starts: Count | None = None,
    batch: Count | None = None,
) -> VariationalOutput:
    """Fit Q by coordinate ascent from several starts; `VB` explains the settings.

    Parameters
    ----------
    model : CompositeKernelRegression or CompositeKernelClassification
        Declaration with alpha, not collapsed.
    run : Run
        Seed and progress bar.

    Returns
    -------
    VariationalOutput
        Parameters of the best start; ``beta_mean_of_start`` (start, kernel) holds the last weights
        of every start. Outputs that share nothing have a best start each, and the bound is the sum
        of theirs. When interrupted: the output so far, unconverged.

    Raises
    ------
    ValueError
        For settings out of range, for `batch` in regression, and for priors
        DirichletWeights(tau, nu) with tau or nu outside .01..1e8 or tau / nu above 1e7.
    FloatingPointError
        When no start has a finite bound.
    LinAlgError
        When the kernels' scale makes a covariance numerically singular.

    Notes
    -----
    In regression an iteration costs a Cholesky inverse of order M and O(K^2 M^2), for each noise
    precision if there are several; the products K_i'K_j take K (K + 1) / 2 M x M matrices of
    memory. In classification it costs
    O(K N M^2 + M^3 + K^2 N M), and passes over blocks of 1,024 objects in threads, without a copy
    of the kernels; in B batches, O(K^2 N M^2 + B M^3), and the memory of regression.
    """
    owner = f"VB on {type(model).__name__}"
    _check_batch(model, batch, owner)
    likelihoods, of_noise = _likelihoods(model, batch)
    n_turns = 1 if batch is None else -(-len(model.coords["obs"]) // batch)
    priors = _priors(model, owner) | of_noise
    rule = None if isinstance(model.combination, FixedWeights) else model.combination
    n_functions, n_kernels = len(model.coords["function"]), len(model.coords["kernel"])

    def ascend(likelihood: Likelihood) -> _Ascended:
        data = Data(likelihood, priors, rule, isinstance(rule, Binary) and model.bias_apart)
        result = multistart_ascent(
            [partial(start, data, n_functions)],
            partial(update_in_turns, n_turns, data),
            run,
            n_kernels,
            known=None if model.learned else np.ones(1),
            starts=starts,
            max_iterations=max_iterations,
            tolerance=tolerance,
            remaining=remaining,
            rounds_from=FIRST_ROUND if batch is None else 1,
            # Anderson acceleration needs the same map in every iteration.
            coordinates=COORDINATES if batch is None else None,
        )
        if not isinstance(result.state.beta, BinaryFactor):
            warn_of_imprecision(result.state.beta)
        approximation = Approximation(data, result.state, model.several and not model.apart)
        parameters = approximation.parameters(model)
        if model.learned:
            ends = np.array([state.beta_mean[:n_kernels] for state in result.states])
            parameters["beta_mean_of_start"] = (("start", "kernel"), ends)
        return _Ascended(result, parameters, approximation.sample)

    fits = [ascend(likelihood) for likelihood in likelihoods]
    if model.apart:
        return _joined(fits, model)
    (fit,) = fits
    return VariationalOutput(
        elbo=fit.result.histories,
        best=fit.result.best,
        converged=fit.result.converged,
        parameters=fit.parameters,
        sample=fit.sample,
    )


def path_of_scales(
    model: CompositeKernelRegression | CompositeKernelClassification, scales: Sequence[float]
) -> Iterator[Callable[[int, np.random.Generator], Any]]:
    """Fit Q for one varsigma after another, each from the last solution; yield its `sample`."""
    (likelihood, *_), of_noise = _likelihoods(model, None)
    priors = _priors(model, f"VB on {type(model).__name__}") | of_noise
    rule: Any = None if isinstance(model.combination, FixedWeights) else model.combination
    n_kernels = len(model.coords["kernel"]) if model.learned else 1
    data = Data(likelihood, priors, rule, isinstance(rule, Binary) and model.bias_apart)
    state: State[Any] = start(
        data, len(model.coords["function"]), np.full(n_kernels, 1 / n_kernels)
    )
    before = None
    for scale in scales:
        data = replace(data, priors=priors | {"phi": Gamma(model.sigma, scale)})
        if before is not None:
            rate = np.asarray(state.phi.rate) + (scale - before)
            state = replace(state, phi=replace(state.phi, rate=rate), objective=-np.inf)
        state, before = ascended(state, partial(update, data), COORDINATES), scale
        yield Approximation(data, state, model.several).sample


class _Ascended(NamedTuple):
    """Result of one fit, the parameters of its Q, and draws from it."""

    result: MultistartResult[State[Any]]
    parameters: xr.Dataset
    sample: Callable[[int, np.random.Generator], tuple[dict[str, np.ndarray], np.ndarray]]


def _joined(fits: Sequence[_Ascended], model: pm.Model) -> VariationalOutput:
    """One output of independent fits, one an output of the regression."""
    best = [fit.result.histories[fit.result.best] for fit in fits]
    longest = max(map(len, best))
    bound = np.sum([np.pad(each, (0, longest - len(each)), mode="edge") for each in best], axis=0)
    outputs = pd.Index(list(model.coords["output"]), name="output")

    def sample(draws: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
        samples, log_q = zip(*(fit.sample(draws, rng) for fit in fits), strict=True)
        stacked = {name: np.stack([each[name] for each in samples], axis=1) for name in samples[0]}
        return stacked, np.sum(log_q, axis=0)

    return VariationalOutput(
        elbo=[bound],
        best=0,
        converged=all(fit.result.converged for fit in fits),
        parameters=xr.concat([fit.parameters for fit in fits], outputs),
        sample=sample,
    )
