"""The step for every rule as PyMC runs it: joint law with the declaration, what it refuses."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_ks, assert_z
from kernelzoo.custom_steps import AlbertChib
from kernelzoo.custom_steps.multinomial_probit import albert_chib as kernel_albert_chib
from kernelzoo.custom_steps.multinomial_probit import albert_chib as probit_kernel_sweep
from probit_moments import log_probability

TAU, UPSILON = 1.0, 0.6
# No two sizes are equal, and classes differ in size: exchanged indices show.
N_CLASSES, N_OBJECTS, N_BASIS = 3, 5, 4
X = np.random.default_rng(0).normal(size=(N_OBJECTS, 2))
LABELS = np.array([0, 0, 1, 2, 0])
# Concentrations and shapes that are seldom small: doubles do not hold the weights of those.
RULES = {
    "mean": kz.combinations.Mean(4.0, 2.0),
    "binary": kz.combinations.Binary([0.3, 0.6]),
    "binary, empty": kz.combinations.Binary([0.3, 0.6], empty=True),
    "product": kz.combinations.Product(0.2, 2.0),
}


def declaration(rule, *, tau=TAU, upsilon=UPSILON):
    """Five objects, four basis functions, two kernels of which one has a parameter."""
    # Products take positive kernels; a signed one tells more about stale regressors.
    other = kz.gaussian(3.0) if rule == "product" else kz.linear()
    kernels = (kz.gaussian(kz.kernels.Theta(2.0, 3.0)) | other)(X, X[:N_BASIS])
    return kz.MultinomialProbit(kernels, LABELS, combination=RULES[rule], tau=tau, upsilon=upsilon)


@cache
def prior_draws(rule, replicates):
    """Variables and labels that the declaration draws."""
    model = declaration(rule)
    variables = [*model.free_RVs, model["t"]]
    draws = pm.draw(variables, replicates, random_seed=1, mode="FAST_COMPILE")
    named = dict(zip([rv.name for rv in variables], draws, strict=True))
    if not rule.startswith("binary"):
        named["beta"] = np.maximum(named["beta"], 1e-290)
    return [{name: values[i] for name, values in named.items()} for i in range(replicates)]


def products(a, b):
    """All products of two sets of functionals (replicate, functional)."""
    return (a[:, :, None] * b[:, None]).reshape(len(a), -1)


def functionals(composition, draws, labels):
    """Joint functionals (replicate, functional) of all variables and the labels.

    They have light tails under the prior.
    """
    values = {name: np.array([draw[name] for draw in draws]) for name in draws[0]}
    labels, flat = np.array(labels), (len(draws), -1)
    W, zeta = values["W"], values["zeta"]
    u, log_zeta = W / np.sqrt(zeta), np.log(zeta)
    f = np.array([composition.composite(draw) for draw in draws]) @ W.mT
    own = np.take_along_axis(f, labels[:, :, None], axis=2)[:, :, 0]
    contrast = np.arcsinh(W[:, 0] - W[:, 1])
    names = [name for name in values if name not in ("W", "zeta")]
    # Bounded: exponents have a Cauchy-like tail on the log scale.
    learned = np.hstack([np.arctan(np.log(np.maximum(values[n], 1e-300))) for n in names])
    level = log_probability(f.reshape(-1, N_CLASSES), labels.ravel()).clip(-20).reshape(flat)
    return np.hstack(
        [
            *(x.reshape(flat) for x in (log_zeta, u**2, u**2 * log_zeta)),
            *(u[:, 0] * u[:, 1], contrast, contrast**2, learned, products(learned, learned)),
            products(learned, np.abs(contrast)),
            np.arcsinh(f).reshape(flat) ** 2,
            np.arcsinh(own - f.mean(axis=2)),
            *(level, products(learned, level), f.argmax(axis=2) == labels),
        ]
    )


def joint_test(rule, replicates=500, **misread):
    """Steps from the declaration's prior, given labels it draws, leave the law of all.

    The step is built on a declaration with the hyperparameters `misread`. Replicates are
    independent: paired differences of the functionals have mean zero, margins the prior's law.
    """
    step = AlbertChib(moves=2, model=declaration(rule, **misread))
    step.setup_chain(np.random.default_rng(2), tune=0, draws=replicates)
    step.stop_tuning()
    draws, starts, last = prior_draws(rule, replicates), [], []
    for draw in draws:
        start = {name: value for name, value in draw.items() if name != "t"}
        step._labels = draw["t"].astype(np.intp)
        point = step._output_map.unconstrain(start)
        for _ in range(2):
            point, _ = step.step(point)
        starts.append(start)
        last.append(step._output_map.constrain(point))
    labels = [draw["t"] for draw in draws]
    before, after = (functionals(step._composition, each, labels) for each in (starts, last))
    differences = after - before
    differences = differences[:, differences.any(axis=0)]
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    laws = {
        "zeta": stats.invgamma(TAU, scale=UPSILON),
        "W": stats.t(2 * TAU, scale=np.sqrt(UPSILON / TAU)),
        "theta": stats.gamma(2.0, scale=1 / 3.0),
        "rho": stats.gamma(4.0, scale=1 / 2.0),
        "pi": stats.expon(scale=1 / 0.2),
        "chi": stats.expon(scale=1 / 2.0),
    }
    for name in laws.keys() & last[0].keys():
        for column in np.array([end[name] for end in last]).reshape(replicates, -1).T:
            assert_ks(column, laws[name].cdf)


@pytest.mark.parametrize("rule", ["mean", "binary", "product"])
def test_joint_law_of_the_declaration_is_invariant(rule):
    joint_test(rule)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_joint_law_of_the_declaration_is_invariant_in_a_long_run(rule):
    joint_test(rule, replicates=15_000)


class Means:
    """Generator whose draws are their means."""

    def standard_normal(self, shape):
        return np.zeros(shape)

    def standard_exponential(self, shape=()):
        return np.ones(shape)

    def standard_gamma(self, shape, size=()):
        return np.broadcast_to(shape, size or np.shape(shape))


@pytest.mark.parametrize("rule", ["mean", "product"])
def test_a_sweep_has_the_conditionals_of_each_kernel_and_class(rule, monkeypatch):
    """Given utilities, with kernels and classes that all differ; exchanged ones show at once."""
    rng, seen = np.random.default_rng(3), []
    y = rng.normal(size=(N_OBJECTS, N_CLASSES))

    def given_utilities(scores, labels, rng):
        seen.append((scores, labels))
        return y

    step = AlbertChib(moves=1, marginal_moves=0, model=declaration(rule))
    beta, theta = np.array([0.2, 0.8]), 0.7
    values = {
        "W": rng.normal(size=(N_CLASSES, N_BASIS)),
        "zeta": np.array([[0.3], [1.0], [4.0]]) * rng.uniform(0.5, 2.0, (N_CLASSES, N_BASIS)),
        "beta": beta,
        "theta": np.array([theta]),
        **({"rho": np.array([1.0, 3.0])} if rule == "mean" else dict.fromkeys(("pi", "chi"), beta)),
    }
    monkeypatch.setattr(probit_kernel_sweep, "sample_cone", given_utilities)
    new, _ = step.sweep(values, Means())

    squared = ((X[:, None] - X[:N_BASIS]) ** 2).sum(-1)
    if rule == "mean":
        K = beta[0] * np.exp(-theta * squared) + beta[1] * X @ X[:N_BASIS].T
        np.testing.assert_allclose(new["rho"], values["rho"])
    else:
        K = np.exp(-theta * squared) ** beta[0] * np.exp(-3.0 * squared) ** beta[1]
        pi = 2.0 / (0.2 + np.log(1 + 2.0 / beta))
        np.testing.assert_allclose(new["pi"], pi)
        np.testing.assert_allclose(new["chi"], (pi + 1) / (2.0 + beta))
    ((scores, labels),) = seen
    np.testing.assert_allclose(scores, K @ values["W"].T)
    np.testing.assert_array_equal(labels, LABELS)
    zeta, q = values["zeta"], 0.0
    for c in range(N_CLASSES):
        q += y[:, c] @ np.linalg.solve(np.eye(N_OBJECTS) + (K * zeta[c]) @ K.T, y[:, c])
    W = np.array(
        [np.linalg.solve(K.T @ K + np.diag(1 / zeta[c]), K.T @ y[:, c]) for c in range(N_CLASSES)]
    )
    W *= np.sqrt(y.size / q)
    W -= (W / zeta).sum(axis=0) / (1 / zeta).sum(axis=0)
    np.testing.assert_allclose(new["W"], W)
    np.testing.assert_allclose(new["zeta"], (UPSILON + W**2 / 2) / (TAU + 0.5))
    np.testing.assert_allclose(new["beta"], beta)


def shift_labels(monkeypatch):
    correct = kernel_albert_chib.sweep
    monkeypatch.setattr(
        kernel_albert_chib,
        "sweep",
        lambda values, labels, *rest, **moves: correct(
            values, (labels + 1) % N_CLASSES, *rest, **moves
        ),
    )


def keep_hyperparameters(monkeypatch):
    """As they were when the chain began: those of their priors' means."""
    monkeypatch.setattr(
        probit_kernel_sweep,
        "draw_hyperparameters",
        lambda beta, a, b, rng: (np.full_like(beta, 1 / a), np.full_like(beta, 1 / b)),
    )


