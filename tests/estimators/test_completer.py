"""The transformer returns what `complete_kernels` completes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from kernelzoo.estimators import KernelCompleter
from kernelzoo.inference.completion import complete_kernels

IDS = list("abcdef")


def kernels():
    x = np.random.default_rng(0).normal(size=(6, 2, 2))
    found = {}
    for name, points in (("one", x[:, 0]), ("two", x[:, 1])):
        K = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1))
        found[name] = pd.DataFrame(K, index=IDS, columns=IDS)
    found["one"].iloc[[1, 5]] = np.nan
    found["one"].iloc[:, [1, 5]] = np.nan
    return found


@pytest.mark.parametrize("method", ["mutual", "mean", "zero"])
def test_transform_takes_rows_of_the_completion(method):
    settings = {"method": method, "engine": "exact", "draws": 3}
    completer = clone(KernelCompleter(**settings, random_state=2)).fit(kernels(), train=IDS[:4])
    expected = complete_kernels(kernels(), **settings, random_seed=2, progressbar=False)
    np.testing.assert_array_equal(completer.transform(IDS[:4]), expected.of(IDS[:4]).mean)
    new = completer.transform(IDS[4:], draws=True)
    np.testing.assert_array_equal(new.draws, expected.of(IDS[4:], IDS[:4]).draws)
    assert (completer.uncertainty_ is None) == (method != "mutual")


def test_fit_transform_returns_the_training_kernels():
    completer = KernelCompleter(method="zero")
    found = completer.fit_transform(kernels(), train=IDS[:4])
    assert found.sizes == {"kernel": 2, "obs": 4, "basis": 4}
    assert (found.sel(kernel="one", obs="b") == 0).all()


def test_new_kernels_and_unknown_ids_are_refused():
    completer = KernelCompleter(method="mean").fit(kernels())
    with pytest.raises(ValueError, match="'objects' argument"):
        completer.transform(kernels())
    with pytest.raises(ValueError, match="the unknown 'z'"):
        completer.transform(["z"])
    with pytest.raises(ValueError, match="the unknown 'z'"):
        KernelCompleter(method="mean").fit(kernels(), train=["a", "z"])
