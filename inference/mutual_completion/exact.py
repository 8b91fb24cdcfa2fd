r"""Exact posterior of `MutualKernelCompletion` when the masks are nested.

Let each kernel's objects be a subset of the previous kernel's objects. Then the objects form groups
1, 2, ... by the number of kernels that have them, most first. With p the objects of the groups
before j, the blocks :math:`S_j = M_{jj\cdot p}` and :math:`B_j = M_{jp} M_{pp}^{-1}` are
independent between the groups, a priori and given the visible blocks:

.. math::

    \Psi_j &= \lambda' I + \sum_{k \ni j} \nu_k Q^{(k)} \quad\text{on } p \cup j, \qquad
        d_j = \lambda' + 1 + |p \cup j| + \sum_{k \ni j} \nu_k \\
    S_j &\sim \mathrm{IW}(d_j, \Psi_{jj\cdot p}), \qquad
        B_j \mid S_j \sim \mathrm{MN}(\Psi_{jp}\Psi_{pp}^{-1}, S_j, \Psi_{pp}^{-1})

with sums over the kernels k that have group j. These blocks give the rows of the Cholesky factor of
M. Given M, the I-step of the Gibbs sampler draws the missing blocks. The normalisers of these
distributions and of the prior give the evidence. A single kernel, and kernels without missing
objects, are special cases.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky
from scipy.special import multigammaln

from ...custom_steps.mutual_completion.steps import Known, impute
from ...models.mutual_kernel_completion import CompletionProblem, MutualKernelCompletion
from ...numerics.wishart import Bartlett, log_det_of_factor, solve_right, stacked
from ..engine.engine import Run
from ..engine.result import ExactOutput

type Array = npt.NDArray[np.float64]
type Positions = npt.NDArray[np.intp]


class Group(NamedTuple):
    """Objects that are visible in the same kernels, from `start` to `stop` in the groups' order.

    `factor` (stop, stop) is the lower Cholesky factor of Psi, `freedom` is d, and `added` its
    increase over the prior by the kernels.
    """

    start: int
    stop: int
    factor: Array
    freedom: float
    added: float


def nested_groups(problem: CompletionProblem) -> list[Positions] | None:
    """Positions of each group's objects, most kernels first; None unless masks are nested."""
    sizes = np.array([len(kernel.visible) for kernel in problem.kernels])
    counts = np.zeros(problem.n_objects, dtype=int)
    for kernel in problem.kernels:
        counts[kernel.visible] += 1
    order = np.argsort(-counts, kind="stable")
    for kernel, n in zip(problem.kernels, sizes, strict=True):
        # Masks are nested if each kernel has the first objects in this order.
        if set(order[:n].tolist()) != set(kernel.visible.tolist()):
            return None
    return [np.flatnonzero(counts == count) for count in sorted(set(counts.tolist()))[::-1]]


def why_no_blocks(model: MutualKernelCompletion) -> str | None:
    """Why Gibbs does not apply to a model; None where it does."""
    return "it draws the missing blocks, which a collapsed model lacks" if model.collapsed else None


def not_nested(model: MutualKernelCompletion) -> str | None:
    """Why Exact does not apply to a model; None where it does."""
    if not model.collapsed and nested_groups(model.problem) is None:
        return "it needs nested masks: each kernel's objects among those of every larger kernel"
    return why_no_blocks(model)


def sample_mutual_kernel_completion(model: MutualKernelCompletion, run: Run) -> ExactOutput:
    """Independent draws of M and the missing blocks, and the evidence.

    O(K l^3) once and O(K l^3) per draw.
    """
    problem = model.problem
    order, groups = _groups(problem)
    back = np.argsort(order)
    known = [Known.of(kernel) for kernel in problem.kernels]

    def draw(rng: np.random.Generator) -> dict[str, Array]:
        L = _draw_factor(groups, rng)
        M = (L @ L.T)[back[:, None], back]
        drawn = {"M": M}
        for one, v in zip(known, problem.nu, strict=True):
            if not len(one.kernel.hidden):
                continue
            missing = impute(one, M, v, rng)
            if len(one.kernel.visible):
                drawn[f"Qhv_{one.kernel.name}"] = missing.hv
            drawn[f"Qhh_v_{one.kernel.name}"] = missing.factor @ missing.factor.T
        return drawn

    return ExactOutput(
        lambda draws, rng: stacked((draw(rng) for _ in range(draws)), draws),
        log_evidence=evidence_of_mutual_kernel_completion(model),
        tails=_tails(problem, groups),
    )