def keep_regressors(monkeypatch):
    """W as it was before the selection integrated it out."""
    kept = []
    correct = probit_kernel_sweep.BinaryMoves.collapsed

    def remember(moves, task):
        kept.append(task.new["W"])
        correct(moves, task)

    monkeypatch.setattr(probit_kernel_sweep.BinaryMoves, "collapsed", remember)
    monkeypatch.setattr(probit_kernel_sweep, "draw_regressors", lambda *_: kept.pop())


def drop_jacobian(monkeypatch):
    """The density of theta is taken for that of its score."""
    correct = probit_kernel_sweep.walk
    coordinates = AlbertChib(model=declaration("mean"))._composition.coordinates

    def without(psi, log_density, *rest):
        def wrong(psi):
            prior = float(coordinates.log_density(coordinates.values(psi)))
            return log_density(psi) + 0.5 * float(psi @ psi) + prior

        return correct(psi, wrong, *rest)

    monkeypatch.setattr(probit_kernel_sweep, "walk", without)


@pytest.mark.parametrize(
    ("rule", "plant", "replicates"),
    [
        ("mean", drop_jacobian, 1_500),
        *(
            pytest.param(*bug, marks=pytest.mark.slow)
            for bug in (
                ("binary", shift_labels, 500),
                ("product", keep_hyperparameters, 2_000),
                ("binary, empty", keep_regressors, 2_500),
            )
        ),
    ],
)
def test_planted_bugs_are_detected(rule, plant, replicates, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        joint_test(rule, replicates)


@pytest.mark.slow
def test_shape_and_rate_swapped_are_detected():
    with pytest.raises(AssertionError):
        joint_test("product", tau=UPSILON, upsilon=TAU)


def labelled(n=9, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)), np.arange(n) % 3


