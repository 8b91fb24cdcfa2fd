"""Downloads from OpenML, for the few data sets that are the same there.

scikit-learn compares a download with the checksum that OpenML states for it.  That does not say
that OpenML holds the data set meant here, in the same order of rows (on which the splits depend);
so each table is also compared with one number, its projection u'Xv on fixed vectors.  A permuted
row, a swapped column or a changed value moves the projection; the number of decimals that a text
file was written with hardly does, where a checksum would change altogether.

No download has been run by the tests, which have no network: they run this code on a stand-in for
scikit-learn's ``fetch_openml``.  The identifiers are those in common use, and the projections are
those of the files that the tests do have.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .cache import user_folder


@dataclass(frozen=True)
class OpenMLTable:
    """A table of numbers and class labels at OpenML.

    Parameters
    ----------
    data_id : int
        Identifier at OpenML.
    projection : float
        What `project` gives for the right table; with the position of the label in `classes` as
        its last column, where there are `classes`.
    classes : tuple of str, optional
        Class labels as OpenML spells them; without them, labels are neither read nor compared.
    tolerance : float, default=1e-9
        Of the projection, relative to the one of absolute values.  Larger where the numbers of
        decimals may differ.
    """

    data_id: int
    projection: float
    classes: tuple[str, ...] = ()
    tolerance: float = 1e-9

    def fetch(self) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Download the table, or read it from scikit-learn's cache of earlier downloads.

        Returns
        -------
        X : DataFrame of shape (N, D)
        codes : ndarray of int, shape (N,)
            Position of each label in `classes`; -1 for any other label.

        Raises
        ------
        OSError
            If there is no connection.
        ValueError
            If the table is not the one expected.
        """
        from sklearn.datasets import fetch_openml

        bunch = fetch_openml(data_id=self.data_id, as_frame=True, data_home=str(user_folder()))
        # Some tables declare whole numbers as categories, hence the detour over strings.
        X = bunch.data.astype(str).astype(float)
        codes = pd.Index(self.classes).get_indexer(bunch.target.astype(str))
        table = np.column_stack([X, codes]) if self.classes else X.to_numpy()
        allowed = self.tolerance * project(np.abs(table), absolute=True)
        if not abs(project(table) - self.projection) <= allowed:
            raise ValueError(
                f"The OpenML table {self.data_id} must have the projection {self.projection!r}. "
                f"Got {project(table)!r}, shape {X.shape}: it is another version of the data."
            )
        return X, codes


def project(X: NDArray, *, absolute: bool = False) -> float:
    """Return u'Xv with u_i = cos(i), v_j = cos(j) counted from 1, or with their absolute values."""
    u, v = (np.cos(np.arange(1, size + 1)) for size in X.shape)
    return float(np.abs(u) @ X @ np.abs(v) if absolute else u @ X @ v)
