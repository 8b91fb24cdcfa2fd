"""A function of the objects on a weighted combination of kernels, as a part of any PyMC model."""

from typing import Any

import numpy as np
import pymc as pm
from pytensor.tensor import TensorVariable
from pytensor.tensor.random.type import RandomType
from xarray import DataArray

from ..validation import argument_error
from .distributions.dirichlet import Dirichlet
from .kernels.dask_stack import read_kernels
from .kernels.labels import ids_along, order_of
from .kernels.source import IN_MEMORY
from .operations.arrays import matrix_product, weighted_sum

__all__ = ["composite_function"]


def composite_function(
    name: str,
    kernels: Any,
    *,
    weights: Any = None,
    coefficients: Any = None,
    scale: Any = 1.0,
    outputs: str | None = None,
) -> TensorVariable:
    r"""Declare a function on a composite kernel in the model of the ``with`` block.

    .. math::

        f_n = s \sum_k \beta_k \sum_m K_k(x_n, x_m) \, \alpha_m

    Add it to an intercept, covariates, an offset or group effects, under any likelihood. Engines
    for any PyMC model fit such a model; those of a paper refuse it.

    Parameters
    ----------
    name : str
        Name f of the function. The data are ``{name}_K``, the weights ``{name}_beta``, the
        coefficients ``{name}_alpha``, a scale with a prior ``{name}_scale``.
    kernels : dict, sequence, array or DataArray (kernel, obs, basis)
        Kernels of the training objects, as `CompositeKernelRegression` takes them. If the model has
        the coordinate "obs", their ids must be the same; labelled kernels are brought into its
        order.
    weights : PyMC distribution, variable or array (kernel,), optional
        Prior of beta, such as ``pm.Dirichlet.dist([2, 1])``, or its value. Default: uniform on the
        simplex.
    coefficients : PyMC distribution or variable (basis,) or (output, basis), optional
        Prior of alpha. Default: Student's t with 2 degrees of freedom, the prior of
        `CompositeKernelRegression` with its precisions integrated out.
    scale : float, PyMC distribution or variable, default=1
        Scale s of the function, such as ``pm.HalfNormal.dist(2)``.
    outputs : str, optional
        Dimension of the model along which the function has an output each, such as classes.

    Returns
    -------
    TensorVariable (obs,) or (obs, output)
        The deterministic variable ``name``.

    Raises
    ------
    ValueError
        For kernels that a composite kernel refuses, ids that are not those of the model, and
        kernels that are not in memory or have parameters to learn.

    Notes
    -----
    A density evaluation costs O(K N M) for M functions, with outputs O(K N M + N M P).

    Examples
    --------
    >>> with pm.Model(coords={"obs": X_train.index}) as own:
    ...     ash = pm.Data("ash", X_train["ash"], dims="obs")
    ...     observed = pm.Data("observed", response, dims="obs")
    ...     h = kz.composite_function("h", kernels(X_train), scale=pm.HalfNormal.dist(1))
    ...     mean = pm.Normal("intercept") + pm.Normal("slope") * ash + h
    ...     pm.StudentT("t", nu=4, mu=mean, sigma=pm.HalfNormal("sigma"), observed=observed)
    >>> fitted = kz.fit(own, "nuts", draws=50, tune=50, chains=2, random_seed=1)

    New objects:

    >>> new = kernels(X_test, X_train).values
    >>> data = {"h_K": new, "ash": X_test["ash"], "observed": np.zeros(len(X_test))}
    >>> with own:
    ...     pm.set_data(data, coords={"obs": X_test.index})
    ...     pm.sample_posterior_predictive(fitted, var_names=["h", "t"], predictions=True)
    """
    owner = "composite_function"
    model = pm.modelcontext(None)
    stack, source = read_kernels(kernels, owner)
    if source is not IN_MEMORY:
        rule = "complete, in memory and without parameters to learn"
        raise argument_error("kernels", owner, rule, type(source).__name__)
    stack = _in_order_of(model, stack, owner)
    kernel, basis = f"{name}_kernel", f"{name}_basis"
    model.add_coords({kernel: stack["kernel"].values, basis: stack["basis"].values})
    K: Any = pm.Data(f"{name}_K", stack.values, dims=(kernel, "obs", basis))
    if weights is None:
        weights = Dirichlet.dist(a=np.ones(len(stack)))
    beta = _declared(model, f"{name}_beta", weights, kernel)
    dims = (outputs, basis) if outputs else (basis,)
    if coefficients is None:
        lengths = [len(model.coords[dim]) for dim in dims]
        coefficients = pm.StudentT.dist(nu=2.0, mu=0.0, sigma=1.0, shape=lengths)
    alpha = _declared(model, f"{name}_alpha", coefficients, *dims)
    if outputs:
        f = matrix_product(weighted_sum(K, beta), alpha.T)
    else:
        f = (beta[:, None] * matrix_product(K, alpha)).sum(0)
    s = _declared(model, f"{name}_scale", scale)
    return pm.Deterministic(name, s * f, dims=("obs", outputs) if outputs else ("obs",))


def _in_order_of(model: pm.Model, stack: DataArray, owner: str) -> DataArray:
    """Bring the rows into the order of the model's objects, or give the model its objects."""
    if "obs" not in model.coords:
        model.add_coord("obs", stack["obs"].values)
        return stack
    own = model.coords["obs"]
    if stack.sizes["obs"] != len(own):
        got = f"{stack.sizes['obs']} rows for {len(own)} objects"
        raise argument_error("kernels", owner, "of the objects of the model", got)
    rule = "of the objects of the model, labelled by their ids"
    order = order_of(ids_along(stack, "obs"), own, "kernels", owner, rule)
    return stack if order is None else stack.isel(obs=order)


def _declared(model: pm.Model, name: str, prior: Any, *dims: str) -> Any:
    """Variable of a prior without a name; variables of the model and numbers as they are."""
    node = getattr(prior, "owner", None)
    if node is None or prior in model.basic_RVs:
        return np.asarray(prior, dtype=float) if node is None else prior
    drawn = any(isinstance(each.type, RandomType) for each in node.inputs)
    return model.register_rv(prior, name, dims=dims) if drawn else prior
