"""Random problems of mutual kernel completion, as arrays, and draws from its prior."""

import numpy as np
from scipy import stats

from family import assert_ks, assert_z
from kernelzoo.custom_steps.mutual_completion.steps import (
    Known,
    draw_model_matrix,
    impute,
    missing_square,
)
from kernelzoo.models.completion.incomplete import (
    IncompleteKernel,
    IncompleteKernels,
    half_of_visible,
)
from kernelzoo.models.mutual_kernel_completion import CompletionProblem

# Four objects: two, one and all of them missing.
MASKS = np.array([[1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0]], dtype=bool)


def random_kernels(n, n_kernels, seed, *, missing=0.4, rank=None):
    """Kernels of related objects (kernel, n, n), and which objects each has (n, kernel)."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 3))
    kernels = []
    for _ in range(n_kernels):
        width = 2 * n if rank is None else rank
        x = shared @ rng.normal(size=(3, width)) + 0.8 * rng.normal(size=(n, width))
        kernels.append(x @ x.T)
    visible = rng.random((n, n_kernels)) > missing
    # Each object is in some kernel, each kernel has two objects.
    visible[np.arange(n), rng.integers(n_kernels, size=n)] = True
    visible[:2] = True
    return np.array(kernels), visible


def problem_of(kernels, visible, *, lam=0.1, nu=None):
    """The same as a problem, with as many degrees of freedom as objects and one more."""
    given = IncompleteKernels.of(kernels, visible, owner="test")
    nu = np.broadcast_to(kernels.shape[1] + 1.0 if nu is None else nu, len(kernels)).copy()
    return CompletionProblem(given.kernels, lam, nu)


def random_problem(n, n_kernels, seed, *, missing=0.4, rank=None, **settings):
    """Problem of random kernels."""
    return problem_of(*random_kernels(n, n_kernels, seed, missing=missing, rank=rank), **settings)


def kernel_of(name, mask, Q):
    """Kernel of which the mask is visible."""
    v, h = np.flatnonzero(mask), np.flatnonzero(~mask)
    return IncompleteKernel(name, Q[np.ix_(v, v)].copy(), v, h, 1.0)


def joint_draw(rng, nu, strength):
    """M and whole kernels from the prior, by other means than the steps'."""
    n = MASKS.shape[1]
    M = stats.invwishart(strength + n + 1, strength * np.eye(n)).rvs(random_state=rng)
    return M, [stats.wishart(v, M / v).rvs(random_state=rng) for v in nu]


def same_law(before, after):
    """Paired rows of functionals are of one law."""
    differences, half = after - before, len(before) // 2
    moved = np.abs(differences).max(axis=0) > 1e-7
    differences = differences[:, moved]
    assert_z(differences.mean(axis=0) / (differences.std(axis=0, ddof=1) / len(before) ** 0.5))
    for old, new in zip(before[:half, moved].T, after[half:, moved].T, strict=True):
        assert_ks(new, old)


def sweeps(problem, draws, seed):
    """M (draw, l, l) along the Gibbs sampler, in NumPy alone, from the identity."""
    rng = np.random.default_rng(seed)
    n, nu, strength = problem.n_objects, problem.nu, problem.strength
    known = [Known.of(kernel) for kernel in problem.kernels]
    fixed = half_of_visible(problem.kernels, nu, n, strength)
    M, trail = np.eye(n), np.empty((draws, n, n))
    for i in range(draws):
        half = fixed.copy()
        for one, v in zip(known, nu, strict=True):
            if len(one.kernel.hidden):
                missing = impute(one, M, v, rng)
                one.kernel.add_missing(half, missing.hv, missing_square(one, missing), v)
        L = draw_model_matrix(half, strength + n + 1 + nu.sum(), rng)
        trail[i] = M = L @ L.T
    return trail
