r"""EM for `MutualKernelCompletion` (Kato & Rivero 2017, Algorithm 1), accelerated.

With weights w (nu over its mean), W = sum w and the completed kernels Q at M, the M-step gives
:math:`N = (\lambda I + \sum_k w_k Q^{(k)}) / (\lambda + W)`. For w = 1 this is eqs (22) and (30),
with the statistics in eqs (15) and (17). The gradient of J with respect to :math:`M^{-1}` is
:math:`(\lambda + W)(N - M)/2`, and the traces in J add up to
:math:`(\lambda + W)\,\mathrm{tr}(M^{-1}N) - \sum_k w_k m_k`: with :math:`M = LL'` both follow from
:math:`L^{-1} N L^{-\top}`. :math:`\ln|Q_{vv}|` is left out of J, eqs (2) and (23): it does not
depend on M, and is infinite for a singular visible block, of which only a square root is used.

EM, from M to N, is a descent step of length 1 in the metric of the complete data. Where J is flat
in this metric (only lambda determines entries that no kernel has observed together), an EM step
reduces the distance to the optimum only by the factor K/(K + lambda), which relative changes of M
do not reveal. Hence two departures from the paper:

- The iterations stop by the gradient of J in units of lambda's curvature, which bounds the
  distance.
- L-BFGS, a limited-memory quasi-Newton method, accelerates the steps. With M = LL', directions and
  gradients are symmetric matrices P in the frame of L, in which the metric of the complete data is
  Euclidean. A step is :math:`L \leftarrow L(I + A)` with A + A' = P, where the diagonal of I + A is
  replaced by its exponential. So M stays positive definite for any P, and to first order the step
  is EM's. J never rises beyond rounding. Without an acceptable quasi-Newton step an EM step is
  made, which lowers J except for rounding. If J rises and the gradient does not fall, or if M is
  singular, the search ends.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, blas, lapack

from ...models.completion.incomplete import IncompleteKernel, half_of_visible, square_root
from ...models.mutual_kernel_completion import CompletionProblem, MutualKernelCompletion
from ...numerics.wishart import log_det_of_factor
from ...validation import Count, CountOrZero, Positive, argument_error
from ..engine.engine import Run
from ..engine.result import PointOutput

type Array = npt.NDArray[np.float64]

#: The last steps, their changes of the gradient in the moving frame, and inverse curvatures.
type History = deque[tuple[Array, Array, float]]
# Least share of the decrease predicted by the gradient that a step must achieve.
SUFFICIENT = 1e-4
# A quasi-Newton step that would be shortened by more than this is replaced by an EM step.
SHORTEST = 1e-3
# Largest entry of a step: no direction of L grows more than e^2-fold in a step.
LONGEST_STEP = 4.0


class Completion(NamedTuple):
    """E-step of one kernel: blocks (n, m) and (m, m), lower triangle, of E[Q | M]; log|M_vv|."""

    vh: Array
    hh: Array
    log_det: float


class Evaluation(NamedTuple):
    """Objective and gradient at M = LL', from one E-step.

    `factor` is L, lower triangular, in Fortran order; `target` N, the result of the M-step;
    `residual` L^-1 (N - M) L^-T, the natural gradient of -J up to (lambda + W) / 2, in the frame of
    L.
    """

    factor: Array
    target: Array
    residual: Array
    objective: float


@dataclass(frozen=True)
class _Visible:
    """One kernel: its positions, its weight, and a square root R (n, rank) of Q_vv = RR'."""

    kernel: IncompleteKernel
    weight: float
    root: Array
    triangular: bool

    def expectation(self, M: Array) -> Completion:
        """E-step, eqs (18)-(20). O(n^3 / 3 + 4 n^2 m + 2 n m^2).

        With M_vv = C C', Q_vv = R R', H = C^-1 M_vh, B = C'^-1 H and G = R'B: Q_vh = R G, eq (19),
        and Q_hh = M_hh - H'H + G'G, eq (20); eqs (27)-(29) are the same in blocks of M^-1.
        """
        visible = self.kernel.visible
        hidden = self.kernel.hidden
        C = cholesky_factor(M[visible].take(visible, axis=1))
        log_det = log_det_of_factor(C)
        if not len(hidden):
            return Completion(np.empty((len(visible), 0)), np.empty((0, 0)), log_det)
        rows = M[hidden]
        H = blas.dtrsm(1.0, C, rows.take(visible, axis=1).T, lower=1, overwrite_b=1)
        hh = rows.take(hidden, axis=1).T
        hh = blas.dsyrk(-1.0, H, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)
        B = blas.dtrsm(1.0, C, H, lower=1, trans_a=1, overwrite_b=1)
        if self.triangular:
            G = blas.dtrmm(1.0, self.root, B, lower=1, trans_a=1, overwrite_b=1)
        else:
            G = blas.dgemm(1.0, self.root, B, trans_a=1)
        hh = blas.dsyrk(1.0, G, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)
        if self.triangular:
            vh = blas.dtrmm(1.0, self.root, G, lower=1, overwrite_b=1)
        else:
            vh = blas.dgemm(1.0, self.root, G)
        return Completion(vh, hh, log_det)

    def completed(self, M: Array) -> Array:
        """E[Q | M] (l, l), all objects in their order."""
        kernel = self.kernel
        whole = kernel.with_zeros()
        if len(kernel.hidden):
            done = self.expectation(M)
            whole[np.ix_(kernel.visible, kernel.hidden)] = done.vh
            whole[np.ix_(kernel.hidden, kernel.visible)] = done.vh.T
            hh = np.tril(done.hh)
            whole[np.ix_(kernel.hidden, kernel.hidden)] = hh + np.tril(hh, -1).T
        return whole


