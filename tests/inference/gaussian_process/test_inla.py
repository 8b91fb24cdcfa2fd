import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, norm

import kernelzoo as kz
from kernelzoo.inference import Run
from kernelzoo.inference.gaussian_process import conditionals, inla
from kernelzoo.inference.gaussian_process.hyperparameters import Hyperparameters
from kernelzoo.inference.gaussian_process.inla import Posterior, integrate_gaussian_process
from kernelzoo.models import gaussian_process as declarations
from kernelzoo.models.gaussian_process import JITTER
from kernelzoo.numerics import feature_precision

REGRESSION, CLASSIFICATION = kz.GaussianProcessRegression, kz.GaussianProcessClassification


def features(n, rng=None):
    return (np.random.default_rng(0) if rng is None else rng).normal(size=(n, 2))


def with_widths(ard=True):
    X = features(7)
    targets = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]])
    kernels = kz.gaussian(kz.kernels.Theta(2, 3, ard=ard)) | kz.linear()
    return REGRESSION(kernels(X), targets)


def on_landmarks(n_classes=None, kernels=None, **options):
    X = pd.DataFrame(features(11), index=list("abcdefghijk"))
    kernels = kz.gaussian(0.7) | kz.linear() if kernels is None else kernels
    stack = kernels(X, X.loc[["c", "a", "i", "f"]])
    if n_classes is None:
        targets = np.column_stack([np.sin(2 * X[0]), X[1]])
        return REGRESSION(stack, targets, **options)
    return CLASSIFICATION(stack, np.arange(11) % n_classes, **options)


MODELS = {
    "regression": REGRESSION.example,
    "three classes": CLASSIFICATION.example,
    "two classes": lambda: CLASSIFICATION(features(9) @ features(9).T, np.arange(9) % 2),
    "outputs and widths": with_widths,
    "one width": lambda: with_widths(ard=False),
    "concentrations": lambda: REGRESSION.example(
        combination=kz.combinations.DirichletWeights(varphi=0.3), scale=2.0
    ),
    "landmarks, outputs": on_landmarks,
    "landmarks, two classes": lambda: on_landmarks(2),
    "landmarks, three classes": lambda: on_landmarks(3),
    "landmarks, widths": lambda: on_landmarks(
        3, kz.gaussian(kz.kernels.Theta(2, 3, ard=True)) | kz.linear()
    ),
    "landmarks, known": lambda: on_landmarks(2, scale=2.0, combination="fixed"),
    "known": lambda: CLASSIFICATION.example(scale=2.0, combination="fixed"),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def fit(model, engine="inla", **options):
    return kz.fit(model, engine, progressbar=False, **{"random_seed": 1} | options)


# Where the answer need not be accurate.
FEW_POINTS = kz.INLA(max_points=64)


def test_the_log_prior_is_the_declarations_density(model):
    hyperparameters = Hyperparameters(model)
    z = hyperparameters.start + 0.3 * np.random.default_rng(1).normal(size=hyperparameters.size)
    learned = [model[name] for name in hyperparameters.blocks]
    if not learned:
        assert hyperparameters.log_prior(z)[0] == 0
        return
    density = model.compile_fn(model.logp(learned, jacobian=False), point_fn=True)
    point, values = {}, hyperparameters.values(z)
    log_jacobian = 0.0
    for rv in learned:
        transform, value = model.rvs_to_transforms[rv], values[rv.name]
        value = value.reshape(rv.eval().shape)
        name = model.rvs_to_values[rv].name
        point[name] = transform.forward(pm.math.constant(value), *rv.owner.inputs).eval()
        log_jacobian += np.log(value).sum()
    # d beta / d log ratios is the product of all weights; d x / d log x is x.
    assert hyperparameters.log_prior(z)[0] == pytest.approx(density(point) + log_jacobian)


def test_the_covariance_is_the_declarations(model):
    hyperparameters = Hyperparameters(model)
    values = hyperparameters.values(hyperparameters.start)
    v = np.random.default_rng(2).normal(size=[len(model.coords[d]) for d in dims_of_v(model)])
    own = hyperparameters.covariance_of_landmarks(values)
    weights = np.linalg.solve(np.linalg.cholesky(own).T, v.reshape(len(v), -1))
    expected = (hyperparameters.covariance(values) @ weights).reshape(-1, *v.shape[1:])
    given = {name: each[None] for name, each in hyperparameters.as_declared(
        {name: values[name][None] for name in hyperparameters.blocks}
    ).items()}  # fmt: skip
    posterior = az.from_dict({"posterior": given | {"v": v[None, None]}})["posterior"]
    f = pm.compute_deterministics(posterior.to_dataset(), model=model, progressbar=False)["f"]
    assert np.allclose(f[0, 0], expected)


def dims_of_v(model):
    return model.named_vars_to_dims["v"]


def test_the_gradient_is_that_of_differences(model):
    posterior = Posterior.of(model)
    size = posterior.hyperparameters.size
    z = posterior.hyperparameters.start + 0.2 * np.random.default_rng(1).normal(size=size)
    _, gradient = posterior.with_gradient(z)
    for d in range(size):
        step = 1e-4 * np.eye(size)[d]
        above, below = (posterior.with_gradient(z + sign * step)[0] for sign in (1, -1))
        assert gradient[d] == pytest.approx((above - below) / 2e-4, abs=2e-4)


def test_draws_are_those_of_the_declaration(model):
    result = fit(model, FEW_POINTS, draws=20)
    mine = result["log_likelihood"]["t"].to_numpy()
    f = result["posterior"]["f"].to_numpy()
    free = {rv.name for rv in model.free_RVs}
    assert free | {"f"} == {*result["posterior"].data_vars}
    del result["log_likelihood"]
    pm.compute_log_likelihood(result, model=model, progressbar=False)
    # Noise of nearly zero variance multiplies rounding errors.
    assert np.allclose(mine, result["log_likelihood"]["t"], rtol=1e-4, atol=1e-4)
    posterior = result["posterior"].to_dataset()
    assert np.allclose(pm.compute_deterministics(posterior, model=model, progressbar=False)["f"], f)


def moments(result, name):
    """Mean and sd of a logarithm over the weighted points, and the points' effective number."""
    points = result["variational"].to_dataset()
    weights, values = points["weight"].to_numpy(), np.log(points[name].to_numpy())
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2), 1 / (weights**2).sum()


