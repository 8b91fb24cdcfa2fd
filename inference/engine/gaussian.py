"""Gaussian approximations in a model's unconstrained space, turned into results."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import join_nonshared_inputs
from pymc.util import is_transformed_name
from scipy.linalg import cholesky
from xarray import Dataset, DataTree

from .compilation import python_mode
from .engine import Run
from .independent import lean_tree
from .pareto_k import pareto_k
from .result import with_group

__all__ = ["constrained_draws", "gaussian_result", "lower_factor", "unconstrained_labels"]


def unconstrained_labels(model: pm.Model) -> list[str]:
    """Names of the unconstrained coordinates, by value variable in declared order."""
    labels: list[str] = []
    point = model.initial_point()
    for value in model.continuous_value_vars:
        shape = np.shape(point[value.name])
        if not shape:
            labels.append(value.name)
        else:
            labels.extend(
                f"{value.name}[{', '.join(map(str, index))}]" for index in np.ndindex(shape)
            )
    return labels


def constrained_draws(model: pm.Model, points: NDArray) -> tuple[dict[str, NDArray], NDArray]:
    """Variables and log density at points of the unconstrained space.

    Parameters
    ----------
    model : pm.Model
        Without discrete variables.
    points : ndarray (draw, D)
        In the order of `unconstrained_labels`.

    Returns
    -------
    draws : dict of str to ndarray (draw, ...)
        Free variables and deterministics.
    log_density : ndarray (draw,)
        Unconstrained log density at the points, Jacobians included.
    """
    outputs = [v for v in model.unobserved_value_vars if not is_transformed_name(v.name)]
    graph, joined = join_nonshared_inputs(
        model.initial_point(),
        [*outputs, model.logp(jacobian=True)],
        model.continuous_value_vars,
    )
    evaluate = pm.compile([joined], graph, mode=python_mode())
    evaluate.trust_input = True
    *columns, log_density = (
        np.array(column) for column in zip(*(evaluate(point) for point in points), strict=True)
    )
    return dict(zip([v.name for v in outputs], columns, strict=True)), log_density


def gaussian_result(model: pm.Model, run: Run, mean: NDArray, factor: NDArray) -> DataTree:
    """Turn q = N(mean, factor factor') on the unconstrained space into a result.

    Parameters
    ----------
    model : pm.Model
        Without discrete variables.
    run : Run
        Number of draws, seed, and the variables to keep.
    mean : ndarray (D,)
        In the order of `unconstrained_labels`.
    factor : ndarray (D,) or (D, D)
        Standard deviations, or the lower Cholesky factor of the covariance.

    Returns
    -------
    DataTree
        Draws as one chain, ``lp`` (Jacobian included) and ``lq`` in ``sample_stats``, mean and
        standard deviations in ``variational``, ``pareto_k`` in the attributes.

    Notes
    -----
    O(draws D^2) for a full factor, and `draws` evaluations of the log density.
    """
    diagonal = factor if factor.ndim == 1 else np.diagonal(factor)
    noise = run.rng(1).standard_normal((run.draws, len(mean)))
    points = mean + (noise * factor if factor.ndim == 1 else noise @ factor.T)
    log_q = -0.5 * (noise**2 + np.log(2 * np.pi)).sum(1) - np.log(diagonal).sum()

    draws_of, log_p = constrained_draws(model, points)
    tree = lean_tree(model, run, draws_of, {"lp": log_p, "lq": log_q})
    sd = factor if factor.ndim == 1 else np.sqrt((factor**2).sum(1))
    parameters = Dataset(
        {"mean": ("coordinate", mean), "sd": ("coordinate", sd)},
        coords={"coordinate": unconstrained_labels(model)},
    )
    with_group(tree, "variational", parameters)
    tree.attrs |= {"pareto_k": pareto_k(tree), "independent": 1, "lp_measure": "unconstrained"}
    return tree


def lower_factor(covariance: NDArray, engine: str) -> NDArray:
    """Lower Cholesky factor of an approximation's covariance; raise ValueError if there is none."""
    try:
        return cholesky(covariance, lower=True)
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(covariance)[0])
        raise ValueError(
            f"{engine} found a covariance that is not positive definite (smallest eigenvalue "
            f"{smallest:.3g}): the point where it stopped is not a mode."
        ) from None
