"""The variational factor of a 0/1 selection of kernels, by enumeration of its states.

Q(beta) is proportional to exp(b'beta - beta'A beta / 2) prod_s p_s^beta_s (1 - p_s)^(1 - beta_s) on
the 2^S states (Damoulas & Girolami 2009, section 3.1; their appendix B does not derive it).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from ...models.combinations.sums import Binary
from ..engine.engine import unknown_combination

__all__ = ["MOST_KERNELS", "BinaryFactor", "binary_factor", "why_not"]

type Array = npt.NDArray[np.float64]

# Largest number of kernels whose 2^S states are enumerated.
MOST_KERNELS = 16


@cache
def _states(n_kernels: int) -> Array:
    """All selections (2^S, S)."""
    codes = np.arange(2**n_kernels)
    return (codes[:, None] >> np.arange(n_kernels) & 1).astype(float)


@dataclass(frozen=True)
class BinaryFactor:
    """Q(beta); made by `binary_factor`.

    State i of the 2^S selects the kernels whose bits are set in i. `gain` is E[log p(beta)] minus
    E[log Q(beta)].
    """

    probability: Array
    gain: float

    @property
    def _states(self) -> Array:
        return _states(int(np.log2(len(self.probability))))

    @property
    def mean(self) -> Array:
        """E[beta], shape (S,)."""
        return self.probability @ self._states

    @property
    def second_moment(self) -> Array:
        """E[beta beta'], shape (S, S)."""
        return (self._states * self.probability[:, None]).T @ self._states

    @property
    def sd(self) -> Array:
        """Standard deviations."""
        return np.sqrt(self.mean * (1 - self.mean))

    def sample(self, draws: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Independent draws (draw, S), integers."""
        chosen = rng.choice(len(self.probability), size=draws, p=self.probability)
        return self._states[chosen].astype(np.int64)

    def log_density(self, beta: npt.NDArray[Any]) -> Array:
        """Log probabilities of states (n, S)."""
        codes = beta @ (1 << np.arange(beta.shape[1]))
        with np.errstate(divide="ignore"):
            return np.log(self.probability[codes])


def binary_factor(
    prior: Array, linear: Array, quadratic: Array, empty: bool = True
) -> BinaryFactor:
    """Compute Q(beta) exactly by enumeration, in O(2^S S^2).

    p is the `prior`, b `linear` and A `quadratic`. Without `empty`, the selection of no kernel is
    no state.
    """
    states = _states(len(prior))
    log_prior = states @ np.log(prior) + (1 - states) @ np.log1p(-prior)
    if not empty:
        log_prior[1:] -= np.log(-np.expm1(log_prior[0]))
        log_prior[0] = -np.inf
    log_p = log_prior + states @ linear - 0.5 * np.sum((states @ quadratic) * states, axis=1)
    log_p -= logsumexp(log_p)
    probability = np.exp(log_p)
    # Generator.choice needs probabilities that add up to 1.
    probability /= probability.sum()
    possible = probability > 0
    gain = probability[possible] @ (log_prior[possible] - log_p[possible])
    return BinaryFactor(probability, float(gain))


def why_not(model: Any, rules: Sequence[type], others: str = "") -> str | None:
    """Why VB does not apply to a model's rule of combination; None when it does.

    Weights of `rules` have a factor; `others` names further rules in the message.
    """
    rule, n_kernels = model.combination, len(model.coords["kernel"])
    if reason := unknown_combination(model, rules, others):
        return reason
    if isinstance(rule, Binary) and n_kernels > MOST_KERNELS:
        return f"it enumerates the selections of {MOST_KERNELS} kernels at most, not of {n_kernels}"
    return None
