"""The factors of the multinomial probit's mean field: their state and updates.

Equations and notation as in `vb`, which runs these updates to convergence.
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
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.kernel_products import KernelProducts
from ..variational.anderson import Coordinates
from ..variational.binary import binary_factor
from ..variational.concentration import ConcentrationFactor, concentration_factor
from ..variational.regressors import precision_factor, regressors_bound
from ..variational.simplex import TINY, SimplexFactor, moments_around, simplex_factor
from .expected_utilities import BatchedUtilities, ExpectedUtilities
from .vb_dask import KernelsOfDask
from .vb_inner_steps import ascend, inner_steps
from .vb_kernel_parameters import Normal
from .vb_kernels import ExpectedKernels, KernelFamily

__all__ = ["COORDINATES", "RULES", "Data", "State", "start", "update"]

type Array = npt.NDArray[np.float64]

#: Rules of combination whose weights have a factor here, or whose factor is that of the parameters.
RULES = Mean, Binary, FixedWeights, Product, FixedProduct


@dataclass(frozen=True)
class Data:
    """Inputs of the updates.

    Parameters
    ----------
    labels : int array of shape (N,)
    n_classes : int
    tau, upsilon : float
    family : KernelFamily
        The kernels whose weighted sum is the composite kernel.
    known : ExpectedKernels, KernelsOfDask or None
        These kernels, if they are known.
    batches : tuple of slice
        Objects whose utilities are updated together; none where all are.
    """

    labels: npt.NDArray[np.intp]
    n_classes: int
    tau: float
    upsilon: float
    family: KernelFamily
    known: ExpectedKernels | KernelsOfDask | None
    batches: tuple[slice, ...] = ()

    @classmethod
    def of(cls, model: MultinomialProbit, batch: int | None = None) -> Self:
        """Collect the inputs; the products cost O(S^2 N M^2)."""
        family = KernelFamily.of(model)
        known: ExpectedKernels | KernelsOfDask | None = None
        if isinstance(model.kernel_source, DaskStack):
            known = KernelsOfDask.of(model.kernel_source, model.label_codes)
        elif not len(family.coordinates):
            known = ExpectedKernels.of(family.stack(np.empty(0)))
        labels = model.label_codes
        firsts = () if batch is None else range(0, len(labels), batch)
        batches = tuple(slice(first, first + (batch or 0)) for first in firsts)
        return cls(labels, model.n_classes, model.tau, model.upsilon, family, known, batches)

    @property
    def rule(self) -> Combination:
        """Combination rule."""
        return self.family.composition.rule

    @property
    def learned(self) -> bool:
        """Whether starts from different kernel weights differ."""
        return self.family.composition.learned


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the objective.

    `utilities` are at the scores after the iteration. `W_precision` (C, M), `W_weights` (S, S) and
    `W_products` are E[1/zeta] and the second moment of the composite kernel at the update of q(W).
    They determine its covariances, which are not stored. The expected log likelihood is
    linear'beta - beta'`curvature` beta / 2 as a function of the weights (S,). `gain` is the part of
    the bound from the weights and their hyperparameters.
    """

    utilities: ExpectedUtilities | BatchedUtilities
    W_mean: Array
    W_var: Array
    W_precision: Array
    W_weights: Array
    W_products: KernelProducts
    zeta_rate: Array
    kernels: ExpectedKernels | KernelsOfDask
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


class Covariances(NamedTuple):
    """Covariances of q(W) in one iteration.

    Attributes
    ----------
    total : array of shape (M, M)
        Their sum over the classes, folded onto a triangle: later steps need only inner products of
        it with symmetric matrices.
    log_det : float
        Sum of their log determinants.
    each : list of array of shape (M, M)
        Lower triangles by class, if W is updated again; else none.
    """

    total: Array
    log_det: float
    each: list[Array]


def start(
    data: Data,
    weights: Array,
    rng: np.random.Generator | None = None,
    *,
    random: bool = False,
) -> State:
    """State before the first iteration, with zeta = 1 and the kernel weights `weights`.

    E[y] is computed at scores of zero, or at those of random regressors, scaled to variance one.
    """
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
    n_basis = kernels.shape[2]
    shape = (data.n_classes, n_basis)
    second_moment = np.outer(weights, weights)
    regressors = np.zeros(shape)
    if random:
        regressors = (rng or np.random.default_rng(0)).normal(size=shape)
        regressors /= kernels.spread(weights, regressors) or 1.0
    utilities: ExpectedUtilities | BatchedUtilities
    objects = data.batches[0] if data.batches else slice(None)
    utilities = kernels.utilities(weights, regressors, data.labels, objects)
    if data.batches:
        utilities = BatchedUtilities.of(utilities, len(data.labels))
    return State(
        utilities=utilities,
        W_mean=np.zeros(shape),
        W_var=np.zeros(shape),
        W_precision=np.ones(shape),
        W_weights=second_moment,
        W_products=kernels.products,
        zeta_rate=np.full(shape, data.tau + 0.5),
        kernels=kernels,
        beta_mean=weights,
        beta_second=second_moment,
        rho_mean=np.full(len(weights), rho),
        curvature=np.zeros_like(second_moment),
        objective=-np.inf,
        psi=psi,
    )


