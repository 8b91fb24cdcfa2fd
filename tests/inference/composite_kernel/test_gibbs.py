import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.models.composite_kernel import (
    CompositeKernelClassification,
    CompositeKernelRegression,
)

OPTIONS = {"draws": 100, "tune": 50, "chains": 2, "cores": 1, "random_seed": 1}


@pytest.mark.parametrize("declared", [CompositeKernelRegression, CompositeKernelClassification])
def test_fit(declared):
    result = kz.fit(declared.example(), kz.Gibbs(), progressbar=False, **OPTIONS)
    posterior, stats = result["posterior"], result["sample_stats"]
    assert posterior["beta"].dims == ("chain", "draw", "kernel")
    np.testing.assert_allclose(posterior["beta"].sum("kernel"), 1.0)
    assert all(np.isfinite(values).all() for values in posterior.data_vars.values())
    assert float(stats["evaluations"].min()) >= 3
