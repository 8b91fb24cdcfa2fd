"""MAP of the composite-kernel models: a mode of the declaration's density, climbed to steadily."""

import json
import tracemalloc

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy import stats

import kernelzoo as kz
from kernelzoo.inference.composite_kernel import map as composite_kernel
from kernelzoo.inference.composite_kernel.map import find_composite_kernel_mode
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.mode import search_by_gradients
from kernelzoo.inference.paper_engines import BY_GRADIENTS, PaperEngine

RUN = Run(random_seed=1, progressbar=False)
QUIET = {"random_seed": 1, "progressbar": False, "log_likelihood": False}
UNIFORM = kz.combinations.DirichletWeights(varphi=1)
MODELS = pytest.mark.parametrize(
    "model_type", [kz.CompositeKernelRegression, kz.CompositeKernelClassification]
)


def stack_and_response(seed, n=30, noise=0.3):
    """Three kernels, each on a feature of its own: the response depends on the first two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    kernels = {
        name: np.exp(-0.5 * (x[:, None] - x) ** 2) for name, x in zip("abc", X.T, strict=True)
    }
    response = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + noise * rng.normal(size=n)
    return kernels, response


def build(model_type, kernels, response, **options):
    if model_type is kz.CompositeKernelClassification:
        response = response > np.median(response)
    return model_type(kernels, response, **({"combination": UNIFORM} | options))


def answer_of(model, **settings):
    return find_composite_kernel_mode(model, RUN, **settings)


def with_weights(model, values):
    """The same declaration, the weights at the answer as data: their gradient has no transform."""
    options = {"sigma": model.sigma, "varsigma": model.varsigma, "bias": model.bias}
    if isinstance(model, kz.CompositeKernelRegression):
        data, options = model.target_values, options | {"rho": model.rho, "varrho": model.varrho}
    else:
        data = model.label_codes
    weights = kz.combinations.FixedWeights(values["beta"])
    return type(model)(model["K"].get_value(), data, combination=weights, **options)


def density_and_gradients(model, values):
    """Log density of the declared variables, gradients in those and in the weights, compiled."""
    logp = model.logp(jacobian=False)
    inputs = [*model.value_vars, model["beta"]]
    function = pm.compile(
        model.value_vars, [logp, *pytensor.grad(logp, inputs)], mode="FAST_COMPILE"
    )
    point = {
        var.name: np.log(values[var.name.removesuffix("_log__")])
        if var.name.endswith("_log__")
        else values[var.name]
        for var in model.value_vars
    }
    density, *gradients = function(**point)
    return float(density), dict(zip([var.name for var in inputs], gradients, strict=True))


@pytest.mark.parametrize(
    ("model_type", "seed", "bias"),
    [
        (kz.CompositeKernelRegression, 3, True),
        (kz.CompositeKernelRegression, 3, False),
        (kz.CompositeKernelClassification, 4, True),
    ],
)
def test_answer_is_a_mode_of_the_declared_density(model_type, seed, bias):
    kernels, response = stack_and_response(seed)
    noise = {"rho": 3.0, "varrho": 0.4} if model_type is kz.CompositeKernelRegression else {}
    model = build(model_type, kernels, response, bias=bias, sigma=0.5, varsigma=0.25, **noise)
    answer = answer_of(model, tolerance=1e-14)
    values = answer.values
    assert answer.converged == "yes"
    density, gradients = density_and_gradients(with_weights(model, values), values)
    np.testing.assert_allclose(gradients["alpha"], 0, atol=1e-5)
    # A mode in log phi with the Jacobian, which adds one; of gamma on its own scale.
    np.testing.assert_allclose(gradients["phi_log__"], -1, atol=1e-10)
    if "gamma" in values:
        np.testing.assert_allclose(gradients["gamma_log__"], 0, atol=1e-10)
    slope, used = gradients["beta"], values["beta"] > 0
    assert 2 <= used.sum() < 3  # of both kinds, so that the next lines test something
    np.testing.assert_allclose(slope[used], slope.max(), atol=1e-5)
    assert (slope[~used] < slope.max() - 1e-3).all()
    # The uniform density on the simplex of three is 2. PyMC's constants are of single precision.
    np.testing.assert_allclose(answer.log_density, density + np.log(2), atol=2e-6)
    final = answer.climbs[answer.best][-1]
    np.testing.assert_allclose(final, answer.log_density + np.log(values["phi"]).sum(), rtol=1e-10)


def marginal(model, alpha, beta, gamma):
    """Log density with phi integrated out, up to a constant: alpha is Student t."""
    f = np.tensordot(beta, model.design, axes=1) @ alpha
    scale = np.sqrt(model.varsigma / model.sigma)
    prior = stats.t.logpdf(alpha, 2 * model.sigma, scale=scale).sum()
    if isinstance(model, kz.CompositeKernelClassification):
        return prior + stats.bernoulli.logpmf(model.label_codes, 1 / (1 + np.exp(-f))).sum()
    noise = stats.norm.logpdf(model.target_values, f, gamma**-0.5).sum()
    return prior + noise + stats.gamma.logpdf(gamma, model.rho, scale=1 / model.varrho)


@MODELS
def test_nothing_nearby_is_more_probable_with_phi_integrated_out(model_type):
    kernels, response = stack_and_response(3)
    model = build(model_type, kernels, response)
    values = answer_of(model, tolerance=1e-12).values
    alpha, beta, gamma = values["alpha"], values["beta"], values.get("gamma", 1.0)
    highest = marginal(model, alpha, beta, gamma)
    rng = np.random.default_rng(0)
    for size in np.repeat([1e-3, 1e-2, 0.1], 100):
        moved = marginal(
            model,
            alpha + size * rng.normal(size=len(alpha)),
            (1 - size) * beta + size * rng.dirichlet(np.ones(3)),
            gamma * np.exp(size * rng.normal()),
        )
        assert moved < highest


@pytest.mark.parametrize("seed", [*range(9), pytest.param(9, marks=pytest.mark.slow)])
@MODELS
def test_density_never_falls(model_type, seed):
    rng = np.random.default_rng(seed)
    n, n_kernels, n_basis = rng.integers((5, 2, 2), (25, 12, 25))
    stack = rng.normal(size=(n_kernels, n, n_basis)) * np.exp(rng.normal(size=(n_kernels, 1, 1)))
    model = build(
        model_type,
        xr.DataArray(
            stack,
            dims=("kernel", "obs", "basis"),
            coords={"basis": [f"phi{m}" for m in range(n_basis)]},
        ),
        rng.normal(size=n),
        sigma=float(np.exp(rng.normal())),
        varsigma=float(np.exp(2 * rng.normal())),
    )
    answer = answer_of(model, starts=4, tolerance=1e-7)
    for climb in answer.climbs:
        assert (np.diff(climb) >= -1e-11 * np.abs(climb[1:])).all()
    assert answer.climbs[answer.best][-1] == max(climb[-1] for climb in answer.climbs)
    assert answer.converged == "yes"


def test_little_noise_does_not_stall_the_weights():
    """While alpha stands still they may move by tiny steps only: thousands of iterations."""
    kernels, response = stack_and_response(0, n=80, noise=0.01)
    model = build(kz.CompositeKernelRegression, kernels, response, rho=1e-2, varrho=1e-4)
    answer = answer_of(model, max_iterations=200, starts=1)
    assert answer.converged == "yes"
    assert answer.values["gamma"] > 1000
    assert answer.values["beta"][:2].min() > 0.1


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_steps_of_the_weights_that_are_too_long_are_shortened(seed):
    """As many functions as objects, so that the weights' own curvature is small."""
    rng = np.random.default_rng(seed)
    stack = kz.kernels.as_stack(10 * rng.normal(size=(4, 12, 13)))
    model = build(kz.CompositeKernelRegression, stack, rng.normal(size=12))
    assert answer_of(model, max_iterations=60, starts=1).converged == "yes"