def update(data: Data, state: State) -> State:
    """One iteration of damoulas2009, Algorithm 1, and the bound (eq 5).

    If the covariances of W are expensive, all other factors are updated a few times more, which
    raises the bound almost as much as full iterations. This is not done with exponents or kernel
    parameters, because W would adapt too closely to their current values.

    Where batches of objects take turns, all other factors are updated after each of them, given the
    covariances of W (Neal & Hinton 1998, A view of the EM algorithm that justifies incremental,
    sparse, and other variants): each is a step of coordinate ascent in the utilities of one batch,
    so that the bound does not fall.
    """
    turns = _turns(data, state)
    state, covariances = _update_regressors(data, state, keep=bool(turns))
    state = _update_scales(data, state)
    state = _update_weights(data, state, covariances)
    for batch in turns:
        state = _update_utilities(data, state, batch)
        state = _update_means(data, state, covariances)
        state = _update_scales(data, state)
        state = _update_weights(data, state, covariances)
    if state.psi is not None:
        state = _update_parameters(data, state, covariances)
    if not data.batches:
        state = _update_utilities(data, state)
    return replace(state, objective=_bound(data, state, covariances))


def _turns(data: Data, state: State) -> Sequence[int | None]:
    """Numbers of the batches that take turns, or None for each further update of all objects."""
    if data.batches:
        return range(len(data.batches))
    return [None] * (0 if state.psi else inner_steps(*state.kernels.shape, data.n_classes))


def _update_regressors(data: Data, state: State, *, keep: bool) -> tuple[State, Covariances]:
    """Q(W), eqs 9-10; with `keep`, its covariances by class are kept."""
    precision = (data.tau + 0.5) / state.zeta_rate
    products = state.kernels.products
    gram = products.gram(state.beta_second)
    target = np.tensordot(state.beta_mean, state.utilities.products, axes=1)
    mean, var = np.empty_like(state.W_mean), np.empty_like(state.W_var)
    total, log_det, each = np.zeros_like(gram), 0.0, []
    for c in range(data.n_classes):
        factor, pivots = precision_factor(gram, precision[c])
        log_det -= 2 * np.log(pivots).sum()
        # Only one triangle of the covariance is computed.
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        var[c] = np.diag(inverse)
        mean[c] = blas.dsymv(1.0, inverse, target[c], lower=True)
        total += inverse.T
        if keep:
            each.append(inverse)
    total *= products.fold
    state = replace(
        state,
        W_mean=mean,
        W_var=var,
        W_precision=precision,
        W_weights=state.beta_second,
        W_products=products,
    )
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
    curvature = _curvature(state, covariances)
    rule: Any = data.rule
    state = replace(state, curvature=curvature)
    match rule:
        case FixedWeights() | FixedProduct() | Product():
            return state
        case Mean():
            beta: Any = simplex_factor(state.rho_mean, state.linear, curvature, near=state.beta)
            rho = concentration_factor(rule.mu, rule.lam, beta.mean_log, near=state.rho)
            state = replace(state, rho=rho, rho_mean=rho.mean)
            gain = beta.entropy + rho.log_normaliser
        case Binary():
            prior = rule.probabilities(len(curvature))
            beta = binary_factor(prior, state.linear, curvature, rule.empty)
            gain = beta.gain
        case _:
            beta = rule.variational_factor(state.linear, curvature)
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


def _update_utilities(data: Data, state: State, batch: int | None = None) -> State:
    """Q(Y), eqs 6-8, of all objects or of one batch."""
    objects = slice(None) if batch is None else data.batches[batch]
    utilities = state.kernels.utilities(state.beta_mean, state.W_mean, data.labels, objects)
    if batch is None:
        return replace(state, utilities=utilities)
    assert isinstance(state.utilities, BatchedUtilities)
    return replace(state, utilities=state.utilities.renewed(batch, utilities))


def _bound(data: Data, state: State, covariances: Covariances) -> float:
    """Bound on the log evidence, eq 5."""
    bound = state.utilities.bound(float(state.beta_mean @ state.linear))
    bound -= 0.5 * np.sum(state.curvature * state.beta_second)
    log_det, rates = covariances.log_det, state.zeta_rate
    bound += regressors_bound(data.tau, data.upsilon, log_det, rates) + state.gain
    return float(bound + (0.0 if state.psi is None else state.psi.gain))


def _coordinates(state: State) -> Array:
    assert isinstance(state.utilities, ExpectedUtilities)
    values = [state.utilities.products.ravel(), np.log(state.zeta_rate).ravel()]
    if isinstance(state.beta, SimplexFactor):
        values += [np.log(np.maximum(state.beta_mean, TINY)), np.log(state.rho_mean)]
    return np.concatenate(values)


def _at_coordinates(state: State, values: Array) -> State:
    assert isinstance(state.utilities, ExpectedUtilities)
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