@dataclass(frozen=True)
class MutualObjective:
    """J as a function of M: `n` is the number of objects l, and `total` is W.

    Kernels without visible objects do not enter J, and are not among the `parts`.
    """

    parts: tuple[_Visible, ...]
    lam: float
    n: int
    total: float

    @cached_property
    def fixed(self) -> Array:
        """Half of lambda I and of the weighted visible blocks (l, l)."""
        kernels, weights = zip(*((part.kernel, part.weight) for part in self.parts), strict=True)
        return half_of_visible(kernels, weights, self.n, self.lam)

    @classmethod
    def of(cls, problem: CompletionProblem) -> "MutualObjective":
        """Factor the visible blocks. O(K l^3)."""
        kernels = [problem.kernels[k] for k in problem.informative]
        nu = problem.nu[problem.informative]
        weights = nu / nu.mean()
        parts = tuple(
            _Visible(kernel, float(weight), *square_root(kernel.values))
            for kernel, weight in zip(kernels, weights, strict=True)
        )
        return cls(parts, problem.lam, problem.n_objects, float(weights.sum()))

    def start(self, *, means: bool) -> Array:
        """M-step, eq (22), with means or zeros for the kernels' missing entries."""
        M = self.lam * np.eye(self.n)
        for part in self.parts:
            kernel = part.kernel
            M += part.weight * (kernel.with_means() if means else kernel.with_zeros())
        return M / (self.lam + self.total)

    def evaluate(self, factor: Array, M: Array | None = None) -> Evaluation:
        """E-step, eq (17), and M-step, eq (22), at M = LL', from L in Fortran order. O(K l^3)."""
        if M is None:
            M = factor @ factor.T
        half = np.zeros((self.n, self.n))
        traces = 0.0
        log_dets = self.lam * log_det_of_factor(factor) - self.lam * self.n
        for part in self.parts:
            kernel = part.kernel
            w = part.weight
            done = part.expectation(M)
            kernel.add_missing(half, done.vh.T, done.hh, w)
            traces -= w * len(kernel.hidden)
            log_dets += w * (done.log_det - len(kernel.visible))
        half += self.fixed
        target = half + half.T
        target /= self.lam + self.total
        residual, _ = lapack.dsygst(target.T, factor, lower=1)
        residual = np.tril(residual)
        residual += np.tril(residual, -1).T
        traces += (self.lam + self.total) * float(np.trace(residual))
        residual.flat[:: self.n + 1] -= 1
        return Evaluation(factor, target, residual, (traces + log_dets) / 2)


