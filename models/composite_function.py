"""A function of the objects on a weighted combination of kernels, as a part of any PyMC model."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.tensor import TensorVariable
from pytensor.tensor.random.op import RandomVariable
from xarray import DataArray

from ..validation import argument_error, check_name, check_positive
from .combinations.sums import FixedWeights
from .distributions.dirichlet import Dirichlet
from .kernels.labels import counts_rows, ids_along, listed, order_of
from .kernels.source import IN_MEMORY
from .kernels.stack import read_kernels
from .operations.arrays import matrix_product, weighted_sum


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

    Add it to any terms, under any likelihood. Engines for any PyMC model fit such a model; those of
    a paper refuse it.

    Parameters
    ----------
    name : str
        Name f of the function. The data are ``{name}_K``, the weights ``{name}_beta``, the
        coefficients ``{name}_alpha``, a scale with a prior ``{name}_scale``.
    kernels : dict, sequence, array or DataArray (kernel, obs, basis)
        Kernels of the training objects, as `CompositeKernelRegression` takes them, in memory. They
        are brought into the order of the model's coordinate "obs" or, without one, of the first
        that has their ids, each once.
    weights : PyMC distribution or variable (kernel,), or numbers, optional
        Prior of beta, such as ``pm.Dirichlet.dist([2, 1])``, or its value, aligned by names.
        Default: uniform on the simplex, and 1 for a single kernel.
    coefficients : PyMC distribution or variable (basis,) or (output, basis), optional
        Prior of alpha, such as ``pm.Normal.dist(shape=n_basis)``. Default: Student's t with 2
        degrees of freedom, that of `CompositeKernelRegression` without its precisions.
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
        For kernels that a composite kernel refuses or with parameters to learn, ids that are not
        those of the model, names in use, and priors of other shapes. The model is left as it was.
    TypeError
        Outside a model.

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

    New objects, in any order, against the training objects in the order of the columns:

    >>> new = kernels(X_test, X_train).sel(basis=[*own.coords["h_basis"]]).values
    >>> data = {"h_K": new, "ash": X_test["ash"], "observed": np.zeros(len(X_test))}
    >>> with own:
    ...     pm.set_data(data, coords={"obs": X_test.index})
    ...     pm.sample_posterior_predictive(fitted, var_names=["h", "t"], predictions=True)
    """
    owner = "composite_function"
    if not isinstance(name, str) or not name:
        raise argument_error("name", owner, "a string that is not empty", repr(name))
    try:
        model = pm.modelcontext(None)
    except TypeError:
        raise TypeError(f"{owner} must be called in a model: with pm.Model(): ...") from None
    stack, source = read_kernels(kernels, owner)
    if source is not IN_MEMORY:
        rule = "complete, and without parameters to learn"
        raise argument_error("kernels", owner, rule, type(source).__name__)
    if outputs is not None:
        check_name(outputs, [*model.dim_lengths], "outputs", owner)
    objects = _dim_of_objects(model, stack, outputs)
    if outputs == objects:
        rule = "another dimension than that of the objects"
        raise argument_error("outputs", owner, rule, repr(outputs))
    stack = _in_order_of(model, stack, objects, owner)
    kernel = model.name_for(f"{name}_kernel")
    basis = model.name_for(f"{name}_basis")
    n_kernels, _, n_basis = stack.shape
    lengths = [int(model.dim_lengths[outputs].eval())] if outputs else []
    if weights is None:
        weights = Dirichlet.dist(a=np.ones(n_kernels)) if n_kernels > 1 else pt.ones(1)
    elif not isinstance(weights, TensorVariable):
        fixed = FixedWeights(weights).for_kernels(stack["kernel"].values)
        fixed.check(stack)
        weights = pt.as_tensor(np.asarray(fixed.weights))
    if coefficients is None:
        coefficients = pm.StudentT.dist(nu=2.0, mu=0.0, sigma=1.0, shape=[*lengths, n_basis])
    if not isinstance(scale, TensorVariable):
        scale = pt.as_tensor(check_positive(scale, "scale", owner))
    _check_shape(weights, [[n_kernels]], "weights", owner)
    _check_shape(coefficients, [[*lengths, n_basis]], "coefficients", owner)
    _check_shape(scale, [[], lengths], "scale", owner)

    names = [name, *(f"{name}_{part}" for part in ("K", "beta", "alpha", "scale"))]
    taken = {kernel, basis, *map(model.name_for, names)} & {*model.named_vars, *model.dim_lengths}
    if taken:
        rule = "a name of which the model has no variable or dim yet"
        raise argument_error("name", owner, rule, f"{name!r}, and {listed(taken)} in the model")
    if objects not in model.dim_lengths:
        model.add_coord(objects, stack["obs"].values)
    model.add_coords({kernel: stack["kernel"].values, basis: stack["basis"].values})
    along = (outputs,) if outputs else ()
    K: Any = pm.Data(f"{name}_K", stack.values, dims=(kernel, objects, basis))
    beta = _declared(model, f"{name}_beta", weights, kernel)
    alpha = _declared(model, f"{name}_alpha", coefficients, *along, basis)
    s = _declared(model, f"{name}_scale", scale, *along[: scale.ndim])
    if outputs:
        f = matrix_product(weighted_sum(K, beta), alpha.T)
    else:
        f = (beta[:, None] * matrix_product(K, alpha)).sum(0)
    return pm.Deterministic(name, s * f, dims=(objects, *along))