def _groups(problem: CompletionProblem) -> tuple[Positions, list[Group]]:
    """Object positions in the order of the groups, and the groups."""
    members = nested_groups(problem)
    assert members is not None
    order = np.concatenate(members)
    strength = problem.strength
    groups = []
    stop = 0
    for one in members:
        start = stop
        stop = stop + len(one)
        psi = strength * np.eye(stop)
        added = 0.0
        for kernel, v in zip(problem.kernels, problem.nu, strict=True):
            if len(kernel.visible) >= stop:
                chosen = np.searchsorted(kernel.visible, order[:stop])
                psi += v * kernel.values[chosen[:, None], chosen]
                added += v
        factor = cholesky(psi, lower=True, overwrite_a=True, check_finite=False)
        freedom = strength + 1 + stop + added
        groups.append(Group(start, stop, np.ascontiguousarray(factor), freedom, added))
    return order, groups


def _draw_factor(groups: list[Group], rng: np.random.Generator) -> Array:
    """Lower Cholesky factor of M, in the order of the groups. O(l^3)."""
    L = np.zeros((groups[-1].stop,) * 2)
    for start, stop, factor, freedom, _ in groups:
        old = slice(start)
        new = slice(start, stop)
        F = Bartlett.draw(freedom, stop - start, rng).inverse_wishart_factor(
            np.ascontiguousarray(factor[new, new])
        )
        S = cholesky(F @ F.T, lower=True, overwrite_a=True, check_finite=False)
        if start:
            noise = S @ rng.standard_normal((stop - start, start))
            root = np.ascontiguousarray(factor[old, old])
            B = solve_right(np.ascontiguousarray(factor[new, old]) + noise, root)
            L[new, old] = B @ L[old, old]
        L[new, new] = S
    return L


def evidence_of_mutual_kernel_completion(model: MutualKernelCompletion) -> float:
    """Log density of the visible blocks with all else integrated out; see `Exact`. O(K l^3)."""
    if reason := not_nested(model):
        raise ValueError(f"The evidence is not known in closed form: {reason}.")
    problem = model.problem
    strength = problem.strength
    value = 0.0
    for kernel, v in zip(problem.kernels, problem.nu, strict=True):
        if n := len(kernel.visible):
            log_det = log_det_of_factor(cholesky(kernel.values, lower=True))
            value += (v - n - 1) / 2 * log_det + v * n / 2 * np.log(v / 2)
            value -= multigammaln(v / 2, n)
    for start, stop, factor, freedom, added in _groups(problem)[1]:
        n = stop - start
        prior = freedom - added
        new = log_det_of_factor(factor[start:, start:])
        value += multigammaln(freedom / 2, n) - multigammaln(prior / 2, n)
        # The likelihood's powers of 2 are included above; these normalisers add added * n / 2.
        value += added * n / 2 * np.log(2) - freedom / 2 * new + prior / 2 * n * np.log(strength)
        value -= n / 2 * (log_det_of_factor(factor[:start, :start]) - start * np.log(strength))
    return float(value)


def _tails(problem: CompletionProblem, groups: list[Group]) -> dict[str, float | Array]:
    """Powers p from which on E|x|^p is infinite for some entry, by variable.

    S_j, and so M, has the tails of 1/chi2 with d_j - |j| + 1 degrees of freedom; regressions have
    those of the root.
    """
    heaviest = min((g.freedom - (g.stop - g.start) + 1) / 2 for g in groups)
    tails: dict[str, float | Array] = {"M": heaviest, "trace_Q": heaviest}
    for kernel in problem.kernels:
        whole = np.full((problem.n_objects,) * 2, heaviest)
        whole[np.ix_(kernel.visible, kernel.visible)] = np.inf
        tails[f"Q_{kernel.name}"] = whole
        tails[f"Qhv_{kernel.name}"] = 2 * heaviest
        tails[f"Qhh_v_{kernel.name}"] = heaviest
    return tails
