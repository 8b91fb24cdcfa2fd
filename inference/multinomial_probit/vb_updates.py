"""Algorithm 1 of damoulas2009: the factors of the multinomial probit's mean field.

Equations and notation as in `vb`, which runs `update` to convergence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

from ...models.combinations.products import FixedProduct, Product
from ...models.combinations.sums import Binary, Combination, FixedWeights, Mean
from ...models.kernels.dask_stack import DaskStack
from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import default_nodes
from ..variational.ascent import Coordinates
from ..variational.concentration import ConcentrationFactor, concentration_factor
from ..variational.factors import binary_factor, precision_factor, regressors_bound
from ..variational.simplex import TINY, SimplexFactor, moments_around, simplex_factor
from .vb_kernel_parameters import Normal
from .vb_kernels import ExpectedKernels, ExpectedUtilities, KernelFamily, KernelsOfDask

__all__ = ["COORDINATES", "RULES", "Data", "State", "ascend", "inner_steps", "start", "update"]

type Array = npt.NDArray[np.float64]

#: Rules of combination whose weights have a factor here, or whose factor is that of the parameters.
RULES = Mean, Binary, FixedWeights, Product, FixedProduct

# Largest number of further updates with the same covariances, and their share of the time of these.
MOST = 6
SHARE = 0.4
# Measured costs in units of a factorisation's multiplication: of a node of the quadrature, and of a
# number of the covariances or products that is read from memory.
NODE = 900
NUMBER = 12
# Largest size of the stored covariances (1 GB).
MOST_KEPT = 1 << 27


@dataclass(frozen=True)
class Data:
    """Inputs of the updates.

    The kernels of `family` have the composite kernel as their weighted sum; `known` are these
    kernels if they have no parameters and exponents to learn.
    """

    labels: npt.NDArray[np.intp]
    n_classes: int
    tau: float
    upsilon: float
    family: KernelFamily
    known: ExpectedKernels | KernelsOfDask | None

    @classmethod
    def of(cls, model: MultinomialProbit) -> Self:
        """Collect the inputs; the products cost O(S^2 N M^2)."""
        family = KernelFamily.of(model)
        known: ExpectedKernels | KernelsOfDask | None = None
        if isinstance(model.kernel_source, DaskStack):
            known = KernelsOfDask.of(model.kernel_source, model.label_codes)
        elif not len(family.coordinates):
            known = ExpectedKernels.of(family.stack(np.empty(0)))
        assert not isinstance(model.upsilon, LearnedScale)
        return cls(model.label_codes, model.n_classes, model.tau, model.upsilon, family, known)

    @property
    def rule(self) -> Combination:
        """Combination rule."""
        return self.family.composition.rule


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the objective.

    `utilities` are at the scores after the iteration. `W_gram` (M, M) and `W_precision` (C, M) are
    G(E[beta beta']) and E[1/zeta] at the update of q(W); they determine its covariances, which are
    not stored. The expected log likelihood is linear'beta - beta'`curvature` beta / 2 as a function
    of the weights (S,). `gain` is the part of the bound from the weights and their hyperparameters.
    """

    kernels: ExpectedKernels | KernelsOfDask
    utilities: ExpectedUtilities
    W_mean: Array
    W_var: Array
    W_gram: Array
    W_precision: Array
    zeta_rate: Array
    beta_mean: Array
    beta_second: Array
    rho_mean: Array
    curvature: Array
    objective: float
    gain: float = 0.0
    beta: Any = None
    rho: ConcentrationFactor | None = None
    psi: Normal | None = None

    @property
    def linear(self) -> Array:
        """Inner products (S,) of E[Y] with the scores by kernel."""
        return np.tensordot(self.utilities.products, self.W_mean, axes=2)


def start(data: Data, weights: Array) -> State:
    """State before the first iteration: zeta = 1, kernel weights `weights`, scores of zero."""
    rule, psi, rho = data.rule, None, np.nan
    if data.known is not None:
        kernels = data.known
    else:
        psi = data.family.start(weights)
        kernels = data.family.expected(psi)
    if data.family.is_product:
        weights = np.ones(1)
    elif isinstance(rule, Binary):
        weights = weights / weights.max()
    elif isinstance(rule, Mean):
        rho = rule.mu / rule.lam
    second_moment = np.outer(weights, weights)
    gram = kernels.products.gram(second_moment)
    none = np.zeros((data.n_classes, len(gram)))
    return State(
        kernels=kernels,
        utilities=kernels.utilities(weights, none, data.labels),
        W_mean=none,
        W_var=none,
        W_gram=gram,
        W_precision=np.ones_like(none),
        zeta_rate=np.full_like(none, data.tau + 0.5),
        beta_mean=weights,
        beta_second=second_moment,
        rho_mean=np.full(len(weights), rho),
        curvature=np.zeros_like(second_moment),
        objective=-np.inf,
        psi=psi,
    )


