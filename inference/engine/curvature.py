"""Curvature of a log density, for the Laplace approximation and for the mass matrix of NUTS."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .engine import Run

__all__ = ["curvature"]


def curvature(gradient: Callable[[NDArray], NDArray], x: NDArray, run: Run) -> NDArray:
    """Hessian (D, D) at a point (D,), by central differences: 2 D gradients.

    Parameters
    ----------
    gradient : callable (ndarray (D,)) -> ndarray (D,)
        Its arrays may share memory.
    x : ndarray (D,)
    run : Run
        For the progress bar.

    Returns
    -------
    ndarray (D, D)
        Symmetric.
    """
    step = np.finfo(float).eps ** (1 / 3) * np.maximum(1.0, np.abs(x))
    hessian = np.empty((len(x), len(x)))
    with run.track(len(step), "Curvature") as bar:
        for i, h in enumerate(step):
            offset = np.zeros_like(x)
            offset[i] = h
            hessian[i] = gradient(x + offset)
            hessian[i] -= gradient(x - offset)
            hessian[i] /= 2 * h
            bar.advance()
    return 0.5 * (hessian + hessian.T)