def test_regression_agrees_with_quadrature():
    rng = np.random.default_rng(0)
    X = features(10, rng)
    targets = X[:, 0] + 0.3 * rng.normal(size=10)
    model = REGRESSION(kz.gaussian(0.5)(X), targets)
    K = model.kernel_values()[0] + JITTER * np.eye(10)
    prior = kz.LearnedScale()
    # Log scale and log precision, out to four prior standard deviations.
    grid = np.log(prior.median) + prior.sigma * np.linspace(-4, 4, 161)
    # The covariance has the axes of K, whatever the scale and the precision.
    sizes, axes = np.linalg.eigh(K)
    variances = np.exp(grid)[:, None, None] * sizes + np.exp(-grid)[None, :, None]
    density = norm.logpdf(axes.T @ targets, scale=np.sqrt(variances)).sum(axis=-1)
    one = norm.logpdf(grid, np.log(prior.median), prior.sigma)
    density += one[:, None] + one
    mass = np.exp(density - logsumexp(density))
    evidence = logsumexp(density) + 2 * np.log(grid[1] - grid[0])
    result = fit(model, draws=50)
    assert result.attrs["pareto_k"] < 0.7
    assert result.attrs["log_evidence"] == pytest.approx(evidence, abs=0.15)
    for axis, name in ((1, "scale"), (0, "gamma")):
        marginal = mass.sum(axis)
        mean = marginal @ grid
        sd = np.sqrt(marginal @ (grid - mean) ** 2)
        found, found_sd, ess = moments(result, name)
        assert abs(found - mean) < 4 * sd / ess**0.5
        assert found_sd == pytest.approx(sd, rel=4 / (2 * ess) ** 0.5)


