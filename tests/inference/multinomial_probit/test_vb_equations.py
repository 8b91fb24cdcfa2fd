"""VB's equations for the multinomial probit against slow references with loops and inverses."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, gammaln
from scipy.stats import norm

from kernelzoo.inference.multinomial_probit import vb as vb
from kernelzoo.inference.multinomial_probit import vb_kernel_parameters as kernel_parameters
from kernelzoo.inference.multinomial_probit import vb_updates as updates
from kernelzoo.inference.variational.regressors import printed_bound
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import Binary, FixedWeights
from kernelzoo.models.kernels import Theta, gaussian, kernel_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from kernelzoo.numerics.probit import log_probability, truncated_moments
from probit_vb_fixture import RUN, model_of, problem


def test_printed_bound_for_fixed_z():
    """E.5-E.7 = sum log Z_n - sum k'Vk / 2 - KL(q(W) || N(0, Z)), for any V, Z and mean."""
    rng = np.random.default_rng(0)
    n_classes, n_basis = 3, 6
    design = rng.normal(size=(8, n_basis))
    W_mean = rng.normal(size=(n_classes, n_basis))
    roots = rng.normal(size=(n_classes, n_basis, n_basis))
    V = roots @ roots.transpose(0, 2, 1) + np.eye(n_basis)
    precision = rng.gamma(2.0, size=(n_classes, n_basis))
    log_z = log_probability(design @ W_mean.T, np.arange(8) % n_classes).sum()
    divergence = 0.0
    for mean, covariance, Z in zip(W_mean, V, 1 / precision, strict=True):
        divergence += 0.5 * (
            np.trace(np.diag(1 / Z) @ covariance)
            + mean @ np.diag(1 / Z) @ mean
            - n_basis
            + np.log(np.linalg.det(np.diag(Z)) / np.linalg.det(covariance))
        )
    spread = sum(k @ covariance @ k for k in design for covariance in V)
    found = printed_bound(
        log_z,
        np.linalg.slogdet(V)[1].sum(),
        precision,
        W_mean,
        np.einsum("cii->ci", V),
        spread,
    )
    np.testing.assert_allclose(found, log_z - 0.5 * spread - divergence, rtol=1e-12)


def slow_utilities(f, labels, nodes=120):
    """Eqs 7-8 with loops and plain Gauss-Hermite quadrature; sum of log Z_n and E[Y]."""
    u, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    y, log_z = f.copy(), 0.0
    for n, i in enumerate(labels):
        others = [j for j in range(f.shape[1]) if j != i]
        total = weight @ np.prod([norm.cdf(u + f[n, i] - f[n, j]) for j in others], axis=0)
        for c in others:
            rest = [norm.cdf(u + f[n, i] - f[n, j]) for j in others if j != c]
            y[n, c] -= weight @ (norm.pdf(u + f[n, i] - f[n, c]) * np.prod(rest, axis=0)) / total
        y[n, i] += sum(f[n, c] - y[n, c] for c in others)
        log_z += np.log(total)
    return log_z, y


def slow_reference(kernel, labels, n_classes, tau, upsilon, iterations):
    """Eqs 6-11 and E.5-E.7 with loops and explicit inverses; one kernel of weight one."""
    n_basis = kernel.shape[1]
    _, y = slow_utilities(np.zeros((len(labels), n_classes)), labels)
    precision = np.ones((n_classes, n_basis))
    objectives = []
    for _ in range(iterations):
        V = [np.linalg.inv(kernel.T @ kernel + np.diag(row)) for row in precision]
        W = np.array([V[c] @ kernel.T @ y[:, c] for c in range(n_classes)])
        second = W**2 + np.array([np.diag(v) for v in V])
        precision = (tau + 0.5) / (upsilon + 0.5 * second)
        objective, y = slow_utilities(kernel @ W.T, labels)
        for c in range(n_classes):
            objective += 0.5 * n_basis + 0.5 * np.log(np.linalg.det(V[c]))
            objective -= 0.5 * np.trace(np.diag(precision[c]) @ V[c])
            objective -= 0.5 * W[c] @ np.diag(precision[c]) @ W[c]
            objective += 0.5 * np.log(precision[c]).sum()
            objective -= 0.5 * np.trace(kernel @ V[c] @ kernel.T)
        objectives.append(objective)
    return W, np.array(objectives)


