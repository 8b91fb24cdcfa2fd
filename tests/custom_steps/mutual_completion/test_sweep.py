"""Both steps of mutual completion as PyMC runs them, overrelaxed."""

from dataclasses import replace

import numpy as np
import pytest

from kernelzoo.custom_steps.mutual_completion import steps as mutual_completion
from kernelzoo.custom_steps.mutual_completion.steps import (
    FRESH_SWEEPS,
    Known,
    MutualImputation,
    MutualPosterior,
)
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from kernelzoo.numerics.packed_factor import triangle
from mutual_fixture import MASKS, joint_draw, kernel_of, same_law

N, LAM, NU = len(MASKS[0]), 0.4, np.array([9.0, 7.0, 12.0])
NAMES = ("a", "b", "c")
TRIANGLES = {n: triangle(n) for n in range(1, N + 1)}


def prior_draw(rng):
    """M and whole kernels."""
    # The kernel that no object has says nothing about lambda'.
    return joint_draw(rng, NU, LAM * NU[:2].mean())


@pytest.fixture(scope="module")
def steps():
    """Both steps on some kernels of that kind."""
    *_, wholes = prior_draw(np.random.default_rng(0))
    model = MutualKernelCompletion(
        dict(zip(NAMES, wholes, strict=True)),
        MASKS.T,
        lam=LAM,
        nu=NU,
        normalize=False,
    )
    pair = [step(model=model) for step in (MutualImputation, MutualPosterior)]
    for step in pair:
        step.tuning = FRESH_SWEEPS
    return model.problem, *pair


def blocks(kernel, Q):
    """Missing blocks of a whole kernel, as the steps have them."""
    v, h = kernel.visible, kernel.hidden
    hv, hh = Q[np.ix_(h, v)], Q[np.ix_(h, h)]
    schur = hh - hv @ np.linalg.solve(Q[np.ix_(v, v)], hv.T)
    packed = TRIANGLES[len(h)].pack(np.linalg.cholesky(schur))
    return {f"Qhh_v_{kernel.name}": packed} | ({f"Qhv_{kernel.name}": hv} if len(v) else {})


def whole(kernel, values):
    """The kernel (l, l) of its missing blocks."""
    v, h = kernel.visible, kernel.hidden
    Q = np.empty((N, N))
    factor = TRIANGLES[len(h)].unpack(values[f"Qhh_v_{kernel.name}"])
    Q[np.ix_(v, v)] = kernel.values
    hv = values.get(f"Qhv_{kernel.name}", np.empty((len(h), 0)))
    Q[np.ix_(h, v)], Q[np.ix_(v, h)] = hv, hv.T
    Q[np.ix_(h, h)] = factor @ factor.T + hv @ np.linalg.solve(kernel.values, hv.T)
    return Q


def functionals(M, wholes):
    """Joint functionals with light tails under the prior, sizes of the steps' noise among them."""
    log_det = np.array([np.linalg.slogdet(A)[1] for A in (M, *wholes)])
    ratios = [np.log(np.trace(np.linalg.solve(M, Q))) for Q in wholes]
    sizes = [imputation_noise(MASKS[k], M, wholes[k]) for k in (0, 1)]
    weighted = LAM * NU[:2].mean() * np.eye(N) + np.tensordot(NU, wholes, axes=1)
    return [*log_det, *ratios, *sizes, posterior_noise(M, weighted)]


def imputation_noise(mask, M, Q):
    """Log of the sum of squares of Q_hv about its mean, whitened, but for nu."""
    seen, own = np.ix_(mask, mask), np.ix_(~mask, ~mask)
    across = np.ix_(~mask, mask)
    B = np.linalg.solve(M[seen], M[across].T)
    D = Q[across] - B.T @ Q[seen]
    C = M[own] - M[across] @ B
    return np.log(np.trace(np.linalg.solve(C, D) @ np.linalg.solve(Q[seen], D.T)))


def posterior_noise(M, weighted):
    """Log of the sum of squared correlations of M, whitened by what it is drawn about."""
    root = np.linalg.cholesky(weighted)
    white = np.linalg.solve(root, np.linalg.solve(root, M).T)
    d = np.sqrt(np.diagonal(white))
    return np.log(np.sum(np.tril(white / np.outer(d, d), -1) ** 2))


def prior_draws(replicates):
    """Draws from the prior and their functionals."""
    rng = np.random.default_rng(2)
    draws = [prior_draw(rng) for _ in range(replicates)]
    return draws, np.array([functionals(*draw) for draw in draws])


@pytest.fixture(scope="module")
def prior():
    return prior_draws(1_000)


def joint_test(steps, prior):
    """Each step, one after the other, leaves the joint law of everything as it is."""
    given, *pair = steps
    draws, before = prior
    rng = np.random.default_rng(3)
    after = {step.name: [] for step in pair}
    for M, wholes in draws:
        kernels = [kernel_of(*each) for each in zip(NAMES, MASKS, wholes, strict=True)]
        values = {"M": TRIANGLES[N].pack(np.linalg.cholesky(M))}
        for kernel, Q in zip(kernels, wholes, strict=True):
            values |= blocks(kernel, Q)
        for step in pair:
            step._problem = replace(given, kernels=tuple(kernels))
            step._known = [Known.of(kernel) for kernel in kernels]
            drawn, _ = step.sweep(values, rng)
            values = values | dict(drawn)
            L = TRIANGLES[N].unpack(values["M"])
            moved = [whole(kernel, values) for kernel in kernels]
            after[step.name].append(functionals(L @ L.T, moved))
    for functionals_after in after.values():
        same_law(before, np.array(functionals_after))


def test_sweep_leaves_the_joint_law(steps, prior):
    joint_test(steps, prior)


@pytest.mark.slow
def test_sweep_leaves_the_joint_law_in_a_long_run(steps):
    joint_test(steps, prior_draws(15_000))


def whole_noise(monkeypatch):
    monkeypatch.setattr(mutual_completion, "FRESH", 1.0)


def noise_of_a_stale_matrix(monkeypatch):
    """The noise of M is that of the M of another state."""
    right, last = mutual_completion.draw_model_matrix, [np.eye(N)]

    def wrong(half, df, rng, *, start):
        stale, last[0] = last[0], start
        return right(half, df, rng, start=stale)

    monkeypatch.setattr(mutual_completion, "draw_model_matrix", wrong)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [whole_noise, noise_of_a_stale_matrix])
def test_a_bug_of_the_overrelaxation_is_detected(steps, prior, monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        joint_test(steps, prior)


@pytest.mark.slow
@pytest.mark.parametrize("change", [1, 1 - N])
def test_wrong_degrees_of_freedom_are_detected(steps, prior, change):
    """One too many, and what is beyond l - 1 taken for the whole."""
    problem, *pair = steps
    with pytest.raises(AssertionError):
        joint_test((replace(problem, nu=problem.nu + change), *pair), prior_draws(15_000))
