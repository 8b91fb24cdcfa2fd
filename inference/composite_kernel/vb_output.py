"""Parameters and draws of the mean field of the composite-kernel models."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pymc as pm
import xarray as xr
from scipy.linalg import solve_triangular
from scipy.stats import norm

from ..variational.binary import BinaryFactor
from .vb_likelihoods import Noise
from .vb_updates import Data, State

__all__ = ["Approximation"]

type Array = npt.NDArray[np.float64]
type Variable = tuple[tuple[str, ...], Array | float]

#: Names of the priors' shapes and rates.
HYPERPARAMETERS: Mapping[str, tuple[str, str]] = {
    "phi": ("sigma", "varsigma"),
    "varphi": ("tau", "nu"),
    "gamma": ("rho", "varrho"),
}


@dataclass(frozen=True)
class Approximation[N: Noise]:
    """The distribution Q of a state after at least one iteration.

    alpha has a first axis of outputs if there are `several`.
    """

    data: Data[N]
    state: State[N]
    several: bool

    def _by_output(self, values: Array) -> Array:
        """Values (output, ...), or those of the only output."""
        return values if self.several else values[0]

    def parameters(self, model: pm.Model) -> xr.Dataset:
        """Parameters of Q, and of the priors."""
        state = self.state
        function, kernel = ("function",), ("kernel",)
        of_alpha = ("output", "function") if self.several else function
        variables: dict[str, Variable] = {
            "alpha_mean": (of_alpha, self._by_output(state.alpha.mean)),
            "alpha_sd": (of_alpha, self._by_output(np.sqrt(state.alpha.var))),
            "phi_shape": ((), state.phi.shape),
            "phi_rate": (function, np.asarray(state.phi.rate)),
            **state.noise.parameters,
        }
        if state.beta is not None:
            beta = state.beta
            variables |= {"beta_mean": (kernel, beta.mean), "beta_sd": (kernel, beta.sd)}
            if not isinstance(beta, BinaryFactor):
                variables |= {
                    "beta_mean_log": (kernel, beta.mean_log),
                    "beta_ess": ((), beta.ess),
                }
        if state.varphi is not None:
            varphi = state.varphi
            variables |= {"varphi_mean": (kernel, varphi.mean), "varphi_sd": (kernel, varphi.sd)}
        for name, prior in self.data.priors.items():
            shape, rate = HYPERPARAMETERS[name]
            variables |= {shape: ((), prior.shape), rate: ((), float(prior.rate))}
        dims = {dim for variable in variables.values() for dim in variable[0]}
        coords = {dim: list(model.coords[dim]) for dim in sorted(dims)}
        return xr.Dataset(variables, coords=coords)

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of all variables, and log Q.

        O(G M^3 + P draws M^2) for P outputs with G noise precisions.
        """
        state = self.state
        out: dict[str, Array] = {}
        log_q = np.zeros(draws)
        for name, gamma in {**state.noise.factors, "phi": state.phi}.items():
            out[name], log_density = gamma.sample(draws, rng)
            log_q += log_density
        for name, weights in (("varphi", state.varphi), ("beta", state.beta)):
            if weights is not None:
                out[name] = weights.sample(draws, rng)
                log_q += weights.log_density(out[name])
        alpha: list[Array] = []
        for n_outputs, factor, pivots in self.data.likelihood.precisions(*state.made_of):
            for mean in state.alpha.mean[len(alpha) : len(alpha) + n_outputs]:
                noise = rng.normal(size=(len(mean), draws))
                spread = solve_triangular(factor, noise, lower=True, trans="T")
                alpha.append(mean + spread.T)
                log_q += np.log(pivots).sum() + norm.logpdf(noise).sum(axis=0)
        out["alpha"] = np.stack(alpha, axis=1) if self.several else alpha[0]
        return out, log_q
