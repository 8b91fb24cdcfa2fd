"""Both steps of mutual completion as PyMC runs them, scales and degrees of freedom learned."""

from dataclasses import replace

import numpy as np
import pytest

from kernelzoo.custom_steps.mutual_completion import Known, MutualImputation, MutualPosterior
from kernelzoo.custom_steps.packed_factor import Triangle
from kernelzoo.models.mutual_kernel_blocks import GammaExcess
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import MASKS, joint_draw, kernel_of, same_law

# An excess near zero gives kernels that round to singular matrices.
N, LAM, SPREAD, SHAPE, MEAN = len(MASKS[0]), 0.4, 0.5, 8.0, 6.0
NAMES = ("a", "b", "c")
TRIANGLES = {n: Triangle(n) for n in range(1, N + 1)}


def prior_draw(rng):
    """Degrees of freedom beyond l - 1, scales, M and whole kernels."""
    excess = rng.gamma(SHAPE, MEAN / SHAPE, len(MASKS))
    nu = N - 1 + excess
    scales = nu * SPREAD / 2 / rng.standard_gamma(nu * SPREAD / 2)
    # The kernel that no object has says nothing about lambda'.
    M, wholes = joint_draw(rng, nu, scales, LAM * nu[:2].mean())
    return excess, scales, M, wholes


@pytest.fixture(scope="module")
def steps():
    """Both steps on some kernels of that kind."""
    *_, wholes = prior_draw(np.random.default_rng(0))
    model = MutualKernelCompletion(
        dict(zip(NAMES, wholes, strict=True)),
        MASKS.T,
        lam=LAM,
        nu=GammaExcess(SHAPE, MEAN),
        spread=SPREAD,
        normalize=False,
    )
    return model.problem, MutualImputation(model=model), MutualPosterior(model=model)


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


def functionals(excess, scales, M, wholes):
    """Joint functionals with light tails under the prior."""
    log_det = np.array([np.linalg.slogdet(A)[1] for A in (M, *wholes)])
    ratios = [np.log(np.trace(np.linalg.solve(M, Q))) for Q in wholes]
    logs = np.concatenate([np.log(excess), np.log(scales)])
    return [*logs, *log_det, *ratios, *(np.log(scales) * ratios), *(np.log(excess) * ratios)]


def joint_test(steps, replicates=1_500):
    """A sweep of both leaves the joint law of everything as it is."""
    given, imputation, posterior = steps
    rng = np.random.default_rng(3)
    before, after = [], []
    for _ in range(replicates):
        excess, scales, M, wholes = prior_draw(rng)
        before.append(functionals(excess, scales, M, wholes))
        kernels = [kernel_of(*each) for each in zip(NAMES, MASKS, wholes, strict=True)]
        for step in (imputation, posterior):
            step._problem = replace(given, kernels=tuple(kernels))
            step._known = [Known.of(kernel) for kernel in kernels]
        values = {"excess": excess, "s": scales, "M": TRIANGLES[N].pack(np.linalg.cholesky(M))}
        for kernel, Q in zip(kernels, wholes, strict=True):
            values |= blocks(kernel, Q)
        for step in (imputation, posterior):
            drawn, _ = step.sweep(values, rng)
            values = values | dict(drawn)
        L = TRIANGLES[N].unpack(values["M"])
        wholes = [whole(kernel, values) for kernel in kernels]
        after.append(functionals(values["excess"], values["s"], L @ L.T, wholes))
    same_law(np.array(before), np.array(after))


def test_sweep_leaves_the_joint_law(steps):
    joint_test(steps)


@pytest.mark.slow
def test_sweep_leaves_the_joint_law_in_a_long_run(steps):
    joint_test(steps, replicates=15_000)


def test_scales_left_out_of_the_posterior_step_are_detected(steps, monkeypatch):
    monkeypatch.setattr(MutualPosterior, "_scales", lambda step, values: np.ones(len(MASKS)))
    with pytest.raises(AssertionError):
        joint_test(steps)


@pytest.mark.slow
def test_scales_left_out_of_the_imputation_are_detected(steps, monkeypatch):
    monkeypatch.setattr(MutualImputation, "_scales", lambda step, values: np.ones(len(MASKS)))
    with pytest.raises(AssertionError):
        joint_test(steps)


@pytest.mark.parametrize(
    ("step", "change", "replicates"),
    [
        pytest.param(MutualImputation, 1, 15_000, marks=pytest.mark.slow),
        pytest.param(MutualPosterior, 1, 15_000, marks=pytest.mark.slow),
        (MutualPosterior, 1 - N, 1_500),
    ],
)
def test_a_wrong_degree_of_freedom_is_detected(steps, monkeypatch, step, change, replicates):
    """One too many, and what is beyond l - 1 taken for the whole."""
    right = step._freedom
    monkeypatch.setattr(step, "_freedom", lambda self, values: right(self, values) + change)
    with pytest.raises(AssertionError):
        joint_test(steps, replicates)