def test_best_of_several_starts_wins():
    """Uniform weights lead to a lower mode than the first and the last kernel alone."""
    kernels, response = stack_and_response(1)
    model = build(kz.CompositeKernelClassification, kernels, response, sigma=0.5, varsigma=0.25)
    answer = answer_of(model)
    finals = np.array([climb[-1] for climb in answer.climbs])
    assert len(finals) == len(answer.ends["beta"]) == 4 * len(composite_kernel.RIDGES)
    assert answer.best == finals.argmax()
    np.testing.assert_array_equal(answer.ends["beta"][answer.best], answer.values["beta"])
    one = answer_of(model, starts=1)
    assert [climb[-1] for climb in one.climbs] == list(finals[::4])
    assert finals.max() - finals[::4].max() > 0.02
    assert np.abs(one.values["beta"] - answer.values["beta"]).max() > 0.01
    assert len(answer_of(model, starts=6).climbs) == 6 * len(composite_kernel.RIDGES)


def sonar():
    """Half of the sonar echoes, on three kernels."""
    data = kz.datasets.load("sonar").split(test_size=0.5, seed=2005, standardize=False)
    kernels = (kz.gaussian(0.5) | kz.linear() | kz.polynomial(2)).normalize("trace")
    return kernels(data.X_train), np.where(data.y_train == "R", 1.0, -1.0)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_starts_are_ridge_regressions_in_units_of_the_kernel(scale):
    """The penalty is a share of the mean diagonal of K'WK, so that units change no response."""
    kernels, response = stack_and_response(3)
    kernels = {name: scale * K for name, K in kernels.items()}
    model = build(kz.CompositeKernelRegression, kernels, response)
    likelihood = composite_kernel._Normal(response, model.rho, model.varrho)
    alternation = composite_kernel._Alternation(model.design, likelihood, 1.0, 1.0, 1e-6)
    K = model.design[0]
    for ridge in composite_kernel.RIDGES:
        f = alternation.start(np.eye(3)[0], ridge).f
        penalty = ridge * np.mean(np.diag(K.T @ K)) * np.eye(K.shape[1])
        np.testing.assert_allclose(f, K @ np.linalg.solve(K.T @ K + penalty, K.T @ response))


