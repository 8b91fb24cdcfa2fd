r"""Variational Bayes for the multinomial probit with several kernels (Damoulas & Girolami 2009).

Mean field q(Y) q(W) q(zeta) q(beta) q(rho) for the model augmented with utilities y_n ~ N(f_n, I),
t_n = argmax y_n. With G(B) = sum_ij B_ij K_i'K_j and K_bar = sum_s E[beta_s] K_s:

| factor | paper | here |
|---|---|---|
| Y | eqs 6-8: normals truncated to cones | `truncated_moments`, exact quadrature |
| W | eqs 9-10: V_c, mean V_c K_bar'E[y_c] | B = E[beta beta'], not E[beta]E[beta]'; E[1/zeta_c] |
| zeta | eq 11 | 1/zeta ~ Gamma(tau + 1/2, upsilon + E[w^2]/2) |
| beta | appendix B.4, importance sampling | `simplex_factor`, the V_c terms included |
| rho | appendix B.4, importance sampling | `concentration_factor` with E[log beta] |

The bound holds all factors and never falls (more than three weights: except by the error of their
quadrature, about 1e-3, when its points are placed anew). `weights="plug-in"` is the printed
algorithm instead: E[beta] stands for beta in V_c and in Q(rho), Q(beta) leaves out the covariance
of W, and the monitored objective is E.5-E.7 with Z = 1/E[1/zeta], which may fall.

One iteration costs C Cholesky inverses of order M and O(S^2 M^2 + S N M C + N C^1.5); the products
K_i'K_j take S (S + 1) / 2 M x M matrices of memory.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats
from scipy.linalg import blas, lapack, solve_triangular
from scipy.special import gammaln

from ...models.checks import check_count, check_name, check_positive
from ...models.combination import FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...models.probit import truncated_moments
from ..applicability import combination_other_than
from ..engines import Run
from .answer import VariationalAnswer
from .concentration import ConcentrationFactor, concentration_factor
from .engine import VB
from .simplex import SimplexFactor, simplex_factor

__all__ = ["fit_multinomial_probit"]

type Array = npt.NDArray[np.float64]
type Weights = Literal["mean-field", "plug-in"]


@dataclass(frozen=True)
class _Data:
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
        design = model.design
        pairs = np.triu_indices(len(design))
        products = np.empty((len(pairs[0]), design.shape[2], design.shape[2]))
        for k, (i, j) in enumerate(zip(*pairs, strict=True)):
            product = design[i].T @ design[j]
            products[k] = product if i == j else product + product.T
        ones = np.ones(products.shape[1:])
        fold = np.asfortranarray(np.tril(ones) + np.tril(ones, -1))
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
        half = np.tensordot(self.products, matrix, axes=2)
        half[self.pairs[0] != self.pairs[1]] *= 0.5
        out[self.pairs] = half
        out[self.pairs[::-1]] = half
        return out

    def combined(self, weights: Array) -> Array:
        """Weighted sum of the kernels, sum_s weights_s K_s (N, M)."""
        return np.tensordot(weights, self.design, axes=1)


@dataclass(frozen=True)
class _State:
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


def _start(data: _Data, weights: Array) -> _State:
    """State before the first iteration: W = 0, zeta = 1, beta at `weights`."""
    n_obs = len(data.labels)
    shape = (data.n_classes, data.design.shape[2])
    _, y_mean = truncated_moments(np.zeros((n_obs, data.n_classes)), data.labels)
    second = np.outer(weights, weights)
    rho_mean = data.prior.mu / data.prior.lam if data.prior else np.nan
    return _State(
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


def _factor(gram: Array, precision: Array) -> Array:
    """Lower Cholesky factor (Fortran order; upper part undefined) of gram + diag(precision)."""
    # gram is symmetric: its transpose is it, in the order that LAPACK wants.
    matrix = gram.T.copy(order="F")
    matrix.ravel(order="K")[:: len(gram) + 1] += precision
    factor, info = lapack.dpotrf(matrix, lower=True, clean=False, overwrite_a=True)
    if info:
        raise np.linalg.LinAlgError(
            "The covariance of the regressors is numerically singular: rescale the kernels (for "
            "example to unit diagonal), they differ from the prior's scale by too many digits."
        )
    return factor


def _update(data: _Data, state: _State) -> _State:
    """One iteration: W, zeta, beta, rho, Y, and the objective."""
    shape = data.tau + 0.5
    precision = shape / state.zeta_rate
    gram = data.gram(state.beta_second)

    # Only lower triangles of the covariances are formed. Their sum, folded onto that triangle, is
    # all that later steps need: they take its inner products with symmetric matrices.
    target = state.y_mean.T @ data.combined(state.beta_mean)
    W_mean, W_var = np.empty_like(state.W_mean), np.empty_like(state.W_var)
    covariance = np.zeros_like(gram, order="F")
    log_det = 0.0
    for c in range(data.n_classes):
        factor = _factor(gram, precision[c])
        log_det -= 2 * np.log(np.diag(factor)).sum()
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        W_var[c] = np.diag(inverse)
        W_mean[c] = blas.dsymv(1.0, inverse, target[c], lower=True)
        covariance += inverse
    covariance *= data.fold
    zeta_rate = data.upsilon + 0.5 * (W_mean**2 + W_var)

    scores = data.design @ W_mean.T
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
        linear = np.einsum("snc,nc->s", scores, state.y_mean)
        new = _update_weights(data.prior, data.plug_in, new, linear, curvature)

    f = np.tensordot(new.beta_mean, scores, axes=1)
    log_z, y_mean = truncated_moments(f, data.labels)
    if data.plug_in:
        objective = _printed_bound(
            log_z.sum(), log_det, shape / zeta_rate, W_mean, W_var, np.sum(gram * covariance)
        )
    else:
        objective = log_z.sum() - 0.5 * (np.sum(curvature * new.beta_second) - np.sum(f**2))
        objective += _regressors_bound(data, log_det, zeta_rate)
        if new.beta is not None and new.rho is not None:
            objective += new.beta.entropy + new.rho.log_normaliser
    return replace(new, y_mean=y_mean, objective=float(objective))


def _update_weights(
    prior: Mean, plug_in: bool, state: _State, linear: Array, curvature: Array
) -> _State:
    """q(beta), then q(rho)."""
    beta = simplex_factor(state.rho_mean, linear, curvature, near=state.beta)
    mean_log = np.log(beta.mean) if plug_in else beta.mean_log
    rho = concentration_factor(prior.mu, prior.lam, mean_log, near=state.rho)
    second = np.outer(beta.mean, beta.mean) if plug_in else beta.second_moment
    return replace(
        state, beta=beta, rho=rho, beta_mean=beta.mean, beta_second=second, rho_mean=rho.mean
    )


def _regressors_bound(data: _Data, log_det: float, zeta_rate: Array) -> float:
    """E[log p(W | zeta) + log p(zeta)] + entropies of both; zeta's factor fresh after W's."""
    shape = data.tau + 0.5
    constant = 0.5 + data.tau * np.log(data.upsilon) - gammaln(data.tau) + gammaln(shape)
    return float(0.5 * log_det + zeta_rate.size * constant - shape * np.log(zeta_rate).sum())


def _printed_bound(
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


def _starting_weights(
    data: _Data, model: MultinomialProbit, starts: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Uniform weights, each vertex, then uniform draws from the simplex; fixed weights once."""
    n_kernels = len(data.design)
    if data.prior is None:
        yield np.asarray(model["beta"].get_value(), dtype=float)
        return
    corners = np.vstack([np.full(n_kernels, 1 / n_kernels), np.eye(n_kernels)])
    yield from corners[:starts]
    for _ in range(starts - len(corners)):
        yield rng.dirichlet(np.ones(n_kernels))


