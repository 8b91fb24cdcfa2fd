"""Combination of one classifier per feature space: the baseline of kernel combination.

Damoulas & Girolami (2009), section 2 and Tables 5 and 9.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from xarray import DataArray, Dataset

from ...models.kernels.labels import order_of
from ...validation import argument_error, check_name, check_probabilities

OWNER = "combine_classifiers"


def _product(p: NDArray) -> NDArray:
    # Probabilities of zero are floored: if every class has one, classes with the fewest remain.
    log_p = np.log(np.maximum(p, np.finfo(float).tiny)).sum(axis=0)
    return _normalised(np.exp(log_p - log_p.max(axis=-1, keepdims=True)))


def _normalised(p: NDArray) -> NDArray:
    return p / p.sum(axis=-1, keepdims=True)


# From probabilities (classifier, obs, class) to probabilities (obs, class).
_RULES: dict[str, Callable[[NDArray], NDArray]] = {
    "product": _product,
    "mean": lambda p: p.mean(axis=0),
    "max": lambda p: _normalised(p.max(axis=0)),
    "majority": lambda p: np.eye(p.shape[-1])[p.argmax(axis=-1)].mean(axis=0),
}


def combine_classifiers(
    predictions: Mapping[str, Dataset] | Sequence[Dataset], rule: str = "product"
) -> Dataset:
    """Combine the class probabilities of separately trained classifiers.

    Parameters
    ----------
    predictions : sequence or dict of Dataset
        Outputs of `predict` for the same objects and classes, one per feature space. Objects and
        classes are aligned by their labels, in the order of the first output.
    rule : {"product", "mean", "max", "majority"}, default="product"
        Combination of the probabilities p_s(class): their normalised product (eq 1, for independent
        feature spaces; probabilities of zero count as 2e-308), their mean (eq 2), their normalised
        maximum, or the share of the classifiers that rank the class first.

    Returns
    -------
    Dataset (obs, class)
        ``probability`` and ``label``, as for `scores`. The mean probability decides between equal
        votes.

    Raises
    ------
    ValueError
        For an unknown rule, no predictions, predictions of other objects or classes, and
        probabilities that are missing, negative or do not sum to one.

    Examples
    --------
    >>> each = [kz.predict(m, r, k) for m, r, k in zip(models, results, kernels_new)]
    >>> kz.scores.held_out(kz.combine_classifiers(each, "mean"), labels_new)
    """
    check_name(rule, _RULES, "rule", OWNER)
    each = list(predictions.values() if isinstance(predictions, Mapping) else predictions)
    if not each or not all(isinstance(one, Dataset) and "probability" in one for one in each):
        kinds = ", ".join(type(one).__name__ for one in each) or "none"
        needed = "Datasets with the variable 'probability'"
        raise argument_error("predictions", OWNER, needed, kinds)
    first = each[0]["probability"]
    p = np.stack([_aligned(one["probability"], first) for one in each])
    names = list(predictions) if isinstance(predictions, Mapping) else range(len(p))
    for name, one in zip(names, p, strict=True):
        check_probabilities(one, first["obs"].values.tolist(), f"predictions[{name!r}]", OWNER)
    combined = _RULES[rule](p)
    # The mean breaks ties of votes; distinct votes differ by more than 1e-9.
    preference = combined + 1e-9 * p.mean(axis=0) if rule == "majority" else combined
    return Dataset(
        {
            "probability": (("obs", "class"), combined, {"long_name": f"{rule} of classifiers"}),
            "label": ("obs", first["class"].to_numpy()[preference.argmax(axis=-1)]),
        },
        coords={"obs": first["obs"], "class": first["class"]},
    )


def _aligned(p: DataArray, first: DataArray) -> NDArray:
    """Probabilities (obs, class) with objects and classes in the order of the first classifier."""
    for dim in ("obs", "class"):
        labels = p[dim].to_index(), first[dim].to_index()
        rule = "of the same objects and classes"
        order = order_of(*labels, "predictions", OWNER, rule, by_position=False)
        p = p if order is None else p.isel({dim: order})
    return p.transpose("obs", "class").to_numpy()