@MODELS
def test_sparse_priors_let_functions_grow(model_type, monkeypatch):
    """From alpha = 0, where phi is largest, they stay small: a mode far below others."""
    model = build(model_type, *sonar(), sigma=0.01, varsigma=0.01)
    highest = max(climb[-1] for climb in answer_of(model, starts=1).climbs)
    monkeypatch.setattr(composite_kernel, "RIDGES", (1e12,))
    assert answer_of(model, starts=1).climbs[0][-1] < highest - 1


def test_scale_of_the_targets_leaves_something_to_find():
    """Targets in other units than the prior expects: alpha = 0 is a mode, and the lower one."""
    kernels, response = stack_and_response(3)
    with pytest.warns(UserWarning, match="Targets given to .* a standard deviation of 1.53e"):
        model = build(kz.CompositeKernelRegression, kernels, 1e6 * response)
    values = answer_of(model).values
    f = np.tensordot(values["beta"], model.design, axes=1) @ values["alpha"]
    assert np.corrcoef(f, response)[0, 1] > 0.5


def test_known_weights_leave_a_ridge_regression():
    kernels, response = stack_and_response(1)
    weights = [0.3, 0.0, 0.9]
    model = build(
        kz.CompositeKernelRegression,
        kernels,
        response,
        combination=kz.combinations.FixedWeights(weights),
    )
    answer = answer_of(model, tolerance=1e-14)
    assert set(answer.values) == {"alpha", "phi", "gamma"}
    assert len(answer.climbs) == len(composite_kernel.RIDGES)
    K = np.column_stack([np.ones(30), np.tensordot(weights, np.array(list(kernels.values())), 1)])
    alpha, phi, gamma = (answer.values[name] for name in ("alpha", "phi", "gamma"))
    ridge = np.linalg.solve(K.T @ K + np.diag(phi) / gamma, K.T @ response)
    np.testing.assert_allclose(alpha, ridge, atol=1e-6)
    np.testing.assert_allclose(phi, 3 / (alpha**2 + 2))
    np.testing.assert_allclose(gamma, 30 / (np.sum((response - K @ alpha) ** 2) + 2))


