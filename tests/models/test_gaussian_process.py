"""The declarations of Gaussian processes on landmarks: their densities, and what they refuse."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.special import log_softmax
from scipy.stats import norm

import kernelzoo as kz
from kernelzoo.models.gaussian_process import JITTER

N_OBJECTS = 9
KERNELS = kz.gaussian(0.4) | kz.linear()


@pytest.fixture
def X():
    values = np.random.default_rng(0).normal(size=(N_OBJECTS, 2))
    return pd.DataFrame(values, index=list("abcdefghi"))


def declared(kernels, n_classes, **options):
    return kz.GaussianProcessClassification(kernels, np.arange(N_OBJECTS) % n_classes, **options)


def scores(model, v):
    """The declaration's f at equal weights and the scale 2, as a function of v."""
    f, given = model["f"], {model["v"]: v, model["scale"]: 2.0, model["beta"]: [0.5, 0.5]}
    return f.eval(given) if "beta" in {rv.name for rv in model.free_RVs} else f.eval()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_the_projected_process(X, n_classes):
    model = declared(KERNELS(X, X.loc[["h", "b", "e"]]), n_classes)
    assert model.landmarks.tolist() == [7, 1, 4]
    assert model.named_vars_to_dims["v"][0] == "basis"
    v = np.random.default_rng(1).normal(size=[len(model.coords[d]) for d in dims_of_v(model)])
    K = KERNELS(X).mean("kernel").to_numpy()
    raised = K + JITTER * K[[7, 1, 4], [7, 1, 4]].mean() * np.eye(N_OBJECTS)
    root = np.linalg.cholesky(raised[np.ix_(model.landmarks, model.landmarks)])
    expected = np.sqrt(2) * raised[:, model.landmarks] @ np.linalg.solve(root.T, v)
    assert np.allclose(scores(model, v), expected)


def dims_of_v(model):
    return model.named_vars_to_dims["v"]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_all_objects_as_landmarks_it_is_the_whole_declaration(X, n_classes):
    columns = KERNELS.landmarks(N_OBJECTS)(X)
    model = declared(columns, n_classes)
    order = model.landmarks
    assert sorted(order) == list(range(N_OBJECTS))
    assert not model.whole
    whole = declared(KERNELS(X.iloc[order]), n_classes)
    assert whole.whole
    v = np.random.default_rng(1).normal(size=[len(model.coords[d]) for d in dims_of_v(model)])
    assert np.allclose(scores(model, v)[order], scores(whole, v))


def test_the_density_has_a_gradient(X):
    model = kz.GaussianProcessRegression(KERNELS.landmarks(4)(X), X[0])
    point = model.initial_point()
    rng = np.random.default_rng(0)
    point = {name: value + 0.3 * rng.normal(size=value.shape) for name, value in point.items()}
    density, slope = model.compile_logp(), model.compile_dlogp()(point)
    flat, step = [], 1e-6
    for name, value in point.items():
        for index in np.ndindex(value.shape):
            moved = np.array(value)
            moved[index] += step
            above = density(point | {name: moved})
            moved[index] -= 2 * step
            flat.append((above - density(point | {name: moved})) / (2 * step))
    assert np.allclose(slope, flat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["target", "two targets", "two classes", "three classes"])
def test_the_density_is_that_of_scipy(X, kind):
    rng = np.random.default_rng(0)
    codes = np.arange(N_OBJECTS) % (2 if kind == "two classes" else 3)
    targets = X[0] if kind == "target" else X
    responses = targets if "target" in kind else codes
    family = kz.GaussianProcessRegression if "target" in kind else kz.GaussianProcessClassification
    model = family(KERNELS(X), responses)
    # The weights stay equal, where their uniform prior has the density 1.
    point = model.initial_point()
    moved = {name: rng.normal(size=z.shape) for name, z in point.items() if "beta" not in name}
    density = model.compile_logp(jacobian=False)(point | moved)

    v, log_scale, log_gamma = (moved.get(z) for z in ("v", "scale_log__", "gamma_log__"))
    K = KERNELS(X).mean("kernel").to_numpy()
    root = np.linalg.cholesky(K + 1e-6 * np.diag(K).mean() * np.eye(N_OBJECTS))
    f = np.exp(log_scale / 2) * root @ v
    if "target" in kind:
        likelihood = norm.logpdf(targets, f, np.exp(-log_gamma / 2)).sum()
        log_positive = np.append(log_gamma, log_scale)
    else:
        scores = f if kind == "three classes" else np.column_stack([0 * f, f])
        likelihood = log_softmax(scores, axis=1)[np.arange(N_OBJECTS), codes].sum()
        log_positive = log_scale
    prior = norm.logpdf(v).sum() + (norm.logpdf(log_positive, np.log(10), 3.5) - log_positive).sum()
    assert density == pytest.approx(prior + likelihood)


def test_landmarks_of_a_specification_are_objects(X):
    columns = KERNELS.landmarks(4, seed=3)(X)
    assert set(columns["landmark"].values) <= set(X.index)
    model = declared(columns, 3)
    assert model.landmarks.tolist() == X.index.get_indexer(columns["landmark"].values).tolist()
    again = model.copied()
    assert again.landmarks.tolist() == model.landmarks.tolist()
    assert pm.draw(again["f"], random_seed=1) == pytest.approx(pm.draw(model["f"], random_seed=1))


def other_objects(X):
    return KERNELS(X.to_numpy(), X.to_numpy()[:4])


def other_features(X):
    return KERNELS(X, pd.DataFrame(np.eye(2), index=["a", "b"]))


def different_landmarks(X):
    return (kz.gaussian(0.4).landmarks(3, seed=1) | kz.linear().landmarks(3, seed=2))(X)


def too_many(X):
    return KERNELS(X.iloc[:3], X)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (other_objects, r"kernels\.landmarks\(50\)\(X\) or, of a table with ids.*columns 0, 1, 2"),
        (other_features, "between the landmarks' argument .* must be symmetric"),
        (different_landmarks, "'phi0 .* are not among the rows"),
        (too_many, "9 landmarks of 3 objects"),
    ],
)
def test_columns_that_are_no_landmarks_are_refused(X, kernels, message):
    stack = kernels(X)
    with pytest.raises(ValueError, match=message):
        kz.GaussianProcessClassification(stack, np.arange(stack.sizes["obs"]) % 3)
