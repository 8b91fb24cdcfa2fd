"""Incomplete kernels with known truth, for the studies of Kato and Rivero.

The paper's seven kernels of yeast proteins (2,318 objects) are not available. In their place:

- ``mfeat``: six views of handwritten digits, 20 of each class, drawn anew for each repetition
  (l = 200); features z-scored over these objects, Gaussian kernels exp(-d^2 / D) of D features.
- ``digits200``: six kernels of 200 such digits from another paper, two of them singular.
- ``protein fold``: the 311 training proteins in ten feature spaces, as with mfeat, and two kernels
  of Smith-Waterman scores, cosine-normalised.
- ``embryo 1`` to ``embryo 5``: kernels of embryo development that are really incomplete. One kernel
  is fully known; the data include masks that hide a further part of it.

Masks follow the paper: entries that are missing at one ratio are missing at every higher ratio, and
each object keeps one kernel, chosen at random. A ratio is a share of all pairs of object and
kernel; in the embryo data it is a share of the known kernel's objects.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kernelzoo.datasets import load
from kernelzoo.models.kernels import as_stack, gaussian


class Problem(NamedTuple):
    """Kernels and their visible part."""

    kernels: xr.DataArray
    visible: NDArray[np.bool_]
    labels: NDArray | None
    known: tuple[str, ...]


class _Whole(NamedTuple):
    """Complete kernels and the labels of their objects."""

    kernels: xr.DataArray
    labels: NDArray


def nested_mask(rng: np.random.Generator, n: int, n_kernels: int, ratio: float) -> NDArray:
    """Hide a share of all pairs of object and kernel (False); each object keeps one kernel.

    With the same generator, pairs hidden at a lower ratio are also hidden at a higher one.
    """
    order = rng.random((n, n_kernels))
    order[np.arange(n), rng.integers(n_kernels, size=n)] = 2.0
    visible = np.ones(n * n_kernels, dtype=bool)
    visible[np.argsort(order, axis=None)[: round(ratio * n * n_kernels)]] = False
    return visible.reshape(n, n_kernels)


def training_part(rng: np.random.Generator, labels: NDArray, share: float) -> NDArray[np.bool_]:
    """Choose a share of each class for training, at least one object but not all.

    With the same generator, objects chosen with a smaller share are also chosen with a larger one.
    """
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        train[members[: min(max(1, round(share * len(members))), len(members) - 1)]] = True
    return train


def _mfeat(rng: np.random.Generator) -> _Whole:
    data = load("mfeat")
    y = np.asarray(data.y)
    chosen = [rng.choice(np.flatnonzero(y == c), 20, replace=False) for c in np.unique(y)]
    objects = np.concatenate(chosen)
    views = {name: X.to_numpy()[objects] for name, X in data.views.items()}
    return _Whole(as_stack({name: _gaussian(X) for name, X in views.items()}), y[objects])


def _protein_fold(rng: np.random.Generator) -> _Whole:
    data = load("protein_fold")
    n = data.n_published_train
    kernels = {}
    for name, table in data.views.items():
        X = table.to_numpy()[:n]
        kernels[name] = _cosine(X) if name in data.similarities else _gaussian(X)
    return _Whole(as_stack(kernels), np.asarray(data.y)[:n])


def _digits200(rng: np.random.Generator) -> _Whole:
    data = load("kernels_digits200")
    kernels = {name: gram.to_numpy() for name, gram in data.views.items()}
    return _Whole(as_stack(kernels), np.asarray(data.y))


def _gaussian(X: NDArray) -> NDArray:
    sd = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(np.ptp(X, axis=0) > 0, sd, 1.0)
    return gaussian(1 / X.shape[1])(Z).to_numpy()[0]


def _cosine(scores: NDArray) -> NDArray:
    sizes = np.sqrt(np.diagonal(scores))
    return scores / np.outer(sizes, sizes)


#: Index of the known kernel in each of the embryo data's experiments.
_EMBRYO_KNOWN = (1, 2, 3, 3, 4)


def _embryo(number: int, seed: int, ratio: float) -> Problem:
    extras = load("kernels_embryo").extras
    values = extras[f"exp{number}_K"]
    names = [f"K{k}" for k in range(len(values))]
    visible = extras[f"exp{number}_MID{round(100 * ratio)}"] > 0
    known = (names[_EMBRYO_KNOWN[number]],)
    return Problem(as_stack(dict(zip(names, values, strict=True))), visible, None, known)


def _hidden(make: Callable[[np.random.Generator], _Whole], seed: int, ratio: float) -> Problem:
    rng = np.random.default_rng(seed)
    kernels, labels = make(rng)
    names = tuple(kernels["kernel"].values.tolist())
    visible = nested_mask(rng, len(labels), len(names), ratio)
    return Problem(kernels, visible, labels, names)


#: Problems by column of the studies' tables.
PROBLEMS: dict[str, Callable[[int, float], Problem]] = {
    "mfeat": partial(_hidden, _mfeat),
    "digits200": partial(_hidden, _digits200),
    "protein fold": partial(_hidden, _protein_fold),
    **{f"embryo {i + 1}": partial(_embryo, i) for i in range(len(_EMBRYO_KNOWN))},
}


def problem(column: str, seed: int, ratio: float) -> Problem:
    """Make the kernels of a column of ``PROBLEMS``, and hide a share of their rows."""
    return PROBLEMS[column](seed, ratio)
