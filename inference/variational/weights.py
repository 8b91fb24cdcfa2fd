"""The factors of kernel weights and of their concentrations, in all models that learn them."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...models.combinations.sums import Binary, DirichletWeights, Mean
from ...user_warnings import warn_user
from .concentration import ConcentrationFactor, concentration_factor
from .factors import Gamma, Variables, binary_factor
from .simplex import TINY, SimplexFactor, moments_around, simplex_factor

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """Q(beta), and Q(rho) of the concentrations: Damoulas & Girolami (2009), appendix B.4.

    (Of varphi: Girolami & Rogers 2005, section 4.1.) `mean` and `second` are E[beta] (S,) and
    E[beta beta'] (S, S) of all matrices: with `constant`, the last one always has weight 1, beside
    a selection. `gain` is E[log prior] plus the entropies. The factors are None before the first
    update, for known weights and for known concentrations.
    """

    mean: Array
    second: Array
    concentrations: Array
    constant: bool = False
    gain: float = 0.0
    beta: Any = None
    rho: ConcentrationFactor | None = None

    @classmethod
    def start(cls, rule: Any, mean: Array, prior: Gamma | None, constant: bool = False) -> Self:
        """Weights before the first iteration; concentrations are at the mean of their `prior`."""
        rho = np.nan if prior is None else float(prior.mean)
        if isinstance(rule, Binary):
            mean = np.append(mean / mean.max(), np.ones(int(constant)))
        elif isinstance(rule, DirichletWeights) and rule.varphi is not None:
            rho = rule.varphi
        return cls(mean, np.outer(mean, mean), np.full(len(mean), rho), constant)

    def updated(self, rule: Any, prior: Gamma | None, linear: Array, quadratic: Array) -> Self:
        """Update for an expected log likelihood b'beta - beta'A beta / 2, by the type of the rule.

        The factor of a rule from outside is ``rule.variational_factor(linear, quadratic)``. It
        needs ``mean``, ``sd``, ``second_moment``, ``sample``, ``log_density`` and ``gain``, as
        `BinaryFactor` has them.
        """
        if isinstance(rule, Mean | DirichletWeights):
            return self._on_simplex(prior, linear, quadratic)
        if not isinstance(rule, Binary):
            beta = rule.variational_factor(linear, quadratic)
            return replace(
                self, mean=beta.mean, second=beta.second_moment, gain=beta.gain, beta=beta
            )
        n = len(linear) - self.constant
        # A matrix of weight 1 makes its products with the others linear in their weights.
        beta = binary_factor(
            rule.each(n), linear[:n] - quadratic[:n, n:].sum(axis=1), quadratic[:n, :n], rule.empty
        )
        mean = np.append(beta.mean, np.ones(int(self.constant)))
        second = np.outer(mean, mean)
        second[:n, :n] = beta.second_moment
        return replace(self, mean=mean, second=second, gain=beta.gain, beta=beta)

    def _on_simplex(self, prior: Gamma | None, linear: Array, quadratic: Array) -> Self:
        """Update Q(beta), then Q(rho) unless the concentrations are known."""
        beta = simplex_factor(self.concentrations, linear, quadratic, near=self.beta)
        new = replace(self, mean=beta.mean, second=beta.second_moment, beta=beta)
        if prior is None:
            known = self.concentrations
            log_prior = gammaln(known.sum()) - gammaln(known).sum() + known @ beta.mean_log
            return replace(new, gain=float(beta.entropy + log_prior))
        rho = concentration_factor(prior.shape, float(prior.rate), beta.mean_log, near=self.rho)
        gain = float(beta.entropy + rho.log_normaliser)
        return replace(new, concentrations=rho.mean, gain=gain, rho=rho)

    @property
    def coordinates(self) -> Array:
        """Logarithms of the means on the simplex and of learned concentrations."""
        if not isinstance(self.beta, SimplexFactor):
            return np.empty(0)
        log_beta = np.log(np.maximum(self.mean, TINY))
        return log_beta if self.rho is None else np.append(log_beta, np.log(self.concentrations))

    def at(self, coordinates: Array) -> Self:
        """Weights of other coordinates."""
        if not len(coordinates):
            return self
        log_beta, log_rho = np.split(coordinates, [len(self.mean)])
        mean, second = moments_around(log_beta, self.mean, self.second)
        new = replace(self, mean=mean, second=second)
        return new if self.rho is None else replace(new, concentrations=np.exp(log_rho))

    def parameters(self, concentrations: str) -> Variables:
        """Moments of the factors; `concentrations` is the name of rho in the model."""
        kernel = ("kernel",)
        variables: Variables = {}
        if self.beta is not None:
            variables |= {"beta_mean": (kernel, self.beta.mean), "beta_sd": (kernel, self.beta.sd)}
        if isinstance(self.beta, SimplexFactor):
            variables["beta_mean_log"] = kernel, self.beta.mean_log
            variables["beta_ess"] = (), self.beta.ess
        if self.rho is not None:
            variables[f"{concentrations}_mean"] = kernel, self.rho.mean
            variables[f"{concentrations}_sd"] = kernel, self.rho.sd
        return variables

    def sample(
        self, concentrations: str, draws: int, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Independent draws by name, and log Q (draw,)."""
        out = {}
        log_q = np.zeros(draws)
        for name, factor in ((concentrations, self.rho), ("beta", self.beta)):
            if factor is not None:
                out[name] = factor.sample(draws, rng)
                log_q += factor.log_density(out[name])
        return out, log_q

    def warn_of_imprecision(self) -> None:
        """Warn if the quadrature does not suffice for the final factor."""
        if isinstance(self.beta, SimplexFactor) and not self.beta.precise:
            warn_user(
                "VB's moments of the kernel weights are imprecise: their distribution is too "
                f"uneven for its quadrature ({self.beta.ess:,.0f} effective points). Compare with "
                "a sampler, or leave out kernels."
            )
