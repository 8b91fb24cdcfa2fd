"""Gibbs on mutual completion inside PyMC, and where its mean goes as the freedom grows."""

import arviz as az
import numpy as np
import pytest

from family import assert_z
from kernelzoo.custom_steps.mutual_completion.steps import (
    ALPHA,
    FRESH_SWEEPS,
    MutualImputation,
    MutualPosterior,
)
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.generic import NUTS
from kernelzoo.inference.mutual_completion.em import MutualObjective, minimize
from kernelzoo.inference.mutual_completion.gibbs import mutual_kernel_completion_steps
from kernelzoo.inference.paper_engines import Gibbs
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import problem_of, random_kernels, sweeps

QUIET = {"random_seed": 1, "progressbar": False, "cores": 1, "log_likelihood": False}
RUN = Run(progressbar=False)


def test_steps_own_every_variable_once():
    model = MutualKernelCompletion.example()
    steps = mutual_kernel_completion_steps(model, RUN)
    assert [type(step) for step in steps] == [MutualImputation, MutualPosterior]
    owned = [value.name for step in steps for value in step.vars]
    assert sorted(owned) == sorted(value.name for value in model.value_vars)
    complete = MutualKernelCompletion(random_kernels(3, 2, 1)[0])
    assert [type(s) for s in mutual_kernel_completion_steps(complete, RUN)] == [MutualPosterior]


def test_sweeps_are_overrelaxed():
    """Noise of Q_hv along a chain with M held: its correlation is alpha, but for the first sweeps.

    Catches a chain that is never overrelaxed.
    """
    model = MutualKernelCompletion.example()
    step = mutual_kernel_completion_steps(model, RUN)[0]
    step.setup_chain(np.random.default_rng(1), 0, 1)
    point, trail = model.initial_point(), []
    for _ in range(4_000):
        point, _ = step.step(point)
        trail.append(point["Qhv_far"].ravel())
    trail = np.array(trail)[FRESH_SWEEPS:]
    trail -= trail.mean(axis=0)
    products = trail[1:] * trail[:-1] / trail.var(axis=0)
    # Batches that are long against the memory are independent.
    batches = products[:3_950].reshape(79, 50, -1).mean(axis=1)
    assert_z((batches.mean(axis=0) - ALPHA) / (batches.std(axis=0, ddof=1) / 79**0.5))


def test_collapsed_models_are_declined():
    kernels, visible = random_kernels(4, 2, 2)
    model = MutualKernelCompletion(kernels, visible, collapsed=True)
    assert "a collapsed model lacks" in Gibbs().why_not(model)


def test_fit_finds_the_exact_moments():
    """The whole way: steps, transforms, streamed moments in the units given."""
    kernels, visible = random_kernels(4, 2, 3)
    visible = np.array([[1, 1], [1, 1], [1, 1], [1, 0]], dtype=bool)
    model = MutualKernelCompletion(kernels, visible, lam=1.0, nu=[7.0, 9.0])
    kept = ["M", "Q_K1", "log_det_M"]
    result = fit(model, "gibbs", draws=1_000, tune=100, chains=2, var_names=kept, **QUIET)
    exact = fit(model, "exact", draws=4_000, var_names=kept, **QUIET)
    assert set(result["posterior"].data_vars) == set(kept)
    for name in ("M", "Q_K1"):
        mean, sd = (result["moments"][f"{name}_{x}"].mean("chain").values for x in ("mean", "sd"))
        theirs = exact["posterior"][name].values[0]
        free = sd > 1e-9
        ess = az.ess(result, var_names=[name])[name].values
        error = np.sqrt(sd**2 / ess + theirs.var(axis=0) / len(theirs))
        assert_z(((mean - theirs.mean(axis=0)) / error)[free])
        np.testing.assert_allclose(mean[~free], theirs[0][~free])
    seen = visible[:, 1]
    np.testing.assert_allclose(
        result["moments"]["Q_K1_mean"].mean("chain").values[np.ix_(seen, seen)],
        kernels[1][np.ix_(seen, seen)],
    )