def test_rules_it_does_not_know_are_refused():
    """Else their weights would stay where they start."""
    X, labels = labelled()
    kernels = {"a": np.exp(-((X[:, None] - X[None]) ** 2).sum(-1)), "b": np.eye(len(X))}
    model = kz.MultinomialProbit(kernels, labels, combination=kz.combinations.DirichletWeights())
    with pytest.raises(TypeError, match=r"available for .*Mean.*Got DirichletWeights"):
        AlbertChib(model=model)


@pytest.mark.parametrize(("rule", "marginal_moves"), [("mean", 1), ("product", 0)])
def test_weights_that_no_move_changes_are_refused(rule, marginal_moves):
    with pytest.raises(ValueError, match=r"'moves' argument .* 1 or more: no other move"):
        AlbertChib(moves=0, marginal_moves=marginal_moves, model=declaration(rule))


@pytest.mark.parametrize("name", ["X", "K"])
def test_changed_features_are_refused(name):
    """The step and VB read kernels with parameters as declared; NUTS reads the model's data."""
    X, labels = labelled()
    model = kz.MultinomialProbit((kz.gaussian(kz.kernels.Theta()) | kz.linear())(X), labels)
    AlbertChib(model=model)
    with model:
        pm.set_data({name: 1 + model[name].get_value()})
    message = f"pm.set_data has changed {name}"
    with pytest.raises(ValueError, match=message):
        AlbertChib(model=model)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, kz.VB(), progressbar=False)


@pytest.mark.parametrize("codes", [[0, 1, 3], [0, -1, 2]])
def test_codes_of_no_class_are_refused(codes):
    """They would index beyond the coordinates, in compiled code without a word."""
    X, labels = labelled()
    model = kz.MultinomialProbit(kz.linear()(X), labels)
    with model:
        pm.set_data({"labels": np.resize(codes, len(X))})
    with pytest.raises(ValueError, match="codes of its 3 classes, 0 to 2"):
        kz.fit(model, "gibbs", progressbar=False)
