"""Labels and entries of kernels with NaN, in all forms in which they may be given."""

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from ..kernels.labels import as_frame
from ..kernels.source import DIMS

__all__ = ["blank", "entries"]


@singledispatch
def blank(kernels: Any) -> Any:
    """Zeros in the form of the kernels, with the same names and labels."""
    try:
        shape = np.shape(kernels)
    except ValueError:
        return kernels
    # Anything but an array is returned, so that validation reports its type.
    return np.zeros(shape) if shape else kernels


@blank.register
def _(kernels: Mapping) -> Any:
    return {name: blank(matrix) for name, matrix in kernels.items()}


@blank.register(list)
@blank.register(tuple)
def _(kernels: Sequence) -> Any:
    labelled = any(isinstance(matrix, pd.DataFrame | xr.DataArray) for matrix in kernels)
    return [blank(matrix) for matrix in kernels] if labelled else blank(np.asarray(kernels))


@blank.register
def _(kernels: pd.DataFrame) -> Any:
    return pd.DataFrame(0.0, index=kernels.index, columns=kernels.columns)


@blank.register
def _(kernels: xr.DataArray) -> Any:
    # Matrices may have dims of any name, so a frame with the same labels replaces them.
    return xr.zeros_like(kernels, dtype=float) if kernels.ndim != 2 else blank(as_frame(kernels))


@singledispatch
def entries(kernels: Any) -> npt.NDArray[np.floating]:
    """Entries of kernels in any form whose labels have been validated as a stack."""
    array = np.asarray(kernels)
    if array.dtype.kind in "cmM":
        raise TypeError("complex entries or dates")
    return array if array.dtype.kind == "f" else array.astype(float)


@entries.register
def _(kernels: np.ma.MaskedArray) -> npt.NDArray[np.floating]:
    # Masked entries are missing, whatever values they hide.
    return np.where(np.ma.getmaskarray(kernels), np.nan, entries(kernels.data))


@entries.register
def _(kernels: Mapping) -> npt.NDArray[np.floating]:
    return np.stack([entries(matrix) for matrix in kernels.values()])


@entries.register(list)
@entries.register(tuple)
def _(kernels: Sequence) -> npt.NDArray[np.floating]:
    return np.stack([entries(matrix) for matrix in kernels])


@entries.register
def _(kernels: xr.DataArray) -> npt.NDArray[np.floating]:
    return entries((kernels.transpose(*DIMS) if kernels.ndim == 3 else kernels).to_numpy())
