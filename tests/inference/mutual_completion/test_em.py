"""EM of mutual completion: the printed steps, the objective, the mode of the declaration."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from kernelzoo.custom_steps.block import ValueMap
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.mutual_completion import em as mutual_kernel_completion
from kernelzoo.inference.mutual_completion.em import (
    MutualObjective,
    cholesky_factor,
    fit_mutual_kernel_completion,
    minimize,
)
from kernelzoo.inference.paper_engines import EM
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import problem_of, random_kernels, random_problem

RUN = Run(progressbar=False)


def kl(Q, M):
    """2 KL(Q, M) without ln|Q|."""
    return np.trace(np.linalg.solve(M, Q)) + np.linalg.slogdet(M)[1] - len(M)


def printed_objective(problem, M):
    """J by eq (2), the missing entries at their minimum, without ln|Q_vv|."""
    weights = problem.nu / problem.nu[problem.informative].mean()
    value = problem.lam * kl(np.eye(len(M)), M)
    for kernel, w in zip(problem.kernels, weights, strict=True):
        v = kernel.visible
        if len(v):
            value += w * kl(kernel.values, M[np.ix_(v, v)])
    return value / 2


def conditional_moments(kernel, M):
    """E[xx'] of x ~ N(0, M) whose visible part has second moments Q_vv, by the precision."""
    v, h = kernel.visible, kernel.hidden
    precision = np.linalg.inv(M)
    covariance = np.linalg.inv(precision[np.ix_(h, h)])
    regression = -covariance @ precision[np.ix_(h, v)]
    whole = np.empty_like(M)
    whole[np.ix_(v, v)] = kernel.values
    whole[np.ix_(h, v)] = regression @ kernel.values
    whole[np.ix_(v, h)] = whole[np.ix_(h, v)].T
    whole[np.ix_(h, h)] = covariance + regression @ kernel.values @ regression.T
    return whole


def some_matrix(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 2 * n))
    return x @ x.T / n + 0.1 * np.eye(n)


def stationary(problem, **options):
    objective = MutualObjective.of(problem)
    settings = {"max_iterations": 3_000, "tolerance": 1e-7, "memory": 5} | options
    found = minimize(objective, objective.start(means=True), **settings)
    return found, found.last.factor @ found.last.factor.T


@pytest.mark.parametrize("rank", [None, 2], ids=["full rank", "rank 2"])
def test_e_step_gives_the_conditional_moments(rank):
    """Catches a wrong regression, and a weight in the wrong place of the M-step."""
    problem = random_problem(7, 3, 1, rank=rank, nu=np.array([8.0, 11.0, 20.0]))
    objective, M = MutualObjective.of(problem), some_matrix(7)
    done = objective.evaluate(cholesky_factor(M))
    total = problem.lam * np.eye(7)
    for part in objective.parts:
        expected = conditional_moments(part.kernel, M)
        np.testing.assert_allclose(part.completed(M), expected, atol=1e-9)
        total += part.weight * expected
    np.testing.assert_allclose(done.target, total / (problem.lam + 3), atol=1e-9)


def test_objective_and_gradient_are_those_of_the_paper():
    """J by the KL divergences themselves; the residual by finite differences over M^-1."""
    problem = random_problem(6, 3, 2, missing=0.6, nu=np.array([8.0, 9.0, 30.0]))
    assert len({len(kernel.hidden) for kernel in problem.kernels}) > 1
    objective, M = MutualObjective.of(problem), some_matrix(6, 1)
    done = objective.evaluate(cholesky_factor(M))
    assert done.objective == pytest.approx(printed_objective(problem, M), rel=1e-12)
    rng, S, L = np.random.default_rng(3), np.linalg.inv(M), done.factor
    gradient = (problem.lam + 3) / 2 * (L @ done.residual @ L.T)
    for _ in range(4):
        D = rng.normal(size=(6, 6))
        D = 1e-5 * (D + D.T)
        up, down = (
            objective.evaluate(cholesky_factor(np.linalg.inv(S + sign * D))).objective
            for sign in (1, -1)
        )
        assert (up - down) / 2 == pytest.approx(np.sum(gradient * D), rel=1e-5)


