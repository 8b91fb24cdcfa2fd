"""The factors of the multinomial probit's mean field: their state, updates, and draws.

Equations and notation as in `multinomial_probit`, which runs these updates to convergence.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats
from scipy.linalg import blas, lapack, solve_triangular
from scipy.special import gammaln

from ...models.combination import Mean
from ...models.multinomial_probit import MultinomialProbit
from ...models.probit import truncated_moments
from .concentration import ConcentrationFactor, concentration_factor
from .simplex import SimplexFactor, simplex_factor

__all__ = ["Approximation", "Data", "State", "start", "update"]

type Array = npt.NDArray[np.float64]

# Smallest square of a Cholesky pivot, in units of the largest diagonal entry.
SINGULAR = 1e3 * np.finfo(float).eps


@dataclass(frozen=True)
class Data:
    """What the updates need of the model: K (S, N, M), labels, prior, and the products K_i'K_j."""

    design: Array
    labels: npt.NDArray[np.intp]
    n_classes: int
    tau: float
    upsilon: float
    prior: Mean | None
    plug_in: bool
    pairs: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
    products: Array
    fold: Array

    @classmethod
    def of(cls, model: MultinomialProbit, plug_in: bool) -> Self:
        """Collect them; the products cost O(S^2 N M^2)."""
        design = model.design
        pairs = np.triu_indices(len(design))
        products = np.empty((len(pairs[0]), design.shape[2], design.shape[2]))
        for k, (i, j) in enumerate(zip(*pairs, strict=True)):
            product = design[i].T @ design[j]
            products[k] = product if i == j else product + product.T
        ones = np.ones(products.shape[1:])
        fold = np.triu(ones) + np.triu(ones, 1)
        prior = model.combination if isinstance(model.combination, Mean) else None
        labels, n_classes = model.label_codes, model.n_classes
        tau, upsilon = model.tau, model.upsilon
        return cls(design, labels, n_classes, tau, upsilon, prior, plug_in, pairs, products, fold)

    def gram(self, weights: Array) -> Array:
        """G(B) = sum_ij B_ij K_i'K_j (M, M) for symmetric B (S, S)."""
        return np.tensordot(weights[self.pairs], self.products, axes=1)

    def traces(self, matrix: Array) -> Array:
        """tr(K_i'K_j matrix) (S, S) for a symmetric or folded matrix (M, M)."""
        out = np.empty((len(self.design), len(self.design)))
        # Transposition changes nothing; the order of the entries must be that of the products.
        half = self.products.reshape(len(self.products), -1) @ matrix.ravel()
        half[self.pairs[0] != self.pairs[1]] *= 0.5
        out[self.pairs] = half
        out[self.pairs[::-1]] = half
        return out

    def combined(self, weights: Array) -> Array:
        """Weighted sum of the kernels, sum_s weights_s K_s (N, M)."""
        return np.tensordot(weights, self.design, axes=1)


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the objective there.

    `W_precision` (C, M) and `W_weights` (S, S) are E[1/zeta] and the second moment of beta that
    q(W) was made of: with the data they give its covariances, which are not stored.
    """

    y_mean: Array
    W_mean: Array
    W_var: Array
    W_precision: Array
    W_weights: Array
    zeta_rate: Array
    beta_mean: Array
    beta_second: Array
    rho_mean: Array
    objective: float
    beta: SimplexFactor | None
    rho: ConcentrationFactor | None


def start(data: Data, weights: Array) -> State:
    """State before the first iteration: W = 0, zeta = 1, beta at `weights`."""
    n_obs = len(data.labels)
    shape = (data.n_classes, data.design.shape[2])
    _, y_mean = truncated_moments(np.zeros((n_obs, data.n_classes)), data.labels)
    second = np.outer(weights, weights)
    rho_mean = data.prior.mu / data.prior.lam if data.prior else np.nan
    return State(
        y_mean=y_mean,
        W_mean=np.zeros(shape),
        W_var=np.zeros(shape),
        W_precision=np.ones(shape),
        W_weights=second,
        zeta_rate=np.full(shape, data.tau + 0.5),
        beta_mean=weights,
        beta_second=second,
        rho_mean=np.full(len(weights), rho_mean),
        objective=-np.inf,
        beta=None,
        rho=None,
    )


def precision_factor(gram: Array, precision: Array) -> tuple[Array, Array]:
    """Lower Cholesky factor of gram + diag(precision), and its diagonal.

    In Fortran order; the upper part is undefined. Raises LinAlgError when rounding leaves nothing
    of the smallest pivot: its error is some eps times the largest entry.
    """
    # gram is symmetric: its transpose is it, in the order that LAPACK wants.
    matrix = gram.T.copy(order="F")
    diagonal = matrix.ravel(order="K")[:: len(gram) + 1]
    diagonal += precision
    largest = diagonal.max()
    factor, info = lapack.dpotrf(matrix, lower=True, clean=False, overwrite_a=True)
    pivots = np.diag(factor)
    if info or pivots.min() ** 2 < SINGULAR * largest:
        raise np.linalg.LinAlgError(
            "The covariance of the regressors is numerically singular: rescale the kernels (for "
            "example kernels.normalize('trace'), or features to unit variance); they differ from "
            "the prior's scale by too many digits."
        )
    return factor, pivots


def update(data: Data, state: State) -> State:
    """One iteration: W, zeta, beta, rho, Y, and the objective."""
    shape = data.tau + 0.5
    precision = shape / state.zeta_rate
    gram = data.gram(state.beta_second)

    # One triangle of the covariances is formed. Their sum, folded onto that triangle, is all that
    # later steps need: they take its inner products with symmetric matrices.
    target = state.y_mean.T @ data.combined(state.beta_mean)
    W_mean, W_var = np.empty_like(state.W_mean), np.empty_like(state.W_var)
    covariance = np.zeros_like(gram)
    log_det = 0.0
    for c in range(data.n_classes):
        factor, pivots = precision_factor(gram, precision[c])
        log_det -= 2 * np.log(pivots).sum()
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        W_var[c] = np.diag(inverse)
        W_mean[c] = blas.dsymv(1.0, inverse, target[c], lower=True)
        covariance += inverse.T
    covariance *= data.fold
    zeta_rate = data.upsilon + 0.5 * (W_mean**2 + W_var)

    scores = (data.design @ W_mean.T).reshape(len(data.design), -1)
    curvature = data.traces(W_mean.T @ W_mean + (0.0 if data.plug_in else covariance))
    new = replace(
        state,
        W_mean=W_mean,
        W_var=W_var,
        W_precision=precision,
        W_weights=state.beta_second,
        zeta_rate=zeta_rate,
    )
    if data.prior is not None:
        linear = scores @ state.y_mean.ravel()
        new = _update_weights(data.prior, data.plug_in, new, linear, curvature)

    f = (new.beta_mean @ scores).reshape(state.y_mean.shape)
    log_z, y_mean = truncated_moments(f, data.labels)
    if data.plug_in:
        spread = np.sum(data.gram(new.beta_second) * covariance)
        objective = printed_bound(log_z.sum(), log_det, shape / zeta_rate, W_mean, W_var, spread)
    else:
        objective = log_z.sum() - 0.5 * (np.sum(curvature * new.beta_second) - np.sum(f**2))
        objective += _regressors_bound(data, log_det, zeta_rate)
        if new.beta is not None and new.rho is not None:
            objective += new.beta.entropy + new.rho.log_normaliser
    return replace(new, y_mean=y_mean, objective=float(objective))


def _update_weights(
    prior: Mean, plug_in: bool, state: State, linear: Array, curvature: Array
) -> State:
    """q(beta), then q(rho)."""
    beta = simplex_factor(state.rho_mean, linear, curvature, near=state.beta)
    mean_log = np.log(beta.mean) if plug_in else beta.mean_log
    rho = concentration_factor(prior.mu, prior.lam, mean_log, near=state.rho)
    second = np.outer(beta.mean, beta.mean) if plug_in else beta.second_moment
    return replace(
        state, beta=beta, rho=rho, beta_mean=beta.mean, beta_second=second, rho_mean=rho.mean
    )


def _regressors_bound(data: Data, log_det: float, zeta_rate: Array) -> float:
    """E[log p(W | zeta) + log p(zeta)] + entropies of both; zeta's factor fresh after W's."""
    shape = data.tau + 0.5
    constant = 0.5 + data.tau * np.log(data.upsilon) - gammaln(data.tau) + gammaln(shape)
    return float(0.5 * log_det + zeta_rate.size * constant - shape * np.log(zeta_rate).sum())


def printed_bound(
    log_z: float, log_det: float, precision: Array, W_mean: Array, W_var: Array, spread: float
) -> float:
    """E.5-E.7 for the fixed Z = 1/precision; spread = sum_nc k_n'V_c k_n."""
    return float(
        0.5 * (W_mean.size + log_det)
        + log_z
        - 0.5 * np.sum(precision * (W_var + W_mean**2))
        + 0.5 * np.log(precision).sum()
        - 0.5 * spread
    )


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
            "y_mean": (("obs", "class"), state.y_mean),
        }
        if state.beta is not None and state.rho is not None:
            beta = state.beta
            variables |= {
                "beta_mean": (kernel, beta.mean),
                "beta_sd": (kernel, beta.sd),
                "beta_mean_log": (kernel, beta.mean_log),
                "beta_ess": ((), beta.ess),
                "rho_mean": (kernel, state.rho.mean),
                "rho_sd": (kernel, state.rho.sd),
            }
        dims = {dim for variable in variables.values() for dim in variable[0]}
        coords = {dim: list(model.coords[dim]) for dim in sorted(dims)}
        return xr.Dataset(variables, coords=coords)

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of rho, beta, zeta, W and log q. O(C M^3 + draws C M^2)."""
        state = self.state
        out: dict[str, Array] = {}
        log_q = np.zeros(draws)
        if state.beta is not None and state.rho is not None:
            out["rho"] = state.rho.sample(draws, rng)
            out["beta"] = state.beta.sample(draws, rng)
            log_q += state.rho.log_density(out["rho"]) + state.beta.log_density(out["beta"])
        shape = self.data.tau + 0.5
        out["zeta"] = state.zeta_rate / rng.gamma(shape, size=(draws, *state.zeta_rate.shape))
        log_q += stats.invgamma.logpdf(out["zeta"], shape, scale=state.zeta_rate).sum(axis=(1, 2))
        out["W"] = np.empty((draws, *state.W_mean.shape))
        gram = self.data.gram(state.W_weights)
        for c, mean in enumerate(state.W_mean):
            factor, pivots = precision_factor(gram, state.W_precision[c])
            noise = rng.normal(size=(len(mean), draws))
            out["W"][:, c] = mean + solve_triangular(factor, noise, lower=True, trans="T").T
            log_q += np.log(pivots).sum() + stats.norm.logpdf(noise).sum(axis=0)
        return out, log_q
