"""Zero and mean imputation."""

import numpy as np
import pytest

from kernelzoo.inference.mutual_completion.complete import impute_kernels
from mutual_fixture import random_kernels

KERNELS, VISIBLE = random_kernels(6, 2, 1)
NAMED = {"small": KERNELS[0], "large": 300 * KERNELS[1]}


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_visible_entries_stay_and_missing_ones_come_from_features(method):
    completed = impute_kernels(NAMED, VISIBLE, method=method)
    assert completed.dims == ("kernel", "obs", "basis")
    for k, (name, given) in enumerate(NAMED.items()):
        values, (w, V) = np.asarray(given), np.linalg.eigh(given)
        features = V * np.sqrt(np.clip(w, 0, None))
        seen = VISIBLE[:, k]
        features[~seen] = 0 if method == "zero" else features[seen].mean(axis=0)
        exact = features @ features.T
        np.testing.assert_allclose(completed.sel(kernel=name), exact, atol=1e-9 * values.max())


def test_unknown_methods_are_refused():
    with pytest.raises(ValueError, match="'method' argument"):
        impute_kernels(NAMED, VISIBLE, method="median")


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_kernels_without_objects_are_refused(method):
    given = NAMED | {"none": np.full_like(KERNELS[0], np.nan)}
    seen = np.c_[np.ones_like(VISIBLE), np.zeros(len(VISIBLE), dtype=bool)]
    for kernels, visible in ((given, None), (NAMED | {"none": KERNELS[0]}, seen)):
        with pytest.raises(ValueError, match=r"leave the others out\. Got none in 'none'"):
            impute_kernels(kernels, visible, method=method)