def cholesky_factor(matrix: Array) -> Array:
    """Lower Cholesky factor of a symmetric matrix, in Fortran order."""
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=1)
    if info:
        raise LinAlgError("The matrix is not positive definite.")
    return factor


class Minimum(NamedTuple):
    """Final point of the search, and the values of J (iteration,).

    `gradient` is its norm in units of lambda's curvature. `lost` says that an EM step raised J
    without lowering the gradient, or gave a matrix that is singular to rounding.
    """

    last: Evaluation
    objective: Array
    gradient: float
    lost: bool


def fit_mutual_kernel_completion(
    model: MutualKernelCompletion,
    run: Run,
    *,
    max_iterations: Count = 2_000,
    tolerance: Positive = 1e-3,
    start: Literal["mean", "zero"] = "mean",
    memory: CountOrZero = 5,
) -> PointOutput:
    """Minimise J over M and the missing entries.

    The point has M, the completed kernels in the units given and their traces, and log_det_M. The
    objective is -J without the terms ln|Q_vv|, with nu divided by its mean. O(K l^3) per iteration.

    Parameters
    ----------
    max_iterations : int, default=2000
        Largest number of iterations.
    tolerance : float, default=1e-3
        About the relative distance of M from the mode in its flattest direction at which the
        iterations end.
    start : {"mean", "zero"}, default="mean"
        Missing entries at the start. "mean" is the mean of the kernel's visible entries, "zero" the
        paper's, which needs many more iterations and can end in a saddle point.
    memory : int, default=5
        Number of past iterations that the quasi-Newton acceleration uses; ``memory=0,
        start="zero"`` is the paper's Algorithm 1.
    """
    owner = "EM on MutualKernelCompletion"
    problem = model.problem
    objective = MutualObjective.of(problem)
    with run.track(max_iterations, "EM") as bar:
        first = objective.start(means=start == "mean")
        try:
            found = minimize(objective, first, max_iterations, tolerance, memory, bar.advance)
        except LinAlgError:
            requirement = "larger (or the model's jitter), because M is numerically singular"
            raise argument_error("lam", owner, requirement, f"{problem.lam:g}") from None
    values = _values(model, objective, found)
    if found.gradient <= tolerance:
        return PointOutput(values, [-found.objective], "yes")
    note = (
        f"After {len(found.objective)} iterations the gradient is {found.gradient:.1e} in units "
        f"of lambda's curvature; the tolerance is {tolerance:g}."
    )
    if found.lost:
        note += (
            " The next EM step would raise J without lowering the gradient, or make M singular, "
            f"because of rounding at lam={problem.lam:g}. Increase lam or tolerance, or the jitter "
            "of kernels of low rank."
        )
    return PointOutput(values, [-found.objective], "no", note)


