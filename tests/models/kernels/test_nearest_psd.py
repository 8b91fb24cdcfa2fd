"""Indefinite similarities become kernels, and new objects are changed as the training objects."""

import numpy as np
import pandas as pd
import pytest

import kernelzoo as kz
from kernelzoo.models.kernels import as_stack, gaussian, nearest_psd

N = 9
RNG = np.random.default_rng(3)
IDS = [f"s{i}" for i in range(N)]
SCORES = RNG.normal(size=(N, N))
SCORES = pd.DataFrame((SCORES + SCORES.T) / 2 + np.eye(N), IDS, IDS)
GRAM = pd.DataFrame(gaussian(0.3)(RNG.normal(size=(N, 2))).values[0], IDS, IDS)
SIMILARITIES = {"scores": SCORES, "gram": GRAM}
EIGENVALUES, U = np.linalg.eigh(SCORES)
EXPECTED = (U * np.maximum(EIGENVALUES, 0)) @ U.T


def test_negative_eigenvalues_are_changed_and_reported():
    kernels = as_stack(nearest_psd(SIMILARITIES))
    np.testing.assert_allclose(kernels.sel(kernel="scores"), EXPECTED, atol=1e-12)
    np.testing.assert_allclose(kernels.sel(kernel="gram"), GRAM, rtol=1e-14)
    change = np.linalg.norm(EXPECTED - SCORES) / np.linalg.norm(SCORES)
    np.testing.assert_allclose(kernels["change"], [change, 0.0], rtol=1e-9)
    assert kernels["negative"].values.tolist() == [(EIGENVALUES < 0).sum(), 0]
    np.testing.assert_allclose(kernels["smallest"][0], EIGENVALUES[0])


def test_new_objects_are_changed_as_copies_of_them_in_training():
    copies = {
        name: K.iloc[:3].rename(index=lambda i: f"copy of {i}") for name, K in SIMILARITIES.items()
    }
    # Labels decide: the columns and the training objects are in other orders.
    copies["scores"] = copies["scores"][IDS[::-1]]
    new = nearest_psd(copies, SIMILARITIES)
    kernels = nearest_psd(SIMILARITIES)
    np.testing.assert_allclose(new, kernels[:, :3], atol=1e-12)
    model = kz.MultinomialProbit(kernels, np.arange(N) % 3)
    fitted = kz.fit(model, kz.VB(starts=1), draws=5, random_seed=1, progressbar=False)
    assert kz.predict(model, fitted, new)["obs"].values.tolist() == [
        f"copy of {i}" for i in IDS[:3]
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"similarities": np.triu(SCORES)}, "'similarities' argument of nearest_psd must be symm"),
        ({"similarities": SCORES.iloc[:, :3]}, r"must be square.* Got shape \(1, 9, 3\)"),
        ({"similarities": SCORES.where(SCORES < 1)}, "'similarities' .* must be finite"),
        (
            {"similarities": np.where(np.arange(9) == 4, np.nan, SCORES).T},
            # No advice of what refuses indefinite matrices.
            r"must be finite\. Got 9 NaN .*'K0', 4, 0\.$",
        ),
        ({"similarities": np.ones((2, 4)), "train": SCORES}, r"new objects, 9 training objects\)"),
    ],
)
def test_what_cannot_be_changed_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        nearest_psd(**given)
