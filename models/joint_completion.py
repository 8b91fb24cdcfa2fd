"""One model of incomplete kernels and of the labels of some of their objects."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

from ..validation import argument_error, check_labels, check_name, check_positive
from .distributions.categorical_probit import CategoricalProbit
from .kernels.labels import check_distinct, listed
from .multinomial_probit import COMBINATIONS, declare_regressors
from .mutual_kernel_completion import MutualKernelCompletion
from .operations.matrix_product import matrix_product
from .operations.probit_likelihood import probit_log_probability

__all__ = ["joint_probit"]

OWNER = "joint_probit"


def joint_probit(
    kernels: Any,
    labels: pd.Series,
    new: Iterable[Any] = (),
    *,
    combination: str = "mean",
    tau: float = 1.0,
    upsilon: float = 1.0,
    completion: Mapping[str, Any] | None = None,
) -> MutualKernelCompletion:
    r"""Declare `MutualKernelCompletion` and `MultinomialProbit` as one model, for few objects.

    The completed kernels are random variables of the classifier, so that labels inform them.
    ``complete_kernels`` and `fit` ignore what labels say about kernels. Where the labelled objects
    have all their rows, labels say nothing about the missing rows of new objects, and both give the
    same probabilities.

    Parameters
    ----------
    kernels
        As in `MutualKernelCompletion`, with NaN in the rows and columns of missing objects.
    labels : Series
        Classes of the training objects, by id.
    new : sequence of ids, optional
        Objects whose class probabilities are recorded as ``probability`` (new, class).
    combination : str, default="mean"
        As in `MultinomialProbit`, but only names of sums.
    tau, upsilon : float, default=1
        As in `MultinomialProbit`.
    completion : mapping, optional
        Arguments of `MutualKernelCompletion` besides the kernels.

    Returns
    -------
    MutualKernelCompletion
        Amended by ``beta``, ``zeta``, ``W`` and ``t``, on kernels in the model's units (divided by
        the means of their visible diagonals). Only generic engines apply.

    Raises
    ------
    ValueError
        For labels of unknown or repeated ids, unknown new objects, and as the two models.

    Notes
    -----
    A density evaluation costs O(K l^3), and NUTS takes thousands of them: about 12 objects are
    practical.

    Examples
    --------
    >>> labels = pd.Series(kinds[:6])
    >>> model = kz.completion.joint_probit({"a": A, "b": B}, labels, new=[10, 11])
    >>> kz.engines(model)                   # NUTS records "probability"
    """
    check_positive(tau, "tau", OWNER)
    check_positive(upsilon, "upsilon", OWNER)
    sums = [name for name in COMBINATIONS if name in ("mean", "fixed")]
    check_name(combination, sums, "combination", OWNER)
    if not isinstance(labels, pd.Series):
        got = type(labels).__name__
        raise argument_error("labels", OWNER, "a Series with ids of objects", got)
    model = MutualKernelCompletion(kernels, **(completion or {}))
    if model.collapsed:
        raise argument_error("completion", OWNER, "not collapsed", repr(completion))
    objects = pd.Index(model.coords["object"])
    train, others = (
        _positions(ids, objects, name) for ids, name in ((labels.index, "labels"), (new, "new"))
    )
    codes, known = check_labels(labels, "labels", OWNER)
    rule = COMBINATIONS[combination]().for_kernels(np.asarray(model.coords["kernel"]))
    names = ("obs", objects[train]), ("basis", objects[train]), ("new", objects[others])
    model.add_coords({**dict(names), "class": known})
    with model:
        whole = pt.stack(
            [
                model[f"Q_{kernel.name}"] / kernel.unit if len(kernel.hidden) else kernel.values
                for kernel in model.problem.kernels
            ]
        )
        beta = rule.declare()
        W = declare_regressors(tau, upsilon)
        f = matrix_product(rule.combine(whole[:, train[:, None], train], beta), W.T)
        CategoricalProbit("t", f, observed=codes, dims="obs")
        if len(others):
            g = matrix_product(rule.combine(whole[:, others[:, None], train], beta), W.T)
            each = [probit_log_probability(g, pt.full(len(others), c)) for c in range(len(known))]
            pm.Deterministic("probability", pt.exp(pt.stack(each, axis=-1)), dims=("new", "class"))
    return model


def _positions(ids: Iterable[Any], objects: pd.Index, argument: str) -> np.ndarray:
    labels = list(ids)
    check_distinct(labels, argument, OWNER)
    positions = objects.get_indexer(pd.Index(labels))
    if (positions < 0).any():
        unknown = [label for label, p in zip(labels, positions, strict=True) if p < 0]
        got = f"the unknown {listed(unknown)}"
        raise argument_error(argument, OWNER, "labelled by ids of the kernels' objects", got)
    return positions
