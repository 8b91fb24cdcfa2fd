import arviz as az
import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm

import kernelzoo as kz
from kernelzoo.models.gaussian_process import JITTER

REGRESSION, CLASSIFICATION = kz.GaussianProcessRegression, kz.GaussianProcessClassification
PRIOR = kz.LearnedScale(3.0, 1.0)


def fit(model, **options):
    return kz.fit(model, "inla", progressbar=False, **{"random_seed": 1, "draws": 200} | options)


def kernel(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, kz.gaussian(0.5)(X)


def without(log_evidence):
    """Log p(t_n | t_-n) of the evidences of all and of all but n."""
    return log_evidence[0] - log_evidence[1:]


def test_regression_is_that_of_the_prior_sampled():
    rng = np.random.default_rng(0)
    X, K = kernel(8)
    targets = X[:, 0] + 0.3 * rng.normal(size=8)
    model = REGRESSION(K, targets, scale=PRIOR, gamma=PRIOR)
    C = model.kernel_values()[0] + JITTER * np.eye(8)
    s, gamma = np.exp(rng.normal(np.log(3.0), 1.0, size=(2, 20_000)))
    V = s[:, None, None] * C + np.eye(8) / gamma[:, None, None]

    def evidence(kept):
        part, t = V[:, kept][:, :, kept], targets[kept]
        squares = t @ np.linalg.solve(part, t[:, None])[..., 0].T
        logs = -0.5 * (squares + np.linalg.slogdet(part)[1] + len(t) * np.log(2 * np.pi))
        return logsumexp(logs) - np.log(len(logs))

    everything = np.arange(8)
    exact = without(np.array([
        evidence(everything), *(evidence(np.delete(everything, n)) for n in range(8))
    ]))  # fmt: skip
    loo = kz.scores.loo(fit(model))
    assert np.allclose(loo.elpd_i, exact, atol=0.05)
    assert loo.elpd == pytest.approx(exact.sum(), abs=0.02 * 8)


@pytest.mark.parametrize("classes", [2, 3])
def test_classification_is_that_of_the_prior_sampled(classes):
    rng = np.random.default_rng(1)
    _, K = kernel(8)
    labels = np.array([0, 1, 0, 1, 1, 2, 2, 1]) % classes
    # Of several classes, the normal approximation is hopeful where the scale is large.
    prior = PRIOR if classes == 2 else kz.LearnedScale(1.0, 0.5)
    model = CLASSIFICATION(K, labels, scale=prior)
    root = np.linalg.cholesky(model.kernel_values()[0] + JITTER * np.eye(8))
    number = 100_000
    s = np.exp(rng.normal(np.log(prior.median), prior.sigma, size=number) / 2)
    functions = 1 if classes == 2 else 3
    f = s * np.tensordot(root, rng.normal(size=(8, functions, number)), axes=1)
    if classes == 2:
        p = expit(f[:, 0] * (2 * labels - 1)[:, None])
    else:
        p = np.exp(f[np.arange(8), labels] - logsumexp(f, axis=1))
    others = [np.delete(p, n, axis=0).prod(axis=0).mean() for n in range(8)]
    exact = np.log(p.prod(axis=0).mean()) - np.log(others)
    loo = kz.scores.loo(fit(model))
    assert np.allclose(loo.elpd_i, exact, atol=0.05)
    assert loo.elpd == pytest.approx(exact.sum(), abs=0.02 * 8)


def test_known_hyperparameters_and_outputs_are_left_out_in_closed_form():
    X, K = kernel(9)
    targets = np.column_stack([np.sin(X[:, 0]), X[:, 1]])
    model = REGRESSION(K, targets, scale=2.0, gamma=5.0)
    V = 2.0 * (model.kernel_values()[0] + JITTER * np.eye(9)) + np.eye(9) / 5
    for n in (0, 4):
        rest = np.delete(np.arange(9), n)
        weights = np.linalg.solve(V[rest][:, rest], V[rest, n])
        law = norm(weights @ targets[rest], np.sqrt(V[n, n] - weights @ V[rest, n]))
        found = fit(model)["left_out"]["t"].to_numpy()
        assert found.shape == (9, 2)
        assert np.allclose(found[n], law.logpdf(targets[n]))


def test_arviz_compares_it_with_its_own():
    # Ratios of az.loo are even where no observation matters much.
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 2))
    targets = X[:, 0] + 0.7 * rng.normal(size=40)
    model = REGRESSION(kz.gaussian(0.02)(X), targets, scale=PRIOR, gamma=2.0)
    result = fit(model, draws=4000)
    mine, theirs = kz.scores.loo(result), az.loo(result, pointwise=True)
    assert mine.elpd == pytest.approx(theirs.elpd, abs=0.3)
    assert mine.p == pytest.approx(theirs.p, abs=0.3)
    assert not mine.warning
    table = az.compare({"INLA": mine, "draws": theirs})
    assert {*table.index} == {"INLA", "draws"}


def test_other_results_are_refused():
    model = REGRESSION.example()
    with pytest.raises(ValueError, match="result of INLA with log_likelihood=True"):
        kz.scores.loo(fit(model, log_likelihood=False, draws=20))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_agrees_with_refits(classes):
    X, _ = kernel(30, seed=3)
    response = X[:, 0] + 0.7 * np.random.default_rng(4).normal(size=30)
    edges = [0.0] if classes == 2 else [-0.5, 0.5]
    answer = response if classes == 1 else np.digitize(response, edges)
    kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    stack = kernels(X)
    options = {"scale": PRIOR} | ({"gamma": PRIOR} if classes == 1 else {"classes": range(classes)})
    family = REGRESSION if classes == 1 else CLASSIFICATION
    loo = kz.scores.loo(fit(family(stack, answer, **options)))
    exact = np.empty(30)
    for n in range(30):
        rest = np.delete(np.arange(30), n)
        part = family(stack[:, rest, rest], answer[rest], **options)
        result = fit(part, draws=2000)
        new = stack[:, [n], rest].assign_coords(variance=(("kernel", "obs"), stack[:, [n], n].data))
        predicted = kz.predict(part, result, new, keep_draws=True, progressbar=False)
        if classes == 1:
            laws = (predicted[name].to_numpy() for name in ("mean_draws", "target_sd_draws"))
            by_draw = norm.logpdf(answer[n], *laws)
            exact[n] = logsumexp(by_draw) - np.log(by_draw.size)
        else:
            exact[n] = np.log(predicted["probability"].to_numpy()[0, answer[n]])
    # Refits have an error of their own, of their effective points.
    assert abs(loo.elpd_i.to_numpy() - exact).mean() < 0.02


@pytest.mark.slow
def test_agrees_with_nuts():
    X, K = kernel(30, seed=5)
    labels = (X[:, 0] + 0.7 * np.random.default_rng(6).normal(size=30) > 0).astype(int)
    model = CLASSIFICATION(K, labels, scale=PRIOR)
    nuts = kz.fit(model, "nuts", draws=2000, chains=4, random_seed=1, progressbar=False)
    theirs = az.loo(nuts, pointwise=True)
    mine = kz.scores.loo(fit(model))
    assert (theirs.pareto_k < 0.7).all()
    assert mine.elpd == pytest.approx(theirs.elpd, abs=0.3)
    differences = abs(mine.elpd_i.to_numpy() - theirs.elpd_i.to_numpy())
    assert differences.mean() < 0.02, differences
