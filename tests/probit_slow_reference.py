"""The probit's mean field and its printed equations by loops and inverses, slowly."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import norm

from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import Binary, FixedWeights
from kernelzoo.models.kernels import Theta, gaussian
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_moments import truncated_moments


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


def parametric_problem(rule, parametric):
    """The model of `slow_problem`."""
    first = Theta(3.0, 4.0) if parametric else 0.5
    kernels = (gaussian(first) | gaussian(0.05))(X, X[:5])
    return MultinomialProbit(kernels, LABELS, combination=RULES[rule], tau=TAU, upsilon=UPSILON)


@dataclass(frozen=True)
class PriorSample:
    """Q(psi) on samples of the prior, in place of a normal: an update of it is exact."""

    samples: np.ndarray
    log_likelihood: np.ndarray

    @property
    def weights(self):
        return np.exp(self.log_likelihood - logsumexp(self.log_likelihood))

    @property
    def gain(self):
        normaliser = logsumexp(self.log_likelihood) - np.log(len(self.samples))
        return normaliser - self.weights @ self.log_likelihood

    @property
    def expectation(self):
        return self.samples, self.weights

    def updated(self, log_likelihood):
        return replace(self, log_likelihood=np.array([log_likelihood(p) for p in self.samples]))


def prior_sample(family, weights):
    """Stand for `KernelFamily.start`."""
    samples = np.random.default_rng(1).standard_normal((40, len(family.coordinates)))
    return PriorSample(samples, np.zeros(40))
