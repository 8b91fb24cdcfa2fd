"""What tests of kernels share."""

import pytest


@pytest.fixture
def one_thread():
    """Dask computes in this thread, one task after the other."""
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        yield
