"""Sweeps for every rule and for kernels with parameters: joint laws, exact posteriors."""

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, ndtr

from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.moves import metropolis
from kernelzoo.custom_steps.moves.selection import update_selection
from kernelzoo.custom_steps.multinomial_probit import albert_chib as probit_kernel_sweep
from kernelzoo.custom_steps.multinomial_probit.albert_chib import (
    Composition,
    Moves,
    adapt,
    initial_tuning,
    sweep,
)
from kernelzoo.custom_steps.multinomial_probit.conditionals import log_evidence
from kernelzoo.custom_steps.multinomial_probit.kernel_coordinates import KernelCoordinates
from kernelzoo.custom_steps.multinomial_probit.marginal import Target, marginal_sweep
from kernelzoo.models.combinations import normal_coordinates
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import Binary, FixedWeights, Mean
from kernelzoo.models.kernels import Theta, gaussian
from kernelzoo.numerics.kernel_products import Design
from probit_moments import log_probability

TAU, UPSILON = 1.0, 0.7
# No two sizes are equal, and kernels differ in spread: exchanged indices show.
N_CLASSES, N_OBJECTS, N_BASIS = 3, 5, 4
RNG = np.random.default_rng(0)
STACK = np.exp(-RNG.gamma([[[0.3]], [[3.0]]], size=(2, N_OBJECTS, N_BASIS)))
X = RNG.normal(size=(N_OBJECTS, 2))
PARAMETRIC = (gaussian(Theta(2.0, 3.0, ard=True)) | gaussian(0.3))(X)

COMPOSITIONS = {
    "binary": Composition(Binary([0.3, 0.6]), np.ones(2), STACK),
    "binary, empty": Composition(Binary([0.3, 0.6], empty=True), np.ones(2), STACK),
    "binary, signed": Composition(
        Binary(empty=True),
        np.ones(2),
        0.5 * np.random.default_rng(1).normal(size=(2, N_OBJECTS, N_BASIS)),
    ),
    "product": Composition(Product(1.5, 2.0), np.ones(2), STACK),
    "mean, theta": Composition(Mean(2.0, 1.5), np.ones(2), None, PARAMETRIC),
    "binary, theta": Composition(Binary([0.3, 0.6]), np.ones(2), None, PARAMETRIC),
    "product, theta": Composition(Product(1.5, 2.0), np.ones(2), None, PARAMETRIC),
    "fixed, theta": Composition(FixedWeights(), np.full(2, 0.5), None, PARAMETRIC),
    "fixed product": Composition(FixedProduct([0.5, 2.0]), np.array([0.5, 2.0]), STACK),
}


def prior_draw(composition, rng):
    rule = composition.rule
    m = N_OBJECTS if composition.source.parameters else N_BASIS
    zeta = UPSILON / rng.gamma(TAU, size=(N_CLASSES, m))
    values = {"zeta": zeta, "W": np.sqrt(zeta) * rng.standard_normal(zeta.shape)}
    if isinstance(rule, Mean):
        rho = rng.gamma(rule.mu, 1 / rule.lam, 2)
        log_g = np.log(rng.gamma(rho + 1)) - rng.exponential(size=2) / rho
        values |= {"rho": rho, "beta": np.exp(log_g - np.logaddexp.reduce(log_g))}
    if isinstance(rule, Binary):
        beta = np.zeros(2, int)
        while not beta.any():
            beta = (rng.random(2) < rule.each(2)).astype(int)
            if rule.empty:
                break
        values["beta"] = beta
    if isinstance(rule, Product):
        pi = rng.exponential(1 / rule.pi_rate, 2)
        chi = rng.exponential(1 / rule.chi_rate, 2)
        # A draw by logarithms: small shapes underflow otherwise.
        log_g = np.log(rng.gamma(pi + 1)) - rng.exponential(size=2) / pi
        values |= {"pi": pi, "chi": chi, "beta": np.exp(np.maximum(log_g, -600)) / chi}
    if composition.source.parameters:
        omega, phi = composition.source.omega, composition.source.phi
        values["theta"] = rng.gamma(omega) / phi
    return values


def draw_labels(composition, values, rng):
    f = composition.composite(values) @ values["W"].T
    return (f + rng.standard_normal(f.shape)).argmax(axis=1)


def products(a, b):
    """All products of two sets of functionals (replicate, functional)."""
    return (a[:, :, None] * b[:, None]).reshape(len(a), -1)