@pytest.mark.parametrize("memory", [0, 5], ids=["plain", "accelerated"])
def test_objective_never_rises(memory):
    """30 random problems; a wrong sign or factor in any step makes some of them rise."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, n_kernels = int(rng.integers(3, 15)), int(rng.integers(2, 6))
        problem = random_problem(
            n,
            n_kernels,
            seed,
            missing=rng.uniform(0.1, 0.8),
            rank=None if seed % 2 else 2,
            lam=10 ** rng.uniform(-3, 0.5),
            nu=n + rng.uniform(0, 20, n_kernels),
        )
        found, M = stationary(problem, max_iterations=40, tolerance=1e-9, memory=memory)
        J = found.objective
        assert (np.diff(J) <= 1e-12 * np.abs(J[:-1]) + 1e-11).all(), seed
        assert J[-1] < J[0]
        assert np.linalg.eigvalsh(M)[0] > 0


def test_the_first_iterations_are_the_printed_ones():
    problem = random_problem(8, 3, 5)
    M = MutualObjective.of(problem).start(means=True)
    start = problem.lam * np.eye(8) + sum(kernel.with_means() for kernel in problem.kernels)
    np.testing.assert_allclose(M, start / (problem.lam + 3))
    for _ in range(4):
        M = problem.lam * np.eye(8) + sum(conditional_moments(k, M) for k in problem.kernels)
        M /= problem.lam + 3
    _, ours = stationary(problem, max_iterations=5, memory=0)
    np.testing.assert_allclose(ours, M, rtol=1e-9)


def test_algorithm_1_is_one_of_the_settings():
    """Its lines 2 to 11 from zeros; run long enough it ends where the accelerated one does."""
    kernels, visible = random_kernels(8, 3, 5)
    model = MutualKernelCompletion(kernels, visible, collapsed=True)
    printed = {"start": "zero", "memory": 0}
    completed = [kernel.with_zeros() for kernel in model.problem.kernels]
    for _ in range(6):
        M = (sum(completed) + 0.1 * np.eye(8)) / (0.1 + 3)
        completed = [conditional_moments(kernel, M) for kernel in model.problem.kernels]
    # The last line is an M-step.
    M = (sum(completed) + 0.1 * np.eye(8)) / (0.1 + 3)
    values = fit_mutual_kernel_completion(model, RUN, max_iterations=6, **printed).values
    np.testing.assert_allclose(values["M"], M, rtol=1e-9)
    for kernel, whole in zip(model.problem.kernels, completed, strict=True):
        found = values[f"EQ_{kernel.name}"]
        np.testing.assert_allclose(found, kernel.unit * whole, rtol=1e-9)
    plain = fit_mutual_kernel_completion(
        model, RUN, max_iterations=20_000, tolerance=1e-5, **printed
    )
    quick = fit_mutual_kernel_completion(model, RUN, tolerance=1e-5)
    assert plain.converged == quick.converged == "yes"
    np.testing.assert_allclose(plain.values["M"], quick.values["M"], atol=1e-4)


@pytest.mark.parametrize(("lam", "faster"), [(0.1, 3), (0.001, 20)])
def test_acceleration_reaches_the_same_minimum_in_fewer_steps(lam, faster, monkeypatch):
    problem = random_problem(20, 6, 6, missing=0.5, lam=lam)
    evaluate, evaluations = MutualObjective.evaluate, []
    monkeypatch.setattr(
        MutualObjective, "evaluate", lambda *given: evaluations.append(0) or evaluate(*given)
    )
    plain, M = stationary(problem, memory=0, max_iterations=50_000, tolerance=1e-4)
    of_plain = len(evaluations)
    _, M_quick = stationary(problem, tolerance=1e-4)
    assert plain.gradient <= 1e-4
    np.testing.assert_allclose(M_quick, M, atol=1e-3)
    assert (len(evaluations) - of_plain) * faster < of_plain


def test_a_small_change_is_no_sign_of_convergence():
    """Why the gradient decides: M moves by less than 1e-3 where J is far from its minimum."""
    problem = random_problem(20, 6, 6, missing=0.5, lam=0.001)
    _, best = stationary(problem)
    _, before = stationary(problem, memory=0, max_iterations=60)
    found, after = stationary(problem, memory=0, max_iterations=61)
    change = np.linalg.norm(after - before) / np.linalg.norm(after)
    assert change < 1e-3
    assert np.linalg.norm(after - best) / np.linalg.norm(best) > 20 * change
    assert found.gradient > 0.1


def test_kernels_without_visible_objects_change_nothing():
    kernels, visible = random_kernels(7, 3, 7)
    with_empty = np.concatenate([kernels, kernels[:1]])
    empty = np.column_stack([visible, np.zeros(7, dtype=bool)])
    _, M = stationary(problem_of(kernels, visible))
    _, other = stationary(problem_of(with_empty, empty, nu=np.array([8.0, 8.0, 8.0, 99.0])))
    np.testing.assert_allclose(other, M, atol=1e-9)


def test_order_of_objects_and_kernels_does_not_matter():
    kernels, visible = random_kernels(7, 3, 8)
    nu = np.array([8.0, 12.0, 30.0])
    objects, order = np.random.default_rng(1).permutation(7), [2, 0, 1]
    _, M = stationary(problem_of(kernels, visible, nu=nu))
    shuffled = kernels[order][:, objects][:, :, objects]
    _, other = stationary(problem_of(shuffled, visible[objects][:, order], nu=nu[order]))
    np.testing.assert_allclose(other, M[np.ix_(objects, objects)], atol=1e-6)


def test_zeros_can_end_in_a_saddle():
    """Two kernels without a common object: from zeros they stay unrelated, which is no minimum."""
    kernels, visible = random_kernels(8, 2, 9)
    visible[:] = False
    visible[:4, 0], visible[4:, 1] = True, True
    objective = MutualObjective.of(problem_of(kernels, visible))
    zero = minimize(objective, objective.start(means=False), 500, 1e-6, 5)
    M = zero.last.factor @ zero.last.factor.T
    assert np.abs(M[:4, 4:]).max() == 0
    assert zero.gradient <= 1e-6
    mean = minimize(objective, objective.start(means=True), 500, 1e-6, 5)
    assert mean.gradient <= 1e-6
    assert mean.objective[-1] < zero.objective[-1] - 1e-4


@pytest.mark.parametrize("nu", [0.5, 80.0])
def test_answer_is_the_mode_of_the_declaration_for_every_nu(nu):
    """Over M^-1; the declaration's log density is of M, hence the Jacobian."""
    kernels, visible = random_kernels(5, 3, 10)
    model = MutualKernelCompletion(kernels, visible, nu=nu, collapsed=True)
    answer = fit_mutual_kernel_completion(model, RUN, tolerance=1e-8)
    assert answer.converged == "yes"
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    packed = model.rvs_to_values[model["M"]]
    M = model.rvs_to_transforms[model["M"]].backward(packed)
    density = model.logp(jacobian=False) + 6 * pt.linalg.slogdet(M)[1]
    gradient = pytensor.function(values, pt.grad(density, values), mode="FAST_COMPILE")
    to_point = ValueMap(model, model.free_RVs)
    point = to_point.unconstrain({rv.name: answer.values[rv.name] for rv in model.free_RVs})
    at_answer = np.concatenate([g.ravel() for g in gradient(*(point[v.name] for v in values))])
    np.testing.assert_allclose(at_answer, 0, atol=1e-5 * nu)
    away = to_point.unconstrain({rv.name: 1.1 * answer.values[rv.name] for rv in model.free_RVs})
    elsewhere = np.concatenate([g.ravel() for g in gradient(*(away[v.name] for v in values))])
    assert np.abs(elsewhere).max() > 1e-2 * nu