@dataclass
class _Ascent:
    """One start on its way up."""

    state: _State
    history: list[float] = field(default_factory=list)
    converged: bool = False

    def advance(self, data: _Data, tolerance: float) -> None:
        """Do one iteration."""
        before, self.state = self.state.objective, _update(data, self.state)
        after = self.state.objective
        self.history.append(after)
        self.converged = abs(after - before) <= tolerance * abs(after)


@VB.register(MultinomialProbit, unless=combination_other_than(Mean, FixedWeights))
def fit_multinomial_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    max_iterations: int = 500,
    tolerance: float = 1e-6,
    starts: int = 3,
    weights: Weights = "mean-field",
) -> VariationalAnswer:
    """Fit q by coordinate ascent from several starts.

    Parameters
    ----------
    model : MultinomialProbit
    run : Run
        Seed and progress bar.
    max_iterations : int
        Iterations a start at most.
    tolerance : float
        A start ends when its objective changes by less than this fraction of itself.
    starts : int
        Number of starts, which differ in the initial kernel weights: uniform, each kernel alone,
        random. The highest objective wins. Fixed weights need one start only.
    weights : {"mean-field", "plug-in"}
        The corrected equations, or those printed in the paper (see the module's text).

    Returns
    -------
    VariationalAnswer
        When interrupted: the answer so far, unconverged.

    Raises
    ------
    ValueError
        For settings out of range.
    LinAlgError
        When the kernels' scale makes a covariance numerically singular.
    """
    owner = "VB on MultinomialProbit"
    check_name(weights, ("mean-field", "plug-in"), "weights", owner)
    check_count(max_iterations, "max_iterations", owner)
    check_count(starts, "starts", owner)
    check_positive(tolerance, "tolerance", owner)
    data = _Data.of(model, weights == "plug-in")
    beginnings = list(_starting_weights(data, model, starts, run.rng()))
    ascents: list[_Ascent] = []
    interrupted = False
    try:
        with run.track(len(beginnings) * max_iterations, "VB") as bar:
            for start, beginning in enumerate(beginnings, 1):
                ascent = _Ascent(_start(data, beginning))
                ascents.append(ascent)
                while not ascent.converged and len(ascent.history) < max_iterations:
                    ascent.advance(data, tolerance)
                    bar.advance(start=start, bound=ascent.state.objective)
                bar.advance(max_iterations - len(ascent.history), start=start)
    except KeyboardInterrupt:
        interrupted = True
        ascents = [ascent for ascent in ascents if ascent.history]
        if not ascents:
            raise
        warnings.warn("VB was interrupted: the answer so far is returned.", stacklevel=2)
    best = int(np.argmax([ascent.state.objective for ascent in ascents]))
    converged = ascents[best].converged and not interrupted
    if not converged and not interrupted:
        warnings.warn(
            f"VB did not converge in {max_iterations} iterations: raise max_iterations.",
            stacklevel=2,
        )
    approximation = _Approximation(data, ascents[best].state)
    return VariationalAnswer(
        elbo=[np.array(ascent.history) for ascent in ascents],
        best=best,
        converged=converged,
        parameters=approximation.parameters(model),
        sample=approximation.sample,
    )


@dataclass(frozen=True)
class _Approximation:
    """The distribution q of a state."""

    data: _Data
    state: _State

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
            factor = _factor(gram, state.W_precision[c])
            noise = rng.normal(size=(len(mean), draws))
            out["W"][:, c] = mean + solve_triangular(factor, noise, lower=True, trans="T").T
            log_q += np.log(np.diag(factor)).sum() + stats.norm.logpdf(noise).sum(axis=0)
        return out, log_q