def functionals(composition, draws, labels):
    """Joint functionals (replicate, functional) of everything with light tails under the prior."""
    values = {name: np.array([draw[name] for draw in draws]) for name in draws[0]}
    labels, flat = np.array(labels), (len(draws), -1)
    W, zeta = values["W"], values["zeta"]
    u, log_zeta = W / np.sqrt(zeta), np.log(zeta)
    f = np.array([composition.composite(draw) for draw in draws]) @ W.mT
    contrast = np.arcsinh(W[:, 0] - W[:, 1])
    logs = [
        # Bounded: exponents have a Cauchy-like tail on the log scale.
        np.arctan(np.log(np.maximum(values[name], 1e-300)))
        for name in ("beta", "theta", "pi", "chi", "rho")
        if name in values
    ]
    learned = np.hstack([*logs, np.zeros((len(draws), 1))])
    own = np.take_along_axis(f, labels[:, :, None], axis=2)[:, :, 0]
    level = log_probability(f.reshape(-1, N_CLASSES), labels.ravel()).clip(-20).reshape(flat)
    return np.hstack(
        [
            *(x.reshape(flat) for x in (log_zeta, u**2, u**2 * log_zeta)),
            *(u[:, 0] * u[:, 1], contrast, contrast**2),
            *(learned, learned**2, products(learned, learned)),
            products(learned, np.abs(contrast)),
            np.arcsinh(f).reshape(flat) ** 2,
            np.arcsinh(own - f.mean(axis=2)),
            *(level, products(learned, level), f.argmax(axis=2) == labels),
        ]
    )


def by_gibbs(composition, moves=None, n_classes=N_CLASSES):
    """A sweep of Albert and Chib, as a function (values, labels, rng)."""
    tuning, moves = initial_tuning(composition), moves or Moves(2, 2, 2)

    def transition(values, labels, rng):
        return sweep(*(values, labels, composition, TAU, UPSILON, rng), tuning=tuning, moves=moves)[
            0
        ]

    return transition


def by_gradients(composition, n_classes=N_CLASSES):
    """A sweep with the latent variables integrated out."""
    kernels = KernelCoordinates.of(composition)
    target = Target.of(kernels, np.arange(N_OBJECTS) % n_classes, n_classes, TAU, UPSILON)

    def transition(values, labels, rng):
        now = replace(target, labels=labels)
        return values | marginal_sweep(values, now, rng, step=0.3, length=1.0, stages=4)[0]

    return transition


def joint_test(name, replicates=500, seed=1, transition_of=by_gibbs, **options):
    """Getting it right (Geweke 2004): labels given parameters, sweep given labels, twice.

    From a draw of the prior the joint law never changes. Replicates are independent: paired
    differences of the functionals have mean zero, and margins have the prior's distribution.
    """
    rng = np.random.default_rng(seed)
    composition = COMPOSITIONS[name]
    transition = transition_of(composition, **options)
    starts, first, last, labelled = [], [], [], []
    for _ in range(replicates):
        values = prior_draw(composition, rng)
        starts.append(values)
        first.append(draw_labels(composition, values, rng))
        for _ in range(2):
            labels = draw_labels(composition, values, rng)
            values = transition(values, labels, rng)
        last.append(values)
        labelled.append(labels)
    differences = functionals(composition, last, labelled)
    differences = differences - functionals(composition, starts, first)
    differences = differences[:, differences.any(axis=0)]
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    rule = composition.rule
    priors = {"zeta": stats.invgamma(TAU, scale=UPSILON)}
    if isinstance(rule, Product):
        priors |= {
            "pi": stats.expon(scale=1 / rule.pi_rate),
            "chi": stats.expon(scale=1 / rule.chi_rate),
        }
    for variable, law in priors.items():
        for column in np.array([values[variable] for values in last]).reshape(replicates, -1).T:
            assert_ks(column, law.cdf)
    if composition.source.parameters:
        for column, omega, phi in zip(
            np.array([values["theta"] for values in last]).T,
            *(composition.source.omega, composition.source.phi),
            strict=True,
        ):
            assert_ks(column, stats.gamma(omega, scale=1 / phi).cdf)