@pytest.mark.parametrize(("collapsed", "Q_"), [(False, "Q"), (True, "EQ")])
def test_completed_kernels_are_in_the_units_given(collapsed, Q_):
    kernels, visible = random_kernels(6, 3, 11)
    kernels *= np.array([1.0, 50.0, 0.01])[:, None, None]
    visible[5, :2], visible[:, 2] = False, True
    model = MutualKernelCompletion(kernels, visible, collapsed=collapsed)
    values = fit_mutual_kernel_completion(model, RUN).values
    # Those of a collapsed model are expectations, and so have another name.
    assert {"M", f"{Q_}_K0", f"{Q_}_K1", f"trace_{Q_}", "log_det_M"} == values.keys()
    assert values.keys() <= model.named_vars.keys()
    for k in (0, 1):
        seen, Q = np.ix_(visible[:, k], visible[:, k]), values[f"{Q_}_K{k}"]
        np.testing.assert_allclose(Q[seen], kernels[k][seen])
        assert np.linalg.eigvalsh(Q)[0] > -1e-9
        assert values[f"trace_{Q_}"][k] == pytest.approx(np.trace(Q))
    log_det = np.linalg.slogdet(values["M"])[1]
    assert values["log_det_M"] == pytest.approx(log_det)


def test_rank_deficient_kernels_are_completed():
    """Entries of single precision make small negative eigenvalues, which no kernel has."""
    kernels, visible = random_kernels(12, 3, 12, rank=2)
    model = MutualKernelCompletion(kernels.astype(np.float32), visible, collapsed=True)
    answer = fit_mutual_kernel_completion(model, RUN)
    assert answer.converged == "yes"
    assert {"EQ_K0", "EQ_K1", "EQ_K2"} <= answer.values.keys()