@pytest.mark.parametrize("gram", [True, False])
def test_one_kernel_agrees_with_a_slow_reference(gram):
    kernels, labels = problem(3, 1, 3, n_obs=15, gram=gram)
    model = MultinomialProbit(kernel_stack(kernels), labels, tau=0.7, upsilon=1.3)
    W, objectives = slow_reference(kernels[0], labels, 3, 0.7, 1.3, iterations=8)
    with pytest.warns(UserWarning, match="did not converge in 8 iterations"):
        answer = vb.fit_multinomial_probit(
            model, RUN, weights="plug-in", max_iterations=8, tolerance=1e-15
        )
    assert not answer.converged
    np.testing.assert_allclose(answer.elbo[0], objectives, rtol=1e-7)
    np.testing.assert_allclose(answer.parameters["W_mean"], W, rtol=0, atol=1e-6)
    data = updates.Data.of(model, plug_in=False)
    state = updates.start(data, np.ones(1))
    for _ in range(8):
        state = updates.update(data, state)
    np.testing.assert_allclose(state.W_mean, W, rtol=0, atol=1e-6)


def test_plug_in_weights_are_the_printed_ones():
    """Q(beta) from the means alone, by a dense grid over two weights."""
    kernels, labels = problem(4, 2, 3, n_obs=18)
    model = MultinomialProbit(kernels, labels)
    answer = vb.fit_multinomial_probit(
        model, RUN, weights="plug-in", max_iterations=3000, tolerance=1e-13, starts=1
    )
    q = answer.parameters
    beta = np.linspace(0, 1, 200_001)[1:-1]
    f = kernels @ q["W_mean"].values.T
    residual = q["y_mean"].values - f[1]
    slope = f[0] - f[1]
    log_p = -0.5 * (beta**2 * np.sum(slope**2) - 2 * beta * np.sum(residual * slope))
    rho = q["rho_mean"].values
    log_p += (rho[0] - 1) * np.log(beta) + (rho[1] - 1) * np.log1p(-beta)
    p = np.exp(log_p - log_p.max())
    assert answer.converged
    np.testing.assert_allclose(q["beta_mean"][0], p @ beta / p.sum(), atol=2e-3)


def test_printed_objective_is_of_one_state():
    """E.5-E.7 from the state alone: q(W) and the new weights together."""
    model = model_of(3, 2, 3)
    data = updates.Data.of(model, plug_in=True)
    state = updates.start(data, np.full(2, 0.5))
    for _ in range(3):
        state = updates.update(data, state)
    design = state.kernels.design
    gram = np.einsum("snm,tnk,st->mk", design, design, state.W_weights)
    covariance = [np.linalg.inv(gram + np.diag(row)) for row in state.W_precision]
    k = np.tensordot(state.beta_mean, design, axes=1)
    expected = printed_bound(
        log_probability(k @ state.W_mean.T, data.labels).sum(),
        sum(np.linalg.slogdet(V)[1] for V in covariance),
        (data.tau + 0.5) / state.zeta_rate,
        state.W_mean,
        state.W_var,
        sum(np.sum((k @ V) * k) for V in covariance),
    )
    np.testing.assert_allclose(state.objective, expected, rtol=1e-9)


