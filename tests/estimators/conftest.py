"""Two blocks of features of the same objects, with ids."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from kernelzoo.estimators import predictor

N, TRAINED = 30, 22


@pytest.fixture(autouse=True, scope="session")
def few_scales():
    """Two scales to choose from; all of them triple the time of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictor, "SCALES", (1.0, 10.0))
        yield


class Blocks(NamedTuple):
    rna: pd.DataFrame
    protein: pd.DataFrame
    y: pd.Series
    target: pd.Series

    @property
    def X(self):
        return pd.concat({"rna": self.rna, "protein": self.protein}, axis=1)

    @property
    def flat(self):
        return pd.concat([self.rna, self.protein], axis=1)

    @property
    def train(self):
        return self._of(slice(None, TRAINED))

    @property
    def new(self):
        return self._of(slice(TRAINED, None))

    def _of(self, rows):
        return Blocks(*(each.iloc[rows] for each in self))


@pytest.fixture(scope="session")
def data():
    rng = np.random.default_rng(3)
    ids = [f"P{i}" for i in range(N)]
    # Features of different scales, so that standardising shows.
    rna = rng.normal(size=(N, 3)) * [1, 5, 30] + 4
    protein = rng.normal(size=(N, 2)) * [0.1, 2]
    response = rna[:, 0] - 4 + 0.2 * rng.normal(size=N)
    return Blocks(
        pd.DataFrame(rna, ids, ["g1", "g2", "g3"]),
        pd.DataFrame(protein, ids, ["p1", "p2"]),
        pd.Series(np.where(response > 0, "case", "control"), ids),
        pd.Series(response, ids),
    )