class Covariances(NamedTuple):
    """Covariances of q(W) in one iteration.

    `total` (M, M) is their sum over the classes, folded onto a triangle: later steps need only
    inner products of it with symmetric matrices. `log_det` is the sum of their log determinants.
    `each` has the lower triangles by class if W is updated again; else none.
    """

    total: Array
    log_det: float
    each: list[Array]


def update(data: Data, state: State) -> State:
    """One iteration of Algorithm 1, and the bound (eq 5).

    If the covariances of W are expensive, all other factors are updated a few times more, which
    raises the bound almost as much as full iterations. This is not done with exponents or kernel
    parameters, because W would adapt too closely to their current values.
    """
    n_objects, n_basis = len(data.labels), state.W_mean.shape[1]
    more = 0 if state.psi else inner_steps(len(state.linear), n_objects, n_basis, data.n_classes)
    state, covariances = _update_regressors(data, state, keep=more > 0)
    state = _update_scales(data, state)
    state = _update_weights(data, state, covariances)
    for _ in range(more):
        state = _update_utilities(data, state)
        state = _update_means(data, state, covariances)
        state = _update_scales(data, state)
        state = _update_weights(data, state, covariances)
    if state.psi is not None:
        state = _update_parameters(data, state, covariances)
    state = _update_utilities(data, state)
    return replace(state, objective=_bound(data, state, covariances.log_det))


def inner_steps(n_kernels: int, n_obs: int, n_basis: int, n_classes: int) -> int:
    """Count the further updates that save time; none on small problems.

    Ten classes with Gram matrices get one update at about 350 objects, six at 1,000.
    """
    if n_classes * n_basis**2 > MOST_KEPT:
        return 0
    quadrature = NODE * n_obs * n_classes * default_nodes(n_classes)
    products = 4 * n_kernels * n_obs * n_basis * n_classes
    numbers = NUMBER * (n_classes + n_kernels * (n_kernels + 1)) * n_basis**2
    return min(MOST, int(SHARE * n_classes * n_basis**3 / (quadrature + products + numbers)))


def _update_utilities(data: Data, state: State) -> State:
    """Q(Y), eqs 6-8."""
    utilities = state.kernels.utilities(state.beta_mean, state.W_mean, data.labels)
    return replace(state, utilities=utilities)


def _update_regressors(data: Data, state: State, *, keep: bool) -> tuple[State, Covariances]:
    """Q(W), eqs 9-10; with `keep`, its covariances by class are kept."""
    products = state.kernels.products
    precision = (data.tau + 0.5) / state.zeta_rate
    gram = products.gram(state.beta_second)
    target = np.tensordot(state.beta_mean, state.utilities.products, axes=1)
    mean, var = np.empty_like(state.W_mean), np.empty_like(state.W_var)
    total, log_det, each = np.zeros_like(gram), 0.0, []
    for c in range(data.n_classes):
        factor, pivots = precision_factor(gram, precision[c])
        log_det -= 2 * np.log(pivots).sum()
        # Only one triangle of the covariance is computed.
        covariance, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        var[c] = np.diag(covariance)
        mean[c] = blas.dsymv(1.0, covariance, target[c], lower=True)
        total += covariance.T
        if keep:
            each.append(covariance)
    total *= products.fold
    state = replace(state, W_mean=mean, W_var=var, W_gram=gram, W_precision=precision)
    return state, Covariances(total, log_det, each)


def _update_means(data: Data, state: State, covariances: Covariances) -> State:
    """Raise the bound in the means of Q(W), eq 9, given its covariances."""
    mean = ascend(
        state.W_mean,
        covariances.each,
        gram=state.kernels.products.gram(state.beta_second),
        precision=(data.tau + 0.5) / state.zeta_rate,
        target=np.tensordot(state.beta_mean, state.utilities.products, axes=1),
    )
    return replace(state, W_mean=mean)


def ascend(
    mean: Array, inverses: Sequence[Array], *, gram: Array, precision: Array, target: Array
) -> Array:
    """Raise sum_c m_c't_c - m_c'(G + D_c) m_c / 2 by one step in the means m (C, M); O(C M^2).

    The direction is the gradient times a covariance (M, M), of which only the lower triangle is
    read, and the length is the best one for each class. The step reaches the maximum if the
    covariance is the inverse of G + D_c. `precision` (C, M) are the diagonals of D_c.
    """
    gradient = target - mean @ gram - precision * mean
    pairs = zip(inverses, gradient, strict=True)
    step = np.array([blas.dsymv(1.0, inverse, slope, lower=True) for inverse, slope in pairs])
    rise = np.sum(gradient * step, axis=1)
    curvature = np.sum(((step @ gram) + precision * step) * step, axis=1)
    # A step of zero is already at the maximum.
    length = np.divide(rise, curvature, out=np.zeros_like(rise), where=curvature > 0)
    return mean + length[:, None] * step


