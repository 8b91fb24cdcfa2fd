"""Log densities in unconstrained coordinates, and the one that each point engine maximises."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection
from pymc.logprob.transforms import SimplexTransform
from pymc.pytensorf import join_nonshared_inputs
from pytensor.gradient import grad
from xarray import DataTree

import kernelzoo as kz
from certificates.checks import Density

# Weights at a corner of the simplex have no coordinates.
LEAST_WEIGHT = 1e-10


def compiled(model: pm.Model, rvs: Sequence[Any], log_density: Any) -> Density:
    """Compile x -> (log density, gradient (D,)) of variables, over joined coordinates."""
    start = model.initial_point()
    values = [model.rvs_to_values[rv] for rv in rvs]
    ordered = {value.name: start[value.name] for value in values}
    (joint,), joined = join_nonshared_inputs(ordered, [log_density], values)
    evaluate = pm.compile([joined], [joint, grad(joint, joined)])
    evaluate.trust_input = True

    def density(x: NDArray) -> tuple[float, NDArray]:
        value, gradient = evaluate(x)
        return float(value), np.asarray(gradient)

    return density


def unconstrained(model: pm.Model, rvs: Sequence[Any], point: Mapping[str, Any]) -> NDArray:
    """Joined coordinates (D,) of the values of variables, by name."""
    found = {}
    for rv in rvs:
        value = np.asarray(point[rv.name], dtype=float)
        transform = model.rvs_to_transforms[rv]
        if isinstance(transform, SimplexTransform):
            inside = np.maximum(value, LEAST_WEIGHT)
            value = inside / inside.sum(axis=-1, keepdims=True)
        if transform is not None:
            value = transform.forward(pt.as_tensor(value), *rv.owner.inputs).eval()
        found[model.rvs_to_values[rv].name] = value
    return DictToArrayBijection.map(found).data


def mode_of_laplace(model: pm.Model, result: DataTree) -> tuple[Density, NDArray]:
    """Unconstrained density, and the mean of the Gaussian."""
    density = compiled(model, model.free_RVs, model.logp())
    return density, result["variational"]["mean"].to_numpy()


def mode_of_map(model: pm.Model, result: DataTree) -> tuple[Density, NDArray]:
    """Density that MAP maximises, and its answer."""
    log_density = model.logp(jacobian=result.attrs["lp_measure"] == "unconstrained")
    if "expected_gain" in result.attrs:
        # The paper's alternation has phi integrated out, which is the mode over log phi.
        log_density = log_density + pt.sum(model.rvs_to_values[model["phi"]])
    return _mode(model, model.free_RVs, log_density, result)


def mode_of_em(model: pm.Model, result: DataTree) -> tuple[Density, NDArray]:
    """Density that EM maximises, and its answer."""
    if isinstance(model, kz.MutualKernelCompletion):
        # The density of the inverse of M given the visible blocks, the hidden ones integrated out.
        M = model["M"]
        log_density = model.logp(vars=[M, *model.observed_RVs, *model.potentials], jacobian=False)
        log_density = log_density + (len(model.coords["object"]) + 1) * _log_det(model, M)
        return _mode(model, [M], log_density, result)
    # Log p(K11, D) over D = Sigma^-1, with K21 and K22.1 integrated out (zhang_mixture, 3.2).
    rvs = [model["Sigma11"], model["Sigma22_1"], model["B"]]
    log_density = model.logp(vars=[*rvs, model["K11"]], jacobian=False)
    of_train = _log_det(model, rvs[0])
    of_test = _log_det(model, rvs[1])
    # The density of the blocks is that of Sigma times |Sigma11|^n2; that of Sigma^-1 has
    # |Sigma|^(n+1) more.
    objects = model.n_train + model.n_test
    log_density = log_density + (objects + 1) * (of_train + of_test) - model.n_test * of_train
    return _mode(model, rvs, log_density, result)


def _log_det(model: pm.Model, rv: Any) -> Any:
    value = model.rvs_to_transforms[rv].backward(model.rvs_to_values[rv], *rv.owner.inputs)
    return pt.linalg.slogdet(value)[1]


def _mode(
    model: pm.Model, rvs: Sequence[Any], log_density: Any, result: DataTree
) -> tuple[Density, NDArray]:
    point = {str(name): value.to_numpy() for name, value in result["point"].data_vars.items()}
    return compiled(model, rvs, log_density), unconstrained(model, rvs, point)