def test_classification_agrees_with_the_prior_sampled_on_a_grid():
    rng = np.random.default_rng(1)
    X, labels = features(8, rng), np.array([0, 1, 0, 1, 1, 0, 1, 1])
    model = CLASSIFICATION(kz.gaussian(0.5)(X), labels, scale=kz.LearnedScale(3.0, 1.0))
    root = np.linalg.cholesky(model.kernel_values()[0] + JITTER * np.eye(8))
    white = rng.normal(size=(100_000, 8)) @ root.T
    grid = np.log(3.0) + np.linspace(-4, 4, 41)
    signs = 2 * labels - 1
    evidence = np.array([np.exp(s / 2) * white * signs for s in grid])
    evidence = expit(evidence).prod(axis=2).mean(axis=1)
    density = evidence * norm.pdf(grid, np.log(3.0), 1.0)
    total = density.sum() * (grid[1] - grid[0])
    mean = density @ grid / density.sum()
    sd = np.sqrt(density @ (grid - mean) ** 2 / density.sum())
    result = fit(model, draws=4000)
    assert result.attrs["log_evidence"] == pytest.approx(np.log(total), abs=0.05)
    found, found_sd, _ = moments(result, "scale")
    assert found == pytest.approx(mean, abs=0.1 * sd)
    assert found_sd == pytest.approx(sd, rel=0.1)
    # The scores: by weighting draws of the prior.
    scores = np.exp(rng.normal(np.log(3.0), 1.0, 100_000) / 2)[:, None] * white
    weights = expit(scores * signs).prod(axis=1)
    exact = weights @ scores / weights.sum()
    spread = np.sqrt(weights @ (scores - exact) ** 2 / weights.sum())
    f = result["posterior"]["f"].to_numpy()[0]
    assert (abs(f.mean(0) - exact) < 0.12 * spread).all()
    assert np.allclose(f.std(0), spread, rtol=0.12)


def test_equal_problems_have_equal_answers():
    model = CLASSIFICATION.example(scale=5.0)
    order = np.random.default_rng(0).permutation(12)
    stack = model.kernel_values()
    shuffled = CLASSIFICATION(stack[:, order][:, :, order], model.label_codes[order], scale=5.0)
    halved = CLASSIFICATION(stack / 2, model.label_codes, scale=10.0)
    relabelled = CLASSIFICATION(stack, (model.label_codes + 1) % 3, scale=5.0)
    evidence = [
        Posterior.of(each).with_gradient(np.zeros(1))[0]
        for each in (model, shuffled, halved, relabelled)
    ]
    assert np.allclose(evidence, evidence[0], atol=1e-5)


class Normal:
    """A posterior that is standard normal, explored from elsewhere."""

    def with_gradient(self, z):
        return -0.5 * float(z @ z), -z

    def log_density(self, z):
        return float(norm.logpdf(z).sum()), ()


class Bar:
    def advance(self, **info):
        pass


def test_points_are_weighted_as_draws_of_all_rounds():
    points = inla.explore(Normal(), np.array([3.0, -2.0]), 256, np.random.default_rng(0), Bar())
    mean = points.weights @ points.z
    sd = np.sqrt(points.weights @ (points.z - mean) ** 2)
    ess = 1 / np.square(points.weights).sum()
    assert ess > 60
    assert (abs(mean) < 4 / ess**0.5).all()
    assert np.allclose(sd, 1.0, atol=4 / (2 * ess) ** 0.5)
    assert points.log_evidence == pytest.approx(0.0, abs=0.1)
    assert points.k_hat < 0.5


def test_seeds_repeat_a_fit_and_differ():
    model = CLASSIFICATION.example()
    first, again, other = (fit(model, FEW_POINTS, draws=10, random_seed=seed) for seed in (1, 1, 2))
    assert first["posterior"]["f"].equals(again["posterior"]["f"])
    assert not first["posterior"]["f"].equals(other["posterior"]["f"])


def test_empirical_bayes_keeps_the_hyperparameters_at_their_mode():
    model = REGRESSION.example()
    result = kz.fit(model, kz.INLA(integrate=False), draws=20, random_seed=1, progressbar=False)
    assert (result["posterior"]["scale"] == result["posterior"]["scale"][0, 0]).all()
    assert "log_evidence" not in result.attrs
    assert "mode" in result.attrs["note"]
    posterior = Posterior.of(model)
    values = result["variational"].to_dataset().isel(point=0)
    log_ratio = float(np.log(values["beta"][0] / values["beta"][1]))
    z = [np.log(values["scale"].item()), log_ratio, np.log(values["gamma"].item())]
    assert np.allclose(posterior.with_gradient(np.array(z))[1], 0, atol=1e-2)