def test_many_kernels_take_little_more_memory_than_themselves():
    """Products of kernels in pairs would take 100 times the stack."""
    n = 100
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(n, n)))[0].T
    stack = U[:, :, None] * U[:, None, :]
    model = build(kz.CompositeKernelClassification, stack, rng.normal(size=n))
    tracemalloc.start()
    answer_of(model, max_iterations=3, starts=2, tolerance=1e3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.5 * stack.nbytes


def test_engine_gives_the_point_the_climb_and_what_they_are():
    model = kz.CompositeKernelRegression.example(combination=UNIFORM)
    tree = kz.fit(model, "map", **QUIET)
    assert set(tree["point"].data_vars) == {"alpha", "beta", "phi", "gamma"}
    assert tree["point"]["beta"].dims == ("kernel",)
    assert tree["trajectory"]["objective"].sizes["start"] == 3 * len(composite_kernel.RIDGES)
    assert tree.attrs["converged"] == "yes"
    assert tree.attrs["lp_measure"] == "constrained"
    assert 0 <= tree.attrs["expected_gain"] <= 1e-6
    best = tree["trajectory"].attrs["best_start"]
    climb = tree["trajectory"]["objective"].isel(start=best).dropna("iteration")
    ends = tree["trajectory"]["beta_of_start"]
    assert ends.dims == ("start", "kernel")
    xr.testing.assert_equal(ends.isel(start=best, drop=True).rename("beta"), tree["point"]["beta"])
    log_phi = float(np.log(tree["point"]["phi"]).sum())
    np.testing.assert_allclose(tree["sample_stats"]["lp"], float(climb[-1]) - log_phi)
    settings = {"max_iterations": 2000, "tolerance": 1e-6, "starts": None}
    assert json.loads(tree.attrs["settings"]) == settings


def test_unfinished_climb_warns():
    kernels, response = stack_and_response(3)
    model = build(kz.CompositeKernelRegression, kernels, response)
    with pytest.warns(UserWarning, match="MAP did not converge in 2 iterations"):
        tree = kz.fit(model, kz.MAP(max_iterations=2), **QUIET)
    assert tree.attrs["converged"] == "no"
    assert tree.attrs["expected_gain"] > 1e-6
    assert (tree["trajectory"]["beta_of_start"].std("start") > 0.01).any()


def test_interrupted_climb_returns_the_best_so_far(monkeypatch):
    update, calls = composite_kernel._Alternation.update, []

    def interrupted(self, state):
        calls.append(None)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return update(self, state)

    monkeypatch.setattr(composite_kernel._Alternation, "update", interrupted)
    kernels, response = stack_and_response(3)
    with pytest.warns(UserWarning, match="MAP was interrupted"):
        answer = answer_of(build(kz.CompositeKernelRegression, kernels, response))
    assert answer.converged == "no"
    assert [len(climb) for climb in answer.climbs] == [4]
    np.testing.assert_allclose(answer.values["beta"].sum(), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"starts": 0}, "'starts' argument of MAP on .* must be .* Got 0"),
        ({"max_iterations": 0}, "'max_iterations' argument"),
        ({"tolerance": 0.0}, "'tolerance' argument"),
        ({"space": "unconstrained"}, "not take .space., .* It takes max_iterations"),
    ],
)
def test_settings_are_checked(settings, message):
    model = kz.CompositeKernelRegression.example(combination=UNIFORM)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, kz.MAP(**settings), **QUIET)


@pytest.mark.parametrize(
    ("model_type", "options", "reason"),
    [
        (kz.CompositeKernelRegression, {"collapsed": True}, "integrates out"),
        (
            kz.CompositeKernelRegression,
            {"combination": kz.combinations.DirichletWeights()},
            "varphi=1)",
        ),
        (
            kz.CompositeKernelClassification,
            {"combination": kz.combinations.DirichletWeights()},
            "uniform",
        ),
        (
            kz.CompositeKernelClassification,
            {"combination": kz.combinations.DirichletWeights(varphi=2)},
            "uniform on the simplex or known",
        ),
    ],
)
def test_gradients_take_over_where_the_alternation_does_not_apply(model_type, options, reason):
    model = model_type.example(**({"combination": UNIFORM} | options))
    own, why = PaperEngine.verdict(kz.MAP(), model)
    assert own.function is find_composite_kernel_mode
    assert reason in why
    assert kz.MAP().verdict(model) == (BY_GRADIENTS, None)
    assert kz.MAP().algorithm(model).function is search_by_gradients


def test_one_object_with_a_vague_noise_has_no_mode():
    model = kz.CompositeKernelRegression(np.ones((2, 1, 1)), [1.0], rho=0.5, combination=UNIFORM)
    assert "N + 2 rho > 2" in PaperEngine.verdict(kz.MAP(), model)[1]