def _update_scales(data: Data, state: State) -> State:
    """Q(zeta): its rates, eq 11, which has their E[1/zeta]."""
    return replace(state, zeta_rate=data.upsilon + 0.5 * (state.W_mean**2 + state.W_var))


def _update_weights(data: Data, state: State, covariances: Covariances) -> State:
    """Q(beta), and Q(rho) if the weights have concentrations (appendix B.4).

    The factor of a rule from outside is ``rule.variational_factor(linear, curvature)``, for an
    expected log likelihood linear'beta - beta'curvature beta / 2. It needs ``mean``, ``sd``,
    ``second_moment``, ``sample`` and ``log_density`` as `BinaryFactor` has them, and ``gain``:
    E[log prior of beta] plus the factor's entropy.
    """
    linear, curvature = state.linear, _curvature(state, covariances)
    rule: Any = data.rule
    state = replace(state, curvature=curvature)
    match rule:
        case FixedWeights() | FixedProduct() | Product():
            return state
        case Mean():
            beta: Any = simplex_factor(state.rho_mean, linear, curvature, near=state.beta)
            rho = concentration_factor(rule.mu, rule.lam, beta.mean_log, near=state.rho)
            state = replace(state, rho=rho, rho_mean=rho.mean)
            gain = beta.entropy + rho.log_normaliser
        case Binary():
            beta = binary_factor(rule.probabilities(len(linear)), linear, curvature, rule.empty)
            gain = beta.gain
        case _:
            beta = rule.variational_factor(linear, curvature)
            gain = beta.gain
    moments = {"beta_mean": beta.mean, "beta_second": beta.second_moment}
    return replace(state, beta=beta, gain=gain, **moments)


def _curvature(state: State, covariances: Covariances) -> Array:
    return state.kernels.products.traces(state.W_mean.T @ state.W_mean + covariances.total)


def _update_parameters(data: Data, state: State, covariances: Covariances) -> State:
    """Q(psi) of exponents and kernel parameters (appendix B.4), and what follows of the kernels."""
    assert state.psi is not None
    log_likelihood = data.family.log_likelihood(
        state.utilities.mean @ state.W_mean,
        state.beta_mean,
        state.beta_second,
        # The folded sum gives the same quadratic forms as the symmetric one.
        state.W_mean.T @ state.W_mean + covariances.total,
    )
    psi = state.psi.updated(log_likelihood)
    state = replace(state, psi=psi, kernels=data.family.expected(psi))
    return replace(state, curvature=_curvature(state, covariances))


def _bound(data: Data, state: State, log_det: float) -> float:
    """Bound on the log evidence, eq 5, right after all factors have been updated."""
    bound = state.utilities.log_z + 0.5 * state.utilities.square
    bound -= 0.5 * np.sum(state.curvature * state.beta_second)
    bound += regressors_bound(data.tau, data.upsilon, log_det, state.zeta_rate) + state.gain
    return float(bound + (0.0 if state.psi is None else state.psi.gain))


def _coordinates(state: State) -> Array:
    values = [state.utilities.products.ravel(), np.log(state.zeta_rate).ravel()]
    if isinstance(state.beta, SimplexFactor):
        values += [np.log(np.maximum(state.beta_mean, TINY)), np.log(state.rho_mean)]
    return np.concatenate(values)


def _at_coordinates(state: State, values: Array) -> State:
    products = state.utilities.products
    y, zeta, weights = np.split(values, np.cumsum([products.size, state.zeta_rate.size]))
    state = replace(
        state,
        utilities=state.utilities._replace(products=y.reshape(products.shape)),
        zeta_rate=np.exp(zeta).reshape(state.zeta_rate.shape),
    )
    if not len(weights):
        return state
    log_beta, log_rho = weights.reshape(2, -1)
    mean, second_moment = moments_around(log_beta, state.beta_mean, state.beta_second)
    return replace(state, beta_mean=mean, beta_second=second_moment, rho_mean=np.exp(log_rho))


# E[Y]'K_s, the rates of zeta, and the means of weights on the simplex and of their concentrations.
# The weights' covariance, selections and kernel parameters follow one iteration later.
COORDINATES = Coordinates(_coordinates, _at_coordinates)
