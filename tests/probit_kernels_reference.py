"""Reference posteriors of small multinomial probits whose composite kernel is learned.

Importance sampling: no engine has a part in them. What the kernels are made of is drawn from its
prior, W from its prior or a Student t that was fitted to earlier draws, zeta given W exactly.
Made, from the root of the checkout, in about seven minutes on one core, by

    OMP_NUM_THREADS=1 PYTHONPATH=tests python -P tests/probit_kernels_reference.py

which writes tests/data/probit_kernels_reference.json: means, Monte Carlo errors and effective draws
of the functionals below.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import kernelzoo as kz
from kernelzoo.numerics.probit import class_probabilities
from probit_reference import of_scores

PATH = Path(__file__).parent / "data" / "probit_kernels_reference.json"
SETTINGS = {"draws": 2_000_000, "rounds": 5, "draws a round": 50_000, "random_seed": 2009}
SHARE = 0.8
BLOCK = 10_000

TAU, UPSILON = 3.0, 1.0
N_OBJECTS, N_CLASSES, N_BASIS = 24, 3, 3
LABELS = np.arange(N_OBJECTS) % N_CLASSES
CENTRES = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
X = CENTRES[LABELS] + np.random.default_rng(7).normal(size=(N_OBJECTS, 2))
# The basis: an object of each class. One squared distance a feature.
SQUARES = (X[:, None] - X[None, :N_BASIS]) ** 2
NEAR, WIDE = np.exp(-SQUARES[..., 0]), np.exp(-SQUARES[..., 1])
LINEAR = 0.3 * X @ X[:N_BASIS].T
SIZE = N_CLASSES * N_BASIS
MARGINAL = stats.t(2 * TAU, scale=np.sqrt(UPSILON / TAU))

type Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A model, and its definition anew.

    Parameters
    ----------
    kernels, rule
        As the declaration takes them.
    prior : callable (draws, rng) -> values
        Draws of what the composite kernel is made of.
    composite : callable (values) -> array (draw, obs, basis)
    learned : callable (values) -> dict of arrays (draw, ...)
        Functionals of what it is made of.
    """

    kernels: object
    rule: object
    prior: Callable[[int, np.random.Generator], Values]
    composite: Callable[[Values], np.ndarray]
    learned: Callable[[Values], Values]

    def model(self):
        return kz.MultinomialProbit(
            self.kernels, LABELS, combination=self.rule, tau=TAU, upsilon=UPSILON
        )

    def scores(self, values):
        """Regression functions (draw, obs, class)."""
        return self.composite(values) @ values["W"].swapaxes(1, 2)

    def functionals(self, values, probabilities=None):
        """Identified quantities (draw, ...) by name."""
        scores = self.scores(values)
        return of_scores(scores, values["zeta"], probabilities) | self.learned(values)


def squashed(values):
    """Bounded: exponents and what they depend on have heavy tails."""
    return np.arctan(np.log(np.maximum(values, 1e-300)))


def exponents(draws, rng):
    pi, chi = rng.exponential(1 / 2.0, (draws, 2)), rng.exponential(1 / 1.5, (draws, 2))
    # By logarithms: small shapes underflow otherwise.
    log_g = np.log(rng.standard_gamma(pi + 1)) - rng.standard_exponential(pi.shape) / pi
    return {"pi": pi, "chi": chi, "beta": np.exp(np.maximum(log_g, -600)) / chi}


def learned_exponents(values):
    found = {name: squashed(values[name]) for name in ("beta", "pi", "chi")}
    return found | {"beta pi": found["beta"] * found["pi"], "beta beta": found["beta"] ** 2}


SELECTION = np.array([0.3, 0.6, 0.5])
STATES = np.array([[i >> s & 1 for s in range(3)] for i in range(1, 8)])


def selection(draws, rng):
    odds = np.where(STATES, SELECTION, 1 - SELECTION).prod(axis=1)
    return {"beta": STATES[rng.choice(len(STATES), draws, p=odds / odds.sum())]}


def learned_selection(values):
    return {"state": (values["beta"] @ [1, 2, 4])[:, None] == np.arange(1, 8)}


def parameters(draws, rng):
    rho = rng.standard_gamma(2.0, (draws, 2))
    log_g = np.log(rng.standard_gamma(rho + 1)) - rng.standard_exponential(rho.shape) / rho
    beta = np.exp(log_g - np.logaddexp.reduce(log_g, axis=1, keepdims=True))
    return {"rho": rho, "beta": beta, "theta": rng.standard_gamma(3.0, (draws, 1)) / 4.0}


def kernels_at(values):
    distances, beta = SQUARES.sum(-1), values["beta"][..., None, None]
    near = np.exp(-values["theta"][..., None] * distances)
    return beta[:, 0] * near + beta[:, 1] * np.exp(-0.05 * distances)


