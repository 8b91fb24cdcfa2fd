"""Parameters and draws of the mean field of the multinomial probit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from ...models.combinations.normal_coordinates import (
    draw_hyperparameters,
    log_hyperparameter_density,
)
from ...models.multinomial_probit import MultinomialProbit
from ..variational.regressors import precision_factor
from ..variational.simplex import SimplexFactor
from .vb_kernel_parameters import Normal
from .vb_updates import Data, State

__all__ = ["Approximation"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Approximation:
    """The distribution q of a state."""

    data: Data
    state: State

    def parameters(self, model: MultinomialProbit) -> xr.Dataset:
        """Parameters of q as a Dataset."""
        state = self.state
        shape = self.data.tau + 0.5
        regressor, kernel = ("class", "basis"), ("kernel",)
        variables = {
            "W_mean": (regressor, state.W_mean),
            "W_sd": (regressor, np.sqrt(state.W_var)),
            "zeta_shape": ((), shape),
            "zeta_rate": (regressor, state.zeta_rate),
        }
        if len(state.utilities.mean):
            variables["y_mean"] = ("obs", "class"), state.utilities.mean
        if state.beta is not None:
            variables |= {
                "beta_mean": (kernel, state.beta.mean),
                "beta_sd": (kernel, state.beta.sd),
            }
        if isinstance(state.beta, SimplexFactor) and state.rho is not None:
            variables |= {
                "beta_mean_log": (kernel, state.beta.mean_log),
                "beta_ess": ((), state.beta.ess),
                "rho_mean": (kernel, state.rho.mean),
                "rho_sd": (kernel, state.rho.sd),
            }
        if state.psi is not None:
            variables |= self._moments_of_parameters(state.psi)
        dims = {dim for variable in variables.values() for dim in variable[0]}
        coords = {dim: list(model.coords[dim]) for dim in sorted(dims)}
        return xr.Dataset(variables, coords=coords)

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of rho, beta, zeta, W and log q. O(C M^3 + draws C M^2)."""
        state = self.state
        out: dict[str, Array] = {}
        log_q = np.zeros(draws)
        if state.rho is not None:
            out["rho"] = state.rho.sample(draws, rng)
            log_q += state.rho.log_density(out["rho"])
        if state.beta is not None:
            out["beta"] = state.beta.sample(draws, rng)
            log_q += state.beta.log_density(out["beta"])
        if state.psi is not None:
            psi, log_density = state.psi.sample(draws, rng)
            values = self.data.family.coordinates.values(psi)
            out |= values
            # The Jacobian of psi is the ratio of the prior densities; the prior of psi is
            # N(0, I).
            jacobian = self.data.family.coordinates.log_density(values)
            log_q += log_density + jacobian - stats.norm.logpdf(psi).sum(axis=1)
            log_q += self._sample_hyperparameters(out, rng)
        shape = self.data.tau + 0.5
        inverse = rng.gamma(shape, size=(draws, *state.zeta_rate.shape))
        out["zeta"] = state.zeta_rate / inverse
        # An inverse gamma density, from the Gamma variable that was drawn.
        of_zeta = (shape + 1) * np.log(inverse) - inverse - np.log(state.zeta_rate)
        log_q += of_zeta.sum(axis=(1, 2)) - state.zeta_rate.size * gammaln(shape)
        out["W"] = np.empty((draws, *state.W_mean.shape))
        gram = state.W_products.gram(state.W_weights)
        for c, mean in enumerate(state.W_mean):
            factor, pivots = precision_factor(gram, state.W_precision[c])
            noise = rng.normal(size=(len(mean), draws))
            out["W"][:, c] = mean + solve_triangular(factor, noise, lower=True, trans="T").T
            log_q += np.log(pivots).sum() - 0.5 * np.einsum("md,md->d", noise, noise)
        log_q -= 0.5 * state.W_mean.size * np.log(2 * np.pi)
        return out, log_q

    def _moments_of_parameters(self, psi: Normal) -> dict[str, Any]:
        """Means and standard deviations of exponents and parameters under their factor."""
        points, weights = psi.expectation
        variables: dict[str, Any] = {}
        dims = {"beta": ("kernel",), "theta": ("parameter",)}
        for name, values in self.data.family.coordinates.values(points).items():
            mean = weights @ values
            variables[f"{name}_mean"] = (dims[name], mean)
            variables[f"{name}_sd"] = (dims[name], np.sqrt(weights @ (values - mean) ** 2))
        return variables

    def _sample_hyperparameters(
        self, out: dict[str, Array], rng: np.random.Generator
    ) -> Array | float:
        """Add draws of the exponents' hyperparameters, exact given the exponents; return log q."""
        coordinates = self.data.family.coordinates
        if not coordinates.n_exponents:
            return 0.0
        rates = coordinates.a, coordinates.b
        out["pi"], out["chi"] = draw_hyperparameters(out["beta"], *rates, rng)
        densities = log_hyperparameter_density(out["pi"], out["chi"], out["beta"], *rates)
        return densities.sum(axis=1)