def test_search_goes_on_while_the_gradient_falls():
    """J's rounding grows as lambda shrinks: a rise within it ended the search at 15 tolerances."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(12, 4))
    visible = np.ones((12, 3), dtype=bool)
    for k, hidden in enumerate(([0], [1, 2, 3], [5, 7, 9])):
        visible[hidden, k] = False
    noisy = [shared + 0.5 * rng.normal(size=shared.shape) for _ in range(3)]
    kernels = np.array([x @ x.T for x in noisy])
    model = MutualKernelCompletion(kernels, visible, lam=1e-4, collapsed=True)
    assert fit_mutual_kernel_completion(model, RUN).converged == "yes"


def test_search_ends_where_rounding_hides_the_descent():
    """Rank 2 and a tiny lambda: M is singular but for it, and J rose by tenths."""
    kernels, visible = random_kernels(12, 3, 9, rank=2)
    answers = [
        fit_mutual_kernel_completion(
            MutualKernelCompletion(kernels, visible, lam=lam, collapsed=True),
            RUN,
            max_iterations=400,
        )
        for lam in (1e-9, 1e-13)
    ]
    for answer in answers:
        rounding = np.finfo(float).eps * np.linalg.cond(answer.values["M"])
        assert (np.diff(answer.climbs[0]) > -2 * rounding).all()
    assert answers[1].converged == "no"
    assert "would raise J without lowering the gradient" in answers[1].note
    assert "because of rounding at lam=1e-13" in answers[1].note
    model = MutualKernelCompletion(kernels, visible, lam=1e-18, collapsed=True)
    with pytest.raises(ValueError, match=r"'lam' argument .* numerically singular"):
        fit_mutual_kernel_completion(model, RUN)


def test_what_the_result_says_when_rounding_ends_the_search(monkeypatch):
    monkeypatch.setattr(mutual_kernel_completion, "_rose", lambda *evaluations: True)
    model = MutualKernelCompletion(*random_kernels(8, 3, 13), collapsed=True)
    answer = fit_mutual_kernel_completion(model, RUN)
    assert answer.converged == "no"
    assert "make M singular" in answer.note
    assert "Increase lam or tolerance" in answer.note


def test_what_the_result_says_when_stopped_early():
    kernels, visible = random_kernels(8, 3, 13)
    answer = fit_mutual_kernel_completion(
        MutualKernelCompletion(kernels, visible), RUN, max_iterations=2
    )
    assert answer.converged == "no"
    assert "After 2 iterations the gradient is" in answer.note
    assert len(answer.climbs[0]) == 2


def test_interruption_leaves_what_there_is():
    problem = random_problem(8, 3, 14)
    objective = MutualObjective.of(problem)

    def interrupt(objective, gradient):
        raise KeyboardInterrupt

    found = minimize(objective, objective.start(means=True), 100, 1e-9, 5, interrupt)
    assert len(found.objective) == 1
    assert found.gradient > 1e-9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iterations": 0}, "'max_iterations' argument"),
        ({"tolerance": -1.0}, "'tolerance' argument"),
        ({"start": "ones"}, "'start' argument"),
        ({"memory": -1}, "'memory' argument"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        fit(MutualKernelCompletion.example(), EM(**settings), progressbar=False)