X = np.random.default_rng(3).normal(size=(12, 2))
LABELS = np.arange(12) % 3
SQUARES = (X[:, None] - X[None, :5]) ** 2
A, B = 1.5, 0.7
SELECTION = np.array([0.4, 0.7])
TAU, UPSILON = 2.0, 0.8
# Rules whose weights the slow reference holds in a list of states, and samples of their prior.
RULES = {
    "fixed": FixedWeights([0.4, 0.8]),
    "binary": Binary(SELECTION),
    "binary, empty": Binary(SELECTION, empty=True),
    "product": Product(A, B),
    "fixed product": FixedProduct([0.5, 1.2]),
}


@dataclass(frozen=True)
class Slow:
    """Mean field of W, zeta, a list of selections and a list of exponents and parameters, by loops.

    `kernel` takes a selection and a point. In the plug-in equations it is evaluated at their means,
    as the paper's first order has it (appendix B), and the covariances of W are left out of
    everything but q(zeta); E.5-E.7 are the objective.
    """

    kernel: Callable
    states: np.ndarray
    prior: np.ndarray
    points: np.ndarray
    plug_in: bool

    def run(self, iterations):
        first = np.zeros(len(self.states))
        first[-1] = 1.0  # all kernels
        q, r = first, np.full(len(self.points), 1 / len(self.points))
        _, y = truncated_moments(np.zeros((len(LABELS), 3)), LABELS)
        K, G = self.moments(q, r)
        precision = np.ones((3, K.shape[1]))
        objectives = []
        for _ in range(iterations):
            V = [np.linalg.inv(G + np.diag(row)) for row in precision]
            W = np.array([V[c] @ K.T @ y[:, c] for c in range(3)])
            rate = UPSILON + 0.5 * (W**2 + [np.diag(v) for v in V])
            precision = (TAU + 0.5) / rate
            second = sum(
                np.outer(w, w) + (0 if self.plug_in else v) for w, v in zip(W, V, strict=True)
            )
            if len(self.states) > 1:
                heights = [self.height(y, W, second, *self.moments(one, r)) for one in self.each(q)]
                q = normalised(np.log(self.prior) + heights)
            if len(self.points) > 1:
                heights = [self.height(y, W, second, *self.moments(q, one)) for one in self.each(r)]
                r = normalised(np.array(heights))
            K, G = self.moments(q, r)
            log_z, y = truncated_moments(K @ W.T, LABELS)
            objectives.append(log_z.sum() + self.rest(q, r, K, G, V, W, precision, rate, second))
        return {"W": W, "y": y, "zeta_rate": rate, "q": q, "r": r, "objectives": objectives}

    @staticmethod
    def each(weights):
        return np.eye(len(weights))

    def moments(self, q, r):
        """E[K] and E[K'K]."""
        if self.plug_in:
            K = self.kernel(q @ self.states, r @ self.points)
            return K, K.T @ K
        mean, second = 0.0, 0.0
        for a, state in zip(q, self.states, strict=True):
            for b, point in zip(r, self.points, strict=True):
                K = self.kernel(state, point)
                mean, second = mean + a * b * K, second + a * b * K.T @ K
        return mean, second

    @staticmethod
    def height(y, W, second, K, G):
        """E[log N(Y; K W', I)] without what depends on Y alone."""
        return np.trace(y.T @ K @ W.T) - 0.5 * np.trace(G @ second)

    def rest(self, q, r, K, G, V, W, precision, rate, second):
        """Objective without the normalisers of q(Y)."""
        if self.plug_in:
            # E.5-E.7 for the fixed Z = 1 / precision.
            total = 0.0
            for w, v, row in zip(W, V, precision, strict=True):
                total += 0.5 * len(w) + 0.5 * np.log(np.linalg.det(v))
                total -= 0.5 * np.trace(np.diag(row) @ v) + 0.5 * w @ np.diag(row) @ w
                total += 0.5 * np.log(row).sum() - 0.5 * sum(k @ v @ k for k in K)
            return total
        total = -0.5 * (np.trace(G @ second) - np.sum((K @ W.T) ** 2))
        shape = TAU + 0.5
        log_precision = digamma(shape) - np.log(rate)
        for c, v in enumerate(V):
            square = W[c] ** 2 + np.diag(v)
            expected = 0.5 * (log_precision[c] - np.log(2 * np.pi) - precision[c] * square)
            expected += TAU * np.log(UPSILON) - gammaln(TAU)
            expected += (TAU - 1) * log_precision[c] - UPSILON * precision[c]
            total += expected.sum() + stats.gamma(shape, scale=1 / rate[c]).entropy().sum()
            total += stats.multivariate_normal(cov=v).entropy()
        held = q > 0
        total += q[held] @ (np.log(self.prior[held]) - np.log(q[held]))
        return total - r @ np.log(r * len(r))