def test_known_hyperparameters_have_an_evidence_and_draws():
    model = REGRESSION.example(scale=2.0, gamma=4.0, combination="fixed")
    result = fit(model, draws=10)
    K = 2.0 * (model.kernel_values().mean(0) + JITTER * np.eye(8)) + np.eye(8) / 4
    law = multivariate_normal(np.zeros(8), K)
    posterior = Posterior.of(model)
    assert posterior.with_gradient(np.empty(0))[0] == pytest.approx(law.logpdf(model.target_values))
    assert result.attrs["converged"] == "yes"


def test_an_interrupt_keeps_the_points_so_far(monkeypatch):
    model, seen = CLASSIFICATION.example(), []
    density = Posterior.log_density

    def interrupted(self, z):
        seen.append(z)
        if len(seen) > 40:
            raise KeyboardInterrupt
        return density(self, z)

    monkeypatch.setattr(Posterior, "log_density", interrupted)
    output = integrate_gaussian_process(model, Run(random_seed=1, progressbar=False))
    # The first evaluation is the mode's own.
    assert len(output.weights) == 39


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_with_all_objects_as_landmarks_the_evidence_is_the_same(n_classes):
    X = pd.DataFrame(features(11), index=list("abcdefghijk"))
    kernels = kz.gaussian(0.7) | kz.linear()
    stacks = kernels.landmarks(11)(X), kernels(X)
    if n_classes is None:
        models = [REGRESSION(stack, np.sin(2 * X[0])) for stack in stacks]
    else:
        models = [CLASSIFICATION(stack, np.arange(11) % n_classes) for stack in stacks]
    assert not models[0].whole
    found = []
    for model in models:
        posterior = Posterior.of(model)
        z = posterior.hyperparameters.start + 0.3
        found.append((*posterior.with_gradient(z), posterior.log_density(z)[0]))
    (value, gradient, density), (exact, slopes, other) = found
    assert value == pytest.approx(exact, abs=1e-6)
    assert np.allclose(gradient, slopes, atol=1e-4)
    assert density == pytest.approx(other, abs=1e-3)