# The others run through the step itself, in test_kernel_albert_chib.
@pytest.mark.parametrize(
    ("name", "replicates"),
    [
        ("binary, empty", 1_500),
        ("binary, signed", 500),
        ("fixed, theta", 500),
        ("fixed product", 500),
    ],
)
def test_joint_law_is_invariant(name, replicates):
    joint_test(name, replicates)


BY_GRADIENTS = ["product", "product, theta", "mean, theta", "fixed, theta"]
BY_GRADIENTS += ["binary", "binary, empty", "binary, signed", "binary, theta"]


@pytest.mark.parametrize("name", ["product, theta", "binary, empty"])
def test_joint_law_is_invariant_under_moves_by_gradients(name):
    joint_test(name, transition_of=by_gradients)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_GRADIENTS)
def test_joint_law_is_invariant_under_moves_by_gradients_in_a_long_run(name):
    joint_test(name, replicates=10_000, transition_of=by_gradients)


# Three kernels, of which the second and the third have parameters, one and two; a basis.
THREE = gaussian(0.3) | gaussian(Theta(1.5, 2.0)) | gaussian(Theta(2.0, 3.0, ard=True))
THREE = THREE(X, X[:N_BASIS])
DIFFERENTIATED = ["product", "mean, theta", "product, theta", "fixed, theta"]
GRADIENTS = {name: COMPOSITIONS[name] for name in DIFFERENTIATED}
GRADIENTS["product, three"] = Composition(Product(1.5, 2.0), np.ones(3), None, THREE)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name):
    kernels = KernelCoordinates.of(GRADIENTS[name])
    now = Target.of(kernels, np.arange(N_OBJECTS) % N_CLASSES, N_CLASSES, TAU, UPSILON)
    rng = np.random.default_rng(1)
    for scale in (0.1, 0.5, 1.5):
        position = scale * rng.normal(size=len(now.scale))
        _, gradient = now.log_density(position)
        numeric = [
            now.log_density(position + e)[0] - now.log_density(position - e)[0]
            for e in 1e-5 * np.eye(len(position))
        ]
        np.testing.assert_allclose(gradient, np.array(numeric) / 2e-5, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("moves", [Moves(0, 2, 1), Moves(2, 0, 1)])
def test_joint_law_is_invariant_with_one_kind_of_moves(moves):
    joint_test("product, theta", moves=moves)
    joint_test("binary, theta", moves=moves)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_joint_law_is_invariant_in_a_long_run(name):
    joint_test(name, replicates=20_000)


@pytest.mark.slow
def test_printed_marginal_covariance_is_detected(monkeypatch):
    """Planted bug: the paper's Omega = I + K Z^-1 K."""
    correct = probit_kernel_sweep.log_evidence
    monkeypatch.setattr(
        probit_kernel_sweep, "log_evidence", lambda y, zeta, *rest: correct(y, 1 / zeta, *rest)
    )
    with pytest.raises(AssertionError):
        joint_test("binary, empty", 1_500)


def test_a_wrong_prior_of_the_parameters_is_detected(monkeypatch):
    """Planted bug: scores of exponential priors in place of the Gamma priors."""
    correct = normal_coordinates.NormalCoordinates.values

    def exponential(scores, psi):
        return correct(replace(scores, omega=np.ones_like(scores.omega)), psi)

    monkeypatch.setattr(normal_coordinates.NormalCoordinates, "values", exponential)
    with pytest.raises(AssertionError):
        joint_test("fixed, theta")


@pytest.mark.slow
def test_wrong_hyperparameters_of_exponents_are_detected(monkeypatch):
    """Planted bug: the shape of chi given pi is pi in place of pi + 1."""

    def wrong(beta, a, b, rng):
        pi, _ = normal_coordinates.draw_hyperparameters(beta, a, b, rng)
        return pi, rng.gamma(np.maximum(pi, 1e-3)) / (b + beta)

    monkeypatch.setattr(probit_kernel_sweep, "draw_hyperparameters", wrong)
    with pytest.raises(AssertionError):
        joint_test("product")


def test_evidence_is_the_integral_over_the_regressors():
    """One class, two basis functions: the trapezoid rule is as good as exact."""
    rng = np.random.default_rng(3)
    K, y, zeta = rng.normal(size=(3, 2)), rng.normal(size=(3, 1)), np.array([[0.4, 1.7]])
    grid, step = np.linspace(-12, 12, 601, retstep=True)
    w = np.stack(np.meshgrid(grid, grid), axis=-1)
    log_p = stats.norm.logpdf(y[:, 0], w @ K.T).sum(axis=-1)
    log_p += stats.norm.logpdf(w, 0, np.sqrt(zeta[0])).sum(axis=-1)
    integral = np.exp(log_p).sum() * step**2
    found = log_evidence(y, zeta, K, K.T @ K) + stats.norm.logpdf(y).sum()
    np.testing.assert_allclose(found, np.log(integral), atol=1e-8)
    omega = np.eye(3) + K @ np.diag(zeta[0]) @ K.T
    np.testing.assert_allclose(
        found, stats.multivariate_normal.logpdf(y[:, 0], np.zeros(3), omega), atol=1e-10
    )


@pytest.mark.parametrize("block", [1, 2, 3])
def test_selection_follows_its_conditional(block):
    """Frequencies of all states against their enumeration with scipy's densities."""
    rng = np.random.default_rng(4)
    # Weak kernels, so that the odds decide.
    stack = 0.3 * rng.normal(size=(3, 5, 4))
    y, zeta = rng.normal(size=(5, 2)), rng.gamma(2.0, size=(2, 4))
    log_odds = np.array([1.0, -0.6, 0.0])
    states = np.array([[s >> k & 1 for k in range(3)] for s in range(8)])
    log_p = []
    for state in states:
        K = np.tensordot(state, stack, axes=1)
        omega = [np.eye(5) + K @ np.diag(z) @ K.T for z in zeta]
        evidence = sum(
            stats.multivariate_normal.logpdf(y[:, c], np.zeros(5), omega[c]) for c in range(2)
        )
        log_p.append(evidence + state @ log_odds)
    exact = np.exp(log_p - np.logaddexp.reduce(log_p))
    beta, design, draws = np.zeros(3, int), Design(stack, None), []

    def evidence(state):
        composite = design.composite(state)
        return log_evidence(y, zeta, composite, design.gram(state, composite))

    for _ in range(4_000):
        beta, _ = update_selection(beta, evidence, log_odds, rng, block)
        draws.append(beta @ [1, 2, 4])
    indicators = np.array(draws)[:, None] == np.arange(8)
    ess = [float(az.ess(column[None].astype(float))) for column in indicators.T]
    assert_mean(indicators, exact, ess=np.array(ess))


@pytest.mark.parametrize("transition_of", [by_gibbs, by_gradients])
def test_selection_has_its_exact_posterior(transition_of):
    """The marginal likelihood of each selection by numerical integration over the regressors.

    Two classes and one basis function: the difference of two Student t regressors is all that the
    likelihood sees.
    """
    K = np.array([[1.0, 0.6, -0.8, 1.3], [0.2, -1.5, 0.9, 0.4]])[:, :, None]
    labels = np.array([0, 0, 1, 0])
    student = stats.t(2 * TAU, scale=np.sqrt(UPSILON / TAU))

    # Midpoint rule in the regressors' distribution functions, where the integrand is bounded.
    w = student.ppf((np.arange(1500) + 0.5) / 1500)
    difference = w[:, None] - w

    def evidence(beta):
        k = (beta @ K[:, :, 0]) * np.where(labels == 0, 1, -1) / np.sqrt(2)
        return np.mean(np.prod([ndtr(each * difference) for each in k], axis=0))

    states = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    posterior = np.array([evidence(state) for state in states])
    posterior /= posterior.sum()
    rng = np.random.default_rng(0)
    composition = Composition(Binary(empty=True), np.ones(2), K)
    values = {"W": np.zeros((2, 1)), "zeta": np.ones((2, 1)), "beta": np.ones(2, int)}
    draws = np.empty(3_000, int)
    transition = transition_of(composition, n_classes=2)
    for i in range(len(draws)):
        values = transition(values, labels, rng)
        draws[i] = values["beta"] @ [1, 2]
    indicators = (draws[:, None] == np.arange(4)).astype(float)
    ess = np.array([float(az.ess(column[None])) for column in indicators.T])
    assert_mean(indicators, posterior, ess=ess)


def grid_posterior(labels, stack, grid, draws, rng):
    """Posterior of log theta on a grid, times each of many prior draws of W: (grid, draw).

    Two classes, so that the likelihood is a normal distribution function. The same draws serve
    every point of the grid.
    """
    omega, phi = stack.omega, stack.phi
    zeta = UPSILON / rng.gamma(TAU, size=(2, stack.start.sizes["basis"], draws))
    W = np.sqrt(zeta) * rng.standard_normal(zeta.shape)
    sign = np.where(labels == 0, 1, -1)[:, None] / np.sqrt(2)
    log_joint = np.empty((len(grid), draws))
    for i, log_theta in enumerate(grid):
        K = stack.evaluate(np.exp([log_theta]))[0]
        log_joint[i] = log_ndtr(sign * (K @ (W[0] - W[1]))).sum(0)
        log_joint[i] += (omega * log_theta - phi * np.exp(log_theta)).item()
    return np.exp(log_joint - log_joint.max())


def test_parameters_follow_their_posterior_on_a_grid():
    """N = 20: theta's distribution function against a grid, W averaged over its prior."""
    rng = np.random.default_rng(5)
    labels = np.arange(20) % 2
    x = 1.5 * labels[:, None] + 0.9 * rng.normal(size=(20, 2))
    stack = gaussian(Theta(2.0, 3.0))(x, x[:3])
    grid = np.linspace(np.log(1e-3), np.log(12.0), 100)
    weight = grid_posterior(labels, stack, grid, 10_000, rng)
    exact = weight.sum(1) / weight.sum()
    composition = Composition(FixedWeights(), np.ones(1), None, stack)
    tuning, moves = initial_tuning(composition), Moves(3, 2)
    values = {"W": np.zeros((2, 3)), "zeta": np.ones((2, 3)), "theta": np.ones(1)}
    log_theta = np.empty(1_500)
    for i in range(-500, len(log_theta)):
        values, info = sweep(
            *(values, labels, composition, TAU, UPSILON, rng), tuning=tuning, moves=moves
        )
        if i < 0:
            tuning = adapt(tuning, values, info, composition)
        else:
            log_theta[i] = np.log(values["theta"][0])
    z = []
    middles = (grid[1:] + grid[:-1]) / 2
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        at = int(np.searchsorted(np.cumsum(exact), level))
        below = (log_theta < middles[at]).astype(float)
        error = below.std() / np.sqrt(float(az.ess(below[None])))
        # Error of the ratio of two means over the prior draws of W.
        share = exact[: at + 1].sum()
        residual = weight[: at + 1].sum(0) - share * weight.sum(0)
        grid_error = residual.std() * np.sqrt(weight.shape[1]) / weight.sum()
        assert grid_error < 0.03
        z.append((below.mean() - share) / np.hypot(error, grid_error))
    assert_z(z)


def test_walks_adapt_to_a_narrow_target():
    rng = np.random.default_rng(1)
    sd = np.array([0.001, 0.1])
    tuning = metropolis.initial_walk_tuning(np.eye(2))
    x, accepted = np.zeros(2), []
    for _ in range(3_000):
        x, rate = metropolis.walk(x, lambda v: -0.5 * float(((v / sd) ** 2).sum()), tuning, rng, 2)
        tuning = metropolis.adapt_walk(tuning, x, rate, metropolis.TARGET_JOINT)
        accepted.append(rate)
    assert 0.2 < np.mean(accepted[-1_000:]) < 0.4
    draws = []
    for _ in range(8_000):
        x, _ = metropolis.walk(x, lambda v: -0.5 * float(((v / sd) ** 2).sum()), tuning, rng, 2)
        draws.append(x / sd)
    draws = np.array(draws)
    ess = np.array([float(az.ess(column[None])) for column in draws.T])
    assert_mean(draws, 0.0, ess=ess)
    ess = np.array([float(az.ess(column[None] ** 2)) for column in draws.T])
    assert_mean(draws**2, 1.0, ess=ess)


def test_nothing_given_is_modified():
    rng = np.random.default_rng(1)
    for composition in COMPOSITIONS.values():
        values = prior_draw(composition, rng)
        kept = {name: value.copy() for name, value in values.items()}
        for value in values.values():
            value.flags.writeable = False
        new, _ = sweep(
            *(values, np.array([0, 1, 2, 0, 0]), composition, TAU, UPSILON, rng),
            tuning=initial_tuning(composition),
            moves=Moves(),
        )
        assert set(new) == set(values)
        for name, value in values.items():
            np.testing.assert_array_equal(value, kept[name])
            assert not np.shares_memory(value, new[name])
