"""Degrees of freedom and scales given M: their density, and the joint law that they leave."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import multigammaln

from family import assert_ks
from kernelzoo.custom_steps.mutual_completion import degrees_of_freedom as mutual_freedom
from kernelzoo.custom_steps.mutual_completion.degrees_of_freedom import (
    ModelMatrix,
    VisibleBlock,
    draw_scales,
    log_density,
    slice_draw,
)
from kernelzoo.custom_steps.mutual_completion.steps import Known
from kernelzoo.models.completion.mutual_blocks import ExcessPrior
from kernelzoo.models.mutual_kernel_completion import CompletionProblem
from mutual_fixture import MASKS, joint_draw, kernel_of, same_law

N = MASKS.shape[1]
PRIOR = ExcessPrior(3.0, 0.75)
SPREAD = 2.0
KERNELS = tuple(kernel_of(name, mask, np.eye(N)) for name, mask in zip("abc", MASKS, strict=True))
# A lambda at which the prior of M says much of nu.
FREE = CompletionProblem(KERNELS, 4.0, None, PRIOR, SPREAD)


def free_draw(rng):
    """Excess, scales, M and visible blocks from the prior."""
    excess = rng.gamma(PRIOR.shape, 1 / PRIOR.rate, 3)
    nu = N - 1 + excess
    s = 1 / rng.gamma(nu * SPREAD / 2, 2 / (nu * SPREAD))
    M, wholes = joint_draw(rng, nu, s, FREE.strength(nu))
    return excess, s, M, wholes


def blocks_of(M, wholes):
    blocks = []
    for mask, Q in zip(MASKS, wholes, strict=True):
        known = Known.of(kernel_of("k", mask, Q))
        blocks.append(VisibleBlock.of(known.root, known.visible_factor(M)))
    return blocks, ModelMatrix.of(np.asfortranarray(np.linalg.cholesky(M)))


def test_density_of_freedom_is_that_of_the_declaration():
    rng = np.random.default_rng(2)
    for _ in range(3):
        excess, s, M, wholes = free_draw(rng)
        blocks, summary = blocks_of(M, wholes)
        ours, exact = [], []
        for moved in (excess, excess * [1.5, 1.0, 1.0], excess * [1.0, 1.0, 0.3], excess * 2):
            nu = N - 1 + moved
            strength = FREE.strength(nu)
            value = stats.gamma(PRIOR.shape, scale=1 / PRIOR.rate).logpdf(moved).sum()
            value += stats.invgamma(nu * SPREAD / 2, scale=nu * SPREAD / 2).logpdf(s).sum()
            value += stats.invwishart(strength + N + 1, strength * np.eye(N)).logpdf(M)
            for mask, Q, v, scale in zip(MASKS[:2], wholes, nu, s, strict=False):
                seen = np.ix_(mask, mask)
                value += stats.wishart(v, scale * M[seen] / v).logpdf(Q[seen])
            exact.append(value)
            ours.append(log_density(FREE, blocks, summary, moved, s))
        np.testing.assert_allclose(np.diff(ours), np.diff(exact), rtol=1e-9)


def prior_draws(replicates):
    """Excess, scales, and what their law takes of M and the visible blocks."""
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(replicates):
        excess, s, M, wholes = free_draw(rng)
        draws.append((excess, s, *blocks_of(M, wholes)))
    return draws


@pytest.fixture(scope="module")
def free_prior():
    return prior_draws(1_500)


def freedom_test(prior):
    """The draws of freedom and scales, one after the other, leave the joint law as it is."""
    rng = np.random.default_rng(4)
    before, after = [], []
    for excess, s, blocks, M in prior:
        new_excess = mutual_freedom.draw_excess(FREE, blocks, M, excess, s, rng)
        new_s = draw_scales(SPREAD, blocks, N - 1 + new_excess, rng)
        # KL(I, M), whose size lambda' says.
        distance = np.log(M.log_det + M.trace_of_inverse - N)
        log_ratios = [b.log_det_Q - b.log_det_M for b in blocks[:2]]
        others = np.arcsinh([M.log_det, M.trace_of_inverse, *(b.trace for b in blocks[:2])])
        for kept, e, scale in ((before, excess, s), (after, new_excess, new_s)):
            parameters = np.log([*e, *scale])
            given = np.outer(parameters, [*others, *log_ratios, distance])
            kept.append([*parameters, *given.ravel()])
    same_law(np.array(before), np.array(after))


def test_freedom_and_scales_leave_the_joint_law(free_prior):
    freedom_test(free_prior)


@pytest.mark.slow
def test_prior_of_M_forgotten_is_detected(monkeypatch):
    """Planted bug: lambda' depends on the degrees of freedom, and with it the prior of M."""
    right = mutual_freedom.log_density

    def forgetful(problem, blocks, M, excess, s):
        strength = problem.strength(N - 1 + excess)
        df = strength + N + 1
        of_M = df * N / 2 * np.log(strength / 2) - multigammaln(df / 2, N)
        of_M -= df / 2 * M.log_det + strength / 2 * M.trace_of_inverse
        return right(problem, blocks, M, excess, s) - of_M

    monkeypatch.setattr(mutual_freedom, "log_density", forgetful)
    with pytest.raises(AssertionError):
        freedom_test(prior_draws(2_500))


def test_missing_objects_counted_as_seen_are_detected(free_prior):
    """Planted bug: all l objects where only the n visible ones speak of scale and freedom."""
    wrong = [
        (excess, s, [b._replace(n=N) if b.n else b for b in blocks], M)
        for excess, s, blocks, M in free_prior
    ]
    with pytest.raises(AssertionError):
        freedom_test(wrong)


def test_slice_sampling_finds_a_normal_law():
    """Skewed by a logarithm, so that the slices are not symmetric: y = ln of a Gamma variable."""
    rng = np.random.default_rng(4)
    x, draws = 0.0, []
    for i in range(30_000):
        x = slice_draw(lambda y: 2.0 * y - np.exp(y), x, rng)
        if i % 20 == 0:
            draws.append(np.exp(x))
    assert_ks(draws, stats.gamma(2.0).cdf)