def normalised(log_weight):
    return np.exp(log_weight - np.logaddexp.reduce(log_weight))


def slow_problem(rule, parametric, psi, plug_in):
    """The slow reference of a rule, for samples psi of the scores of exponents and parameters."""
    states, prior = np.ones((1, 2)), np.ones(1)
    if rule.startswith("binary"):
        states = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[rule == "binary" :]
        prior = np.where(states, SELECTION, 1 - SELECTION).prod(axis=1)
        prior = prior / prior.sum()
    u = stats.norm.cdf(psi)
    exponents, scores = (u[:, :2], u[:, 2:]) if rule == "product" else (None, u)
    values = []
    if exponents is not None:
        # F(beta) = a / (a + log(1 + b / beta)) of the prior with pi and chi integrated out.
        values.append(B / np.expm1(A * (1 / exponents - 1)))
    if parametric:
        values.append(stats.gamma(3.0, scale=1 / 4.0).ppf(scores))
    points = np.concatenate(values, axis=1) if values else np.zeros((1, 0))

    def kernel(state, point):
        theta = point[-1] if parametric else 0.5
        pair = np.exp(-theta * SQUARES.sum(-1)), np.exp(-0.05 * SQUARES.sum(-1))
        if rule == "product":
            return pair[0] ** point[0] * pair[1] ** point[1]
        if rule == "fixed product":
            return pair[0] ** 0.5 * pair[1] ** 1.2
        weights = (0.4, 0.8) if rule == "fixed" else state
        return weights[0] * pair[0] + weights[1] * pair[1]

    return Slow(kernel, states, prior, points, plug_in)


@pytest.mark.parametrize("plug_in", [True, False])
@pytest.mark.parametrize(
    ("rule", "parametric"),
    [
        *((rule, False) for rule in ("binary", "binary, empty", "product", "fixed product")),
        *((rule, True) for rule in RULES),
    ],
)
def test_learned_kernels_agree_with_a_slow_reference(rule, parametric, plug_in, monkeypatch):
    """Both sets of equations, on the same samples of the prior; but for rounding."""
    monkeypatch.setattr(kernel_parameters, "NEGLIGIBLE", 0.0)
    first = Theta(3.0, 4.0) if parametric else 0.5
    kernels = (gaussian(first) | gaussian(0.05))(X, X[:5])
    model = MultinomialProbit(kernels, LABELS, combination=RULES[rule], tau=TAU, upsilon=UPSILON)
    data = updates.Data.of(model, plug_in=plug_in, samples=40)
    weights = data.family.composition.known if rule == "fixed" else np.ones(2)
    state = updates.start(data, weights, np.random.default_rng(1))
    psi = state.psi.samples if state.psi is not None else np.zeros((1, 0))
    slow = slow_problem(rule, parametric, psi, plug_in).run(iterations=6)
    objectives = []
    for _ in range(6):
        state = updates.update(data, state)
        objectives.append(state.objective)
    close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10)
    close(objectives, slow["objectives"])
    close(state.W_mean, slow["W"])
    close(state.zeta_rate, slow["zeta_rate"])
    close(state.utilities.mean, slow["y"])
    if state.psi is not None:
        close(state.psi.weights, slow["r"])
    if rule.startswith("binary"):
        close(state.beta.probability[rule == "binary" :], slow["q"])