def minimize(
    objective: MutualObjective,
    start: Array,
    max_iterations: int,
    tolerance: float,
    memory: int,
    report: Callable[..., None] = lambda **numbers: None,
) -> Minimum:
    """Minimise J from a positive definite start; an interrupt ends the search.

    The search ends at the first M whose gradient is within the tolerance. Raises LinAlgError when M
    is not positive definite at the start.
    """
    now = objective.evaluate(cholesky_factor(start), start)
    unit = (objective.lam + objective.total) / (objective.lam * objective.n**0.5)
    # Rounding error of J for well-conditioned M. It grows with the condition number as lambda
    # shrinks; the gradient is more accurate.
    slack = 1e-14 * (objective.lam + objective.total) * objective.n
    history: History = deque(maxlen=memory)
    values = [now.objective]
    lost = False
    with suppress(KeyboardInterrupt):
        while (gradient := unit * float(np.linalg.norm(now.residual))) > tolerance:
            report(objective=-now.objective, gradient=gradient)
            if len(values) == max_iterations:
                break
            step, new = _quasi_newton(objective, now, history, slack)
            if new is None:
                history.clear()
                step = now.residual
                with suppress(LinAlgError):
                    new = objective.evaluate(cholesky_factor(now.target), now.target)
                # None if rounding makes M singular.
                if new is None or _rose(now, new, slack):
                    lost = True
                    break
            change = now.residual - new.residual
            curvature = float(np.vdot(step, change))
            if curvature > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
                history.append((step, change, 1 / curvature))
            now = new
            values.append(now.objective)
    gradient = unit * float(np.linalg.norm(now.residual))
    return Minimum(now, np.array(values), gradient, lost)


def _direction(history: History, residual: Array) -> Array:
    """Quasi-Newton direction by the two-loop recursion. O(memory l^2)."""
    direction = residual.copy()
    shares = []
    for step, change, inverse in reversed(history):
        share = inverse * float(np.vdot(step, direction))
        direction -= share * change
        shares.append(share)
    _, change, inverse = history[-1]
    direction /= inverse * float(np.vdot(change, change))
    for (step, change, inverse), share in zip(history, reversed(shares), strict=True):
        direction += (share - inverse * float(np.vdot(change, direction))) * step
    return direction


def _rose(now: Evaluation, new: Evaluation, slack: float) -> bool:
    """Whether J rose and the gradient did not fall, which an EM step does by rounding only."""
    fell = np.linalg.norm(new.residual) < np.linalg.norm(now.residual)
    return new.objective > now.objective + slack and not fell


def _quasi_newton(
    objective: MutualObjective, now: Evaluation, history: History, slack: float
) -> tuple[Array, Evaluation | None]:
    """Step, and its evaluation; None if J does not fall."""
    if not history:
        return now.residual, None
    direction = _direction(history, now.residual)
    slope = -(objective.lam + objective.total) / 2 * float(np.vdot(now.residual, direction))
    length = min(1.0, LONGEST_STEP / float(np.abs(direction).max()))
    while length > SHORTEST:
        try:
            new = objective.evaluate(_moved(now.factor, length * direction))
        except LinAlgError:
            length *= 0.1
            continue
        promised = length * slope
        rise = new.objective - now.objective
        if rise <= SUFFICIENT * promised + slack:
            return length * direction, new
        length *= float(np.clip(-promised / (2 * (rise - promised)), 0.1, 0.5))
    return direction, None


def _moved(factor: Array, step: Array) -> Array:
    """L (I + A), lower triangular, for the symmetric step A + A'. O(l^3)."""
    inner = np.tril(step)
    inner.flat[:: len(step) + 1] = np.exp(np.diagonal(step) / 2)
    return blas.dtrmm(1.0, factor, inner, lower=1)


def _values(
    model: MutualKernelCompletion, objective: MutualObjective, found: Minimum
) -> dict[str, Array]:
    """Values of the model's variables by name, after the last E-step and its M-step."""
    last = found.last
    problem = model.problem
    M = last.factor @ last.factor.T
    factor, whole = (last.factor, M) if found.lost else (cholesky_factor(last.target), last.target)
    values = {"M": whole, "log_det_M": np.array(log_det_of_factor(factor))}
    wholes = [M] * len(problem.kernels)
    for k, part in zip(problem.informative, objective.parts, strict=True):
        wholes[k] = part.completed(M)
    completed = {
        kernel.name: kernel.unit * whole
        for kernel, whole in zip(problem.kernels, wholes, strict=True)
        if len(kernel.hidden)
    }
    if completed:
        traces = [np.trace(whole) for whole in completed.values()]
        values[f"trace_{model.completion}"] = np.array(traces)
    return values | {f"{model.completion}_{name}": whole for name, whole in completed.items()}
