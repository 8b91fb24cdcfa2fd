"""I- and P-step of mutual completion against the joint law of M and kernels."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from family import assert_mean
from kernelzoo.custom_steps.mutual_completion import steps as mutual_completion
from kernelzoo.custom_steps.mutual_completion.steps import (
    ALPHA,
    FRESH_SWEEPS,
    Known,
    Missing,
    MutualImputation,
    MutualPosterior,
    draw_model_matrix,
    impute,
    missing_square,
)
from kernelzoo.models.completion.incomplete import IncompleteKernel, half_of_visible
from kernelzoo.models.multinomial_probit import MultinomialProbit
from kernelzoo.models.mutual_kernel_completion import CompletionProblem, MutualKernelCompletion
from kernelzoo.numerics.packed_factor import triangle
from mutual_fixture import MASKS, joint_draw, kernel_of, same_law, sweeps

N, LAM = len(MASKS[0]), 0.4
NU = np.array([5.4, 7.9, 6.2])
STRENGTH = LAM * NU[:2].mean()


def i_step(M, wholes, rng, nu=NU):
    """Missing parts of the kernels redrawn."""
    new = []
    for mask, Q, v in zip(MASKS, wholes, nu, strict=True):
        known = Known.of(kernel_of("k", mask, Q))
        missing = impute(known, M, v, rng)
        half = half_of_visible([known.kernel], [1.0], N, 0.0)
        hh = missing_square(known, missing)
        known.kernel.add_missing(half, missing.hv, hh, 1.0)
        new.append(half + half.T)
    return M, new


def p_step(M, wholes, rng, weights=NU):
    """M redrawn."""
    half = (STRENGTH * np.eye(N) + np.tensordot(weights, wholes, axes=1)) / 2
    L = draw_model_matrix(half, STRENGTH + N + 1 + NU.sum(), rng)
    return L @ L.T, wholes


def functionals(M, wholes):
    """Joint functionals (replicate, functional) of M (replicate, ...) and the kernels.

    They have light tails under the prior.
    """
    everything = [M, *np.moveaxis(wholes, 1, 0)]
    logs = np.array([np.linalg.slogdet(a)[1] for a in everything])
    L = np.linalg.cholesky(M)
    diagonals = np.array([np.diagonal(a, axis1=1, axis2=2) for a in everything])
    values = [*logs, *(logs[0] * logs[1:])]
    for Q, diagonal in zip(everything[1:], diagonals[1:], strict=True):
        white = np.linalg.solve(L, np.linalg.solve(L, Q).swapaxes(1, 2))
        own = np.diagonal(white, axis1=1, axis2=2)
        below = white[:, *np.tril_indices(N, -1)]
        values += [np.arcsinh(own.sum(axis=1)), np.log(np.linalg.eigvalsh(Q)[:, -1])]
        values += [*np.log(own).T, *np.log(diagonal).T, *np.arcsinh(below).T]
    for i, j in ((0, 1), (1, 2), (0, 3)):
        r = [
            a[:, i, j] / np.sqrt(d[:, i] * d[:, j])
            for a, d in zip(everything, diagonals, strict=True)
        ]
        values += [*r, *(r[0] * other for other in r[1:])]
    return np.array(values).T


@pytest.fixture(scope="module")
def prior():
    """Joint draws, stacked, and their functionals."""
    rng = np.random.default_rng(1)
    draws = [joint_draw(rng, NU, STRENGTH) for _ in range(1_500)]
    M, wholes = map(np.array, zip(*draws, strict=True))
    return M, wholes, functionals(M, wholes)


def joint_test(step, prior):
    """A step leaves the joint law of M and the kernels as it is.

    Paired differences of the functionals have mean zero, and each has the distribution that it has
    in replicates that no step has touched.
    """
    M, wholes, before = prior
    rng = np.random.default_rng(2)
    moved_to = [step(m, list(Q), rng) for m, Q in zip(M, wholes, strict=True)]
    after = functionals(*map(np.array, zip(*moved_to, strict=True)))
    same_law(before, after)


def test_imputation_leaves_the_joint_law(prior):
    joint_test(i_step, prior)


def test_posterior_step_leaves_the_joint_law(prior):
    joint_test(p_step, prior)


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("step", [i_step, p_step])
def test_wrong_degrees_of_freedom_are_detected(monkeypatch, prior, step, change):
    right = mutual_completion.Bartlett

    class Wrong(right):
        @classmethod
        def draw(cls, df, n, rng):
            return right.draw(df + change, n, rng)

    monkeypatch.setattr(mutual_completion, "Bartlett", Wrong)
    with pytest.raises(AssertionError):
        joint_test(step, prior)


def test_degrees_of_freedom_of_another_kernel_are_detected(prior):
    with pytest.raises(AssertionError):
        joint_test(lambda M, wholes, rng: i_step(M, wholes, rng, NU[::-1]), prior)


def test_a_forgotten_weight_is_detected(prior):
    """Planted bug: one weight for all completed kernels in the P-step."""
    with pytest.raises(AssertionError):
        joint_test(lambda M, wholes, rng: p_step(M, wholes, rng, np.full(3, NU.mean())), prior)


def test_packed_form_is_that_of_the_transform():
    model = MutualKernelCompletion.example()
    transform = model.rvs_to_transforms[model["M"]]
    M = stats.wishart(6, np.eye(4)).rvs(random_state=1)
    packed = transform.forward(M).eval(mode="FAST_COMPILE")
    layout = triangle(4)
    np.testing.assert_allclose(layout.unpack(packed), np.linalg.cholesky(M), atol=1e-12)
    np.testing.assert_allclose(layout.pack(layout.unpack(packed)), packed)


def test_draws_that_round_to_singular_matrices_stay_finite():
    """Degrees of freedom close to l - 1: chi2 draws underflow to 0."""
    _, wholes = joint_draw(np.random.default_rng(4), NU, STRENGTH)
    known = Known.of(kernel_of("k", MASKS[0], wholes[0]))
    M, layout = wholes[1], triangle(2)
    smallest, rng = np.inf, np.random.default_rng(1)
    for _ in range(20):
        missing = impute(known, M, N - 1 + 1e-4, rng)
        smallest = min(smallest, np.diagonal(missing.factor).min())
        assert np.isfinite(layout.pack(missing.factor)).all()
    assert smallest == 0


def test_nothing_given_is_modified():
    rng = np.random.default_rng(5)
    M, wholes = joint_draw(rng, NU, STRENGTH)
    M.flags.writeable = False
    kept = M.copy()
    known = Known.of(kernel_of("k", MASKS[0], wholes[0]))
    missing = impute(known, M, 6.0, rng)
    copies = [x.copy() for x in (known.root, *missing)]
    for x in (known.root, *missing):
        x.flags.writeable = False
    impute(known, M, 6.0, rng, start=missing.hv)
    missing_square(known, Missing(*missing))
    half = np.eye(N) / 2
    draw_model_matrix(half, 9.0, rng)
    np.testing.assert_array_equal(half, np.eye(N) / 2)
    np.testing.assert_array_equal(M, kept)
    for old, new in zip(copies, (known.root, *missing), strict=True):
        np.testing.assert_array_equal(old, new)


def overrelaxed(step_class):
    """The step past its fresh sweeps."""
    _, wholes = joint_draw(np.random.default_rng(8), NU, STRENGTH)
    model = MutualKernelCompletion(np.array(wholes), MASKS.T, nu=NU, normalize=False)
    step = step_class(model=model)
    step.tuning = FRESH_SWEEPS
    return step, model.problem.kernels


def state(kernels, rng):
    """Values that the steps start from, another M each time."""
    M, _ = joint_draw(rng, NU, STRENGTH)
    values = {"M": triangle(N).pack(np.linalg.cholesky(M))}
    for kernel in kernels:
        n, m = len(kernel.visible), len(kernel.hidden)
        values[f"Qhh_v_{kernel.name}"] = rng.normal(size=m * (m + 1) // 2)
        if n:
            values[f"Qhv_{kernel.name}"] = rng.normal(size=(m, n))
    return values, M


def test_imputation_moves_the_noise_to_the_new_matrix(monkeypatch):
    """Nothing fresh: the way of Q_hv from its mean under M, times alpha.

    Catches the M of another sweep.
    """
    monkeypatch.setattr(mutual_completion, "FRESH", 0.0)
    step, kernels = overrelaxed(MutualImputation)
    rng = np.random.default_rng(9)
    for _ in range(2):
        values, M = state(kernels, rng)
        new, _ = step.sweep(values, rng)
        for kernel in kernels[:2]:
            v, h, name = kernel.visible, kernel.hidden, f"Qhv_{kernel.name}"
            B = np.linalg.solve(M[np.ix_(v, v)], M[np.ix_(v, h)])
            mean = B.T @ kernel.values
            expected = mean + ALPHA * (values[name] - mean)
            np.testing.assert_allclose(new[name], expected, rtol=1e-9, atol=1e-12)


def test_posterior_step_with_all_noise_kept_has_that_of_the_matrix_now(monkeypatch):
    """Correlation 1 off the diagonal: the noise is that of M now.

    Catches the noise of another M, and one that is taken apart otherwise than it is put together.
    """
    monkeypatch.setattr(mutual_completion, "ALPHA", 1.0)
    monkeypatch.setattr(mutual_completion, "FRESH", 0.0)
    rng = np.random.default_rng(10)
    for _ in range(2):
        scale, M = (stats.wishart(9, np.eye(N)).rvs(random_state=rng) for _ in range(2))
        R, start = np.linalg.cholesky(scale), np.linalg.cholesky(M)
        new = draw_model_matrix(scale / 2, 9.0, rng, start=np.asfortranarray(start))
        # L = R A^-T with an upper triangular A.
        before, after = (np.linalg.solve(L, R).T for L in (start, new))
        above = np.triu_indices(N, 1)
        np.testing.assert_allclose(after[above], before[above], rtol=1e-9, atol=1e-12)


def test_posterior_of_two_objects_by_quadrature():
    """Masks that are not nested: a kernel of both objects, and one of each alone."""
    visible = np.array([[1, 1, 0], [1, 0, 1]], dtype=bool)
    blocks = (np.array([[1.2, 0.5], [0.5, 0.8]]), np.array([[1.6]]), np.array([[0.5]]))
    kernels = tuple(
        IncompleteKernel(name, Q, np.flatnonzero(mask), np.flatnonzero(~mask), 1.0)
        for name, Q, mask in zip("abc", blocks, visible.T, strict=True)
    )
    problem = CompletionProblem(kernels, 1.5, np.array([4.0, 5.0, 6.0]))
    strength = problem.strength
    # M = LL' with log diagonal a, c and lower entry b; log Jacobian 2 log 2 + 3a + 2c.
    a, b, c = np.meshgrid(
        np.linspace(-2, 2.5, 61), np.linspace(-4, 5, 91), np.linspace(-2, 2.5, 61), indexing="ij"
    )
    M = np.moveaxis(
        np.array([[np.exp(2 * a), np.exp(a) * b], [np.exp(a) * b, b**2 + np.exp(2 * c)]]),
        (0, 1),
        (-2, -1),
    )
    log_det, inverse = 2 * (a + c), np.linalg.inv(M)
    log_density = 3 * a + 2 * c - (strength + 6) / 2 * log_det
    log_density -= strength / 2 * np.trace(inverse, axis1=-2, axis2=-1)
    for kernel, v in zip(kernels, problem.nu, strict=True):
        seen = np.ix_(kernel.visible, kernel.visible)
        block = M[(..., *seen)]
        log_density -= v / 2 * np.linalg.slogdet(block)[1]
        log_density -= v / 2 * np.trace(np.linalg.solve(block, kernel.values), axis1=-2, axis2=-1)
    weights = np.exp(log_density - log_density.max())
    edges = [weights[i].sum() for i in (0, -1)] + [weights[:, i].sum() for i in (0, -1)]
    assert max(edges) < 1e-6 * weights.sum()
    weights /= weights.sum()

    trail = sweeps(problem, 15_000, 6)[100:]
    quantities = (
        lambda M: np.log(M[..., 0, 0]),
        lambda M: np.log(M[..., 1, 1]),
        lambda M: M[..., 0, 1] / np.sqrt(M[..., 0, 0] * M[..., 1, 1]),
        lambda M: np.log(M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] ** 2),
        lambda M: M[..., 0, 1] * M[..., 1, 1] / (1 + M[..., 1, 1] ** 2),
    )
    for quantity in quantities:
        exact = float(np.sum(weights * quantity(M)))
        # Batches that are long against the chain's memory are independent.
        batches = quantity(trail).reshape(149, 100).mean(axis=1)
        assert_mean(batches, exact)


def test_steps_inside_pymc_own_what_is_free():
    """Catches wrong names, order or transforms on the way from and to PyMC's points."""
    masks = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], dtype=bool)
    rng = np.random.default_rng(7)
    kernels = stats.wishart(7, np.eye(4)).rvs(3, random_state=rng)
    model = MutualKernelCompletion(kernels, masks)
    steps = [MutualImputation(model=model), MutualPosterior(model=model)]
    owned = {value.name for step in steps for value in step.vars}
    assert owned == {value.name for value in model.value_vars}
    point = model.initial_point()
    for step in steps:
        step.setup_chain(np.random.default_rng(1), 0, 1)
        new, _ = step.step(point)
        assert list(new) == list(point)
        moved = {name for name in new if not np.array_equal(new[name], point[name])}
        assert moved == {value.name for value in step.vars}
        assert all(np.isfinite(value).all() for value in new.values())
        point = new


def test_other_models_and_variables_are_refused():
    with pytest.raises(TypeError, match="needs a MutualKernelCompletion"):
        MutualImputation(model=MultinomialProbit.example())
    model = MutualKernelCompletion.example()
    with pytest.raises(ValueError, match=r"must be M. Got \['Qhv_far'\]"):
        MutualPosterior([model["Qhv_far"]], model=model)
    collapsed = MutualKernelCompletion(np.array([np.eye(3)] * 2), collapsed=True)
    with pytest.raises(ValueError, match="not collapsed"), collapsed:
        MutualPosterior()
    assert isinstance(collapsed, pm.Model)