def test_landmarks_evidence_of_targets_is_that_of_scipy():
    model = on_landmarks(scale=2.0, gamma=4.0, combination="fixed")
    hyperparameters = Hyperparameters(model)
    values = hyperparameters.values(np.empty(0))
    cross = hyperparameters.covariance(values)
    own = hyperparameters.covariance_of_landmarks(values)
    law = multivariate_normal(cov=cross @ np.linalg.solve(own, cross.T) + np.eye(11) / 4)
    posterior = Posterior.of(model)
    expected = law.logpdf(model.target_values.T).sum()
    assert posterior.with_gradient(np.empty(0))[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("joint", [True, False])
def test_many_objects_or_classes_have_the_approximation_at_the_mode(monkeypatch, joint):
    monkeypatch.setattr(conditionals, "PROPAGATED", 5)
    if not joint:
        monkeypatch.setattr(feature_precision, "COUPLED", 0)
    model = on_landmarks(3)
    result = kz.fit(model, kz.INLA(integrate=False), draws=4000, random_seed=1, progressbar=False)
    values = {name: each.to_numpy()[0] for name, each in result["variational"].data_vars.items()}
    known = {name: np.atleast_1d(values[name]) for name in ("scale", "beta")}
    fit = Posterior.of(model).conditionals.at(known, None).fit
    covariances = fit.covariances()
    f = result["posterior"]["f"].to_numpy()[0]
    sd = np.sqrt(np.einsum("ncc->nc", covariances))
    assert (abs(f.mean(0) - fit.mean) < 5 * sd / 4000**0.5).all()
    assert np.allclose(f.std(0), sd, rtol=0.08)
    assert result.attrs["converged"] == "yes"


def test_scores_of_many_objects_are_drawn_on_request(monkeypatch):
    monkeypatch.setattr(declarations, "KEPT", 10)
    model = on_landmarks(2)
    kept = fit(model, FEW_POINTS, draws=10)
    assert set(kept["posterior"].data_vars) == {"v", "scale", "beta"}
    assert kept["log_likelihood"]["t"].shape == (1, 10, 11)
    asked = fit(model, FEW_POINTS, draws=10, var_names=["v", "scale", "beta", "f"])
    assert asked["posterior"]["v"].equals(kept["posterior"]["v"])
    assert np.allclose(asked["log_likelihood"]["t"], kept["log_likelihood"]["t"], atol=1e-6)
    scales = fit(model, FEW_POINTS, draws=10, var_names=["scale"])["posterior"]["scale"]
    assert (scales > 0).all()


def test_learned_concentrations_are_refused_with_the_reason():
    model = REGRESSION.example(combination=kz.combinations.DirichletWeights())
    with pytest.raises(ValueError, match="needs known concentrations"):
        fit(model)
    assert kz.engines(model).frame.loc["NUTS", "applies"] == "yes"


def test_a_result_predicts_after_it_was_saved(tmp_path):
    X = features(9)
    model = CLASSIFICATION(kz.gaussian(0.5)(X), np.arange(9) % 3)
    result = fit(model, FEW_POINTS, draws=20)
    result.to_netcdf(tmp_path / "result.nc")
    loaded = az.from_netcdf(tmp_path / "result.nc")
    new = kz.gaussian(0.5)(X[:3] + 0.1, X)
    one, other = (kz.predict(model, each, new, progressbar=False) for each in (result, loaded))
    assert np.allclose(one["probability"], other["probability"])


@pytest.mark.parametrize("family", [REGRESSION, CLASSIFICATION])
def test_inla_is_recommended(family):
    model = family.example()
    choice = kz.recommend(model)
    assert isinstance(choice.engine, kz.INLA)
    assert [*choice.frame.index[:2]] == ["INLA", "NUTS"]
    assert "pareto_k" in choice.title
    # A recommendation of chains is for models that INLA does not serve.
    learned = family.example(combination=kz.combinations.DirichletWeights())
    assert isinstance(kz.recommend(learned).engine, kz.NUTS)


@pytest.mark.slow
@pytest.mark.parametrize("landmarks", [None, 8])
@pytest.mark.parametrize("classes", [2, 3])
def test_agrees_with_nuts(classes, landmarks):
    rng = np.random.default_rng(3)
    X = features(30, rng)
    labels = np.digitize(
        X[:, 0] + 0.7 * rng.normal(size=30), [0.0] if classes == 2 else [-0.5, 0.5]
    )
    kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    kernels = kernels if landmarks is None else kernels.landmarks(landmarks)
    model = CLASSIFICATION(kernels(X), labels, scale=kz.LearnedScale(10.0, 1.5))
    inla = fit(model, draws=4000)
    nuts = kz.fit(model, "nuts", draws=2000, chains=4, random_seed=1, progressbar=False)
    assert inla.attrs["pareto_k"] < 0.7

    def quantities(result):
        posterior = result["posterior"].to_dataset()
        f = posterior["f"]
        f = f - f.mean("class") if "class" in f.dims else f
        log_beta = np.log(posterior["beta"])
        parts = [np.log(posterior["scale"]), log_beta[..., 0] - log_beta[..., 1]]
        columns = [part.to_numpy().reshape(-1, 1) for part in parts]
        return np.hstack([*columns, f.to_numpy().reshape(columns[0].shape[0], -1)])

    mine, theirs = quantities(inla), quantities(nuts)
    sd = theirs.std(0)
    assert (abs(mine.mean(0) - theirs.mean(0)) < 0.15 * sd).all()
    assert np.allclose(mine.std(0), sd, rtol=0.15)


def test_the_mode_alone_has_no_evidence(monkeypatch):
    """Bug: a fit that ended at the mode gave its density there for the evidence."""

    def ended(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(inla, "explore", ended)
    result = kz.fit(
        kz.GaussianProcessRegression.example(), "inla", draws=10, random_seed=1, progressbar=False
    )
    assert result["variational"].sizes["point"] == 1
    assert "log_evidence" not in result.attrs
    assert "at their mode" in result.attrs["note"]
