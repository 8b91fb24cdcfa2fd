"""Reliability of predicted probabilities on labelled objects."""

from collections.abc import Mapping
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray
from xarray import DataArray, Dataset

from ...models.kernels.labels import aligned, ids_along
from ...validation import Count, argument_error, check_arguments, check_labels, check_probabilities
from .house_style import MARKERS, PALETTE, cycle, open_frame

OWNER = "plot_reliability"


def plot_reliability(
    predictions: DataArray | Dataset | Mapping[str, DataArray | Dataset],
    labels: Any,
    *,
    bins: Count = 10,
) -> Axes:
    """Draw a reliability diagram: frequency of correct predictions by predicted probability.

    Calibrated probabilities lie on the diagonal; below it, predictions are overconfident. Each
    point shows the frequency in a bin at the bin's mean probability of the predicted class, drawn
    by scikit-learn's ``CalibrationDisplay``. A bin of few objects says little: take fewer bins.

    Parameters
    ----------
    predictions : DataArray (obs, class), Dataset, or dict of them by name
        Class probabilities, or outputs of `predict`; several engines are overlaid.
    labels : array_like (obs,)
        True classes, among those of the coordinate "class".
    bins : int, default=10
        Number of bins of equal width on [0, 1].

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        For invalid probabilities, labels that do not match in number or class, and `bins` below
        one.

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(X_test, X_train))
    >>> kz.plots.plot_reliability(predictions, y_test)
    >>> kz.plots.plot_reliability({"VB": predictions, "Gibbs": others}, y_test, bins=5)
    """
    check_arguments(plot_reliability, locals())
    # Imported late: scikit-learn takes half a second to import.
    from sklearn.calibration import CalibrationDisplay

    named = dict(predictions) if type(predictions) is dict else {"predictions": predictions}
    if not named:
        raise argument_error("predictions", OWNER, "at least one prediction", "none")
    events = {name: _events(entry, labels) for name, entry in named.items()}
    _, axes = plt.subplots(figsize=(4.6, 4.6), layout="constrained")
    styles = zip(cycle(PALETTE, len(named)), cycle(MARKERS, len(named)), strict=True)
    for (name, (confidence, correct)), (color, marker) in zip(events.items(), styles, strict=True):
        CalibrationDisplay.from_predictions(
            correct, confidence, n_bins=bins, name=name, ax=axes, color=color, marker=marker
        )
    axes.set(
        xlabel="probability of the predicted class",
        ylabel="frequency of correct predictions",
        title=f"Reliability on {len(correct)} objects",
    )
    open_frame(axes)
    return axes


def _events(entry: Any, labels: Any) -> tuple[NDArray, NDArray]:
    """Probability of each object's predicted class, and 1 where it is the true one, else 0."""
    probability = entry["probability"] if isinstance(entry, Dataset) else entry
    if not isinstance(probability, DataArray) or set(probability.dims) != {"obs", "class"}:
        got = type(entry).__name__
        raise argument_error("predictions", OWNER, "class probabilities (obs, class)", got)
    objects = ids_along(probability, "obs")
    p = probability.transpose("obs", "class").to_numpy()
    check_probabilities(p, objects, "predictions", OWNER)
    labels = aligned(labels, objects, "labels", OWNER)
    classes = probability["class"].values.tolist()
    codes, _ = check_labels(labels, "labels", OWNER, classes=classes, n_objects=len(p))
    # Rounding may give a probability above 1, beyond the last edge.
    return p.max(1).clip(0.0, 1.0), (p.argmax(1) == codes).astype(int)