def learned_parameters(values):
    log_theta, beta = np.log(values["theta"]), values["beta"][:, :1]
    return {
        "theta": log_theta,
        "theta theta": log_theta**2,
        "theta beta": log_theta * beta,
        "beta": beta,
        "rho": np.log(values["rho"]),
    }


PROBLEMS = {
    "product": Problem(
        kz.kernels.as_stack({"near": NEAR, "wide": WIDE}),
        kz.combinations.Product(2.0, 1.5),
        exponents,
        lambda values: np.exp(-np.tensordot(values["beta"], SQUARES, axes=(1, 2))),
        learned_exponents,
    ),
    "binary": Problem(
        kz.kernels.as_stack({"near": NEAR, "wide": WIDE, "linear": LINEAR}),
        kz.combinations.Binary(SELECTION),
        selection,
        lambda values: np.tensordot(values["beta"], [NEAR, WIDE, LINEAR], axes=1),
        learned_selection,
    ),
    "theta": Problem(
        (kz.gaussian(kz.kernels.Theta(3.0, 4.0)) | kz.gaussian(0.05))(X, X[:N_BASIS]),
        kz.combinations.Mean(2.0, 1.0),
        parameters,
        kernels_at,
        learned_parameters,
    ),
}


@dataclass(frozen=True)
class Proposal:
    """Distribution of W: its prior, or a multivariate Student t with probability `SHARE`."""

    fitted: Any = None

    def draw(self, draws, rng):
        """W (draw, class, basis), and log p(W) - log q(W)."""
        W = MARGINAL.rvs((draws, SIZE), random_state=rng)
        if self.fitted is not None:
            chosen = rng.random(draws) < SHARE
            W[chosen] = self.fitted.rvs(chosen.sum(), random_state=rng)
        log_p = MARGINAL.logpdf(W).sum(axis=1)
        log_q = log_p
        if self.fitted is not None:
            log_t = np.log(SHARE) + self.fitted.logpdf(W)
            log_q = np.logaddexp(np.log1p(-SHARE) + log_p, log_t)
        return W.reshape(draws, N_CLASSES, N_BASIS), log_p - log_q

    def refitted(self, W, weight):
        """Return the proposal for weighted draws."""
        flat, share = W.reshape(len(W), -1), weight / weight.sum()
        mean = share @ flat
        covariance = (flat - mean).T @ ((flat - mean) * share[:, None])
        spread = covariance + 1e-3 * np.eye(SIZE)
        return Proposal(stats.multivariate_t(mean, spread, df=7))


def weighted_draws(problem, proposal, draws, rng):
    """Values of all variables, class probabilities, and importance weights."""
    W, log_ratio = proposal.draw(draws, rng)
    zeta = (UPSILON + 0.5 * W**2) / rng.standard_gamma(TAU + 0.5, W.shape)
    values = problem.prior(draws, rng) | {"W": W, "zeta": zeta}
    probabilities = class_probabilities(problem.scores(values))
    likelihood = probabilities[:, np.arange(N_OBJECTS), LABELS].prod(axis=1)
    return values, probabilities, likelihood * np.exp(log_ratio)


def entries(problem):
    """What the file keeps of one problem: self-normalised sums, in blocks."""
    rng = np.random.default_rng(SETTINGS["random_seed"])
    proposal = Proposal()
    for _ in range(SETTINGS["rounds"]):
        values, _, weight = weighted_draws(problem, proposal, SETTINGS["draws a round"], rng)
        proposal = proposal.refitted(values["W"], weight)
    total, squares = 0.0, 0.0
    sums: dict[str, list[np.ndarray]] = {}
    for _ in range(SETTINGS["draws"] // BLOCK):
        values, probabilities, weight = weighted_draws(problem, proposal, BLOCK, rng)
        total, squares = total + weight.sum(), squares + np.sum(weight**2)
        for name, found in problem.functionals(values, probabilities).items():
            found = np.asarray(found, dtype=float)
            new = [np.tensordot(weight**p, found**k, axes=1) for p, k in ((1, 1), (2, 1), (2, 2))]
            sums[name] = [a + b for a, b in zip(sums.get(name, [0.0] * 3), new, strict=True)]
    kept = {}
    for name, (first, crossed, second) in sums.items():
        mean = first / total
        error = np.sqrt(second - 2 * mean * crossed + mean**2 * squares) / total
        kept[name] = {"mean": np.round(mean, 6).tolist(), "error": np.round(error, 7).tolist()}
    return {"ess": round(total**2 / squares), "functionals": kept}


def main():
    """Make the file."""
    content = {
        "problems": "tests/probit_kernels_reference.py: PROBLEMS",
        "sampler": "importance sampling, no chain",
        "made_by": "PYTHONPATH=tests python -P tests/probit_kernels_reference.py",
        "settings": SETTINGS,
        "problem": {name: entries(problem) for name, problem in PROBLEMS.items()},
    }
    PATH.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
