"""Results as bytes, which skops and pickle can store."""

from io import BytesIO

import xarray as xr
from xarray import Dataset, DataTree

__all__ = ["as_bytes", "from_bytes"]


def as_bytes(result: DataTree | Dataset) -> bytes:
    """Return a result as the content of a netCDF file."""
    return bytes(result.to_netcdf(engine="h5netcdf"))


def from_bytes(content: bytes) -> DataTree:
    """Read a result from the content of a netCDF file, in memory."""
    with xr.open_datatree(BytesIO(content), engine="h5netcdf") as opened:
        return opened.load()