def test_order_and_kernels_without_visible_objects_do_not_matter():
    """Objects and kernels in another order, and one more kernel of which nothing is seen.

    Catches degrees of freedom, units or positions that go to another kernel or object.
    """
    kernels = random_kernels(4, 3, 8)[0]
    visible = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=bool)
    nu = np.array([6.0, 9.0, 30.0])
    objects, order = np.array([2, 0, 3, 1]), [2, 0, 1]
    shuffled = kernels[order][:, objects][:, :, objects]
    other = problem_of(
        np.concatenate([shuffled, kernels[:1]]),
        np.column_stack([visible[objects][:, order], np.zeros(4, dtype=bool)]),
        lam=1.0,
        nu=np.array([*nu[order], 20.0]),
    )
    M = sweeps(problem_of(kernels, visible, lam=1.0, nu=nu), 4_000, 6)[100:]
    back = np.argsort(objects)
    theirs = sweeps(other, 4_000, 7)[100:, back[:, None], back]
    z = []
    for one, two in zip(*map(_logs_and_correlations, (M, theirs)), strict=True):
        error = np.hypot(*(d.std() / float(az.ess(d[None])) ** 0.5 for d in (one, two)))
        z.append((one.mean() - two.mean()) / error)
    assert len(z) == 10
    assert_z(z)


def test_mean_goes_to_the_answer_of_em_as_the_freedom_grows():
    """Over M^-1, where EM is the mode: at the rate 1/nu, because lambda' grows with nu."""
    kernels, visible = random_kernels(4, 3, 4)
    problem = problem_of(kernels, visible, lam=1.0)
    objective = MutualObjective.of(problem)
    factor = minimize(objective, objective.start(means=True), 500, 1e-8, 5).last.factor
    answer = np.linalg.inv(factor @ factor.T)
    gaps = []
    for nu in (20.0, 80.0, 320.0):
        problem = problem_of(kernels, visible, lam=1.0, nu=nu)
        mean = np.linalg.inv(sweeps(problem, 6_000, 5)[100:]).mean(axis=0)
        gaps.append(np.linalg.norm(mean - answer) / np.linalg.norm(answer))
    rates = np.log(np.array(gaps[:-1]) / gaps[1:]) / np.log(4)
    assert gaps[0] > 0.05
    assert rates == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_nuts_agrees_on_masks_that_are_not_nested():
    """Two samplers that share no line of code, where no formula tells the posterior.

    Logarithms and correlations of M and of completed kernels, and their squares: light tails.
    """
    kernels, _ = random_kernels(3, 2, 6)
    visible = np.array([[1, 0], [1, 1], [0, 1]], dtype=bool)
    model = MutualKernelCompletion(kernels, visible, lam=1.0, nu=[6.0, 7.5])
    kept = ["M", "Q_K0", "Q_K1", "log_det_M"]
    options = {**QUIET, "var_names": kept, "moments": []}
    gibbs = fit(model, "gibbs", draws=8_000, tune=200, chains=2, **options)
    nuts = fit(model, NUTS(backend="pymc"), draws=2_000, tune=1_000, chains=2, **options)
    z = []
    for one, other in zip(*map(_light_tailed, (gibbs, nuts)), strict=True):
        sample = np.concatenate([one.ravel(), other.ravel()])
        # Constants are what is visible.
        if np.ptp(sample) < 1e-8:
            continue
        for power in (1, 2):
            both = [(draws - sample.mean()) ** power for draws in (one, other)]
            ess = [float(az.ess(draws)) for draws in both]
            assert min(ess) > 200
            error = np.hypot(*(d.std() / e**0.5 for d, e in zip(both, ess, strict=True)))
            z.append((both[0].mean() - both[1].mean()) / error)
    assert len(z) > 20
    assert_z(z)


def _light_tailed(result):
    """Functionals (chain, draw) of M and the completed kernels."""
    posterior = result["posterior"]
    matrices = [posterior[name].values for name in ("M", "Q_K0", "Q_K1")]
    each = [values for Q in matrices for values in _logs_and_correlations(Q)]
    return [posterior["log_det_M"].values, *each]


def _logs_and_correlations(Q):
    """Logarithms of the diagonal of matrices (..., l, l), and correlations off it: (...) each."""
    logs = np.log(np.diagonal(Q, axis1=-2, axis2=-1))
    sizes = np.exp(logs / 2)
    rows, columns = np.tril_indices(Q.shape[-1], -1)
    correlations = Q[..., rows, columns] / (sizes[..., rows] * sizes[..., columns])
    return list(np.moveaxis(np.concatenate([logs, correlations], axis=-1), -1, 0))