def _dim_of_objects(model: pm.Model, stack: DataArray, outputs: str | None) -> str:
    """Return "obs" or, in a model without it, the first coordinate with ids of the objects."""
    ids = ids_along(stack, "obs")
    if "obs" in model.dim_lengths or counts_rows(list(ids)):
        return "obs"
    names = set(map(str, ids))
    coords = {**model.coords, outputs: None}
    for dim, own in coords.items():
        # Repeated ids are several visits. Where some ids differ, `_in_order_of` names them.
        if own and len(own) == len(ids) == len(names) and not names.isdisjoint(map(str, own)):
            return dim
    return "obs"


def _in_order_of(model: pm.Model, stack: DataArray, objects: str, owner: str) -> DataArray:
    """Bring the rows into the order of the model's objects, if these have ids."""
    if objects not in model.dim_lengths:
        return stack
    n_objects = int(model.dim_lengths[objects].eval())
    own = model.coords.get(objects)
    if stack.sizes["obs"] != n_objects:
        got = f"{stack.sizes['obs']} rows for {n_objects} objects"
        raise argument_error("kernels", owner, "of the objects of the model", got)
    if own is None:
        return stack
    rule = "of the objects of the model, labelled by their ids"
    order = order_of(ids_along(stack, "obs"), own, "kernels", owner, rule)
    return stack if order is None else stack.isel(obs=order)


def _check_shape(prior: Any, shapes: list[list[int]], argument: str, owner: str) -> None:
    """Raise ValueError unless a variable may have one of the shapes."""
    if not isinstance(prior, TensorVariable):
        raise argument_error(argument, owner, "a PyMC distribution or variable", repr(prior))
    known = prior.type.shape
    for shape in shapes:
        if len(known) == len(shape) and all(
            have in (None, length) for have, length in zip(known, shape, strict=True)
        ):
            return
    rule = "of shape " + " or ".join(str(tuple(shape)) for shape in shapes)
    raise argument_error(argument, owner, rule, f"shape {known}")


def _declared(model: pm.Model, name: str, prior: TensorVariable, *dims: str) -> TensorVariable:
    """Register a distribution that is not a variable of the model; return others as they are."""
    op = prior.owner and prior.owner.op
    if not isinstance(op, RandomVariable | SymbolicRandomVariable):
        return prior
    within: pm.Model | None = model
    while within is not None:
        if prior in within.basic_RVs:
            return prior
        within = within.parent
    return model.register_rv(prior, name, dims=dims)
