"""Downloads from OpenML, for the few data sets that OpenML holds in the same form.

scikit-learn compares a download with OpenML's own checksum.  This does not verify that the table is
the data set meant here, with the rows in the same order (on which the splits depend).  Therefore
the projection u'Xv of each table on fixed vectors is also verified.  A permuted row, a swapped
column or a changed value changes the projection; the number of decimals in a text file hardly
changes it, but would change a checksum.

The tests have no network and replace scikit-learn's ``fetch_openml``; no download has been tested.
The identifiers are those in common use; the projections were computed from the files in the tests.
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
        Value of `project` for the right table, whose last column is the position of the label in
        `classes` if `classes` are given.
    classes : tuple of str, optional
        Class labels as OpenML spells them; without them, labels are neither read nor verified.
    tolerance : float, default=1e-9
        Tolerance of the projection, relative to the projection of absolute values.  Larger if the
        numbers of decimals may differ.
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
            If the table has another projection.
        """
        from sklearn.datasets import fetch_openml

        bunch = fetch_openml(data_id=self.data_id, as_frame=True, data_home=str(user_folder()))
        # Some tables declare whole numbers as categories, which only strings convert.
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
    """Return u'Xv with u_i = cos(i), v_j = cos(j), i, j from 1, or with |u_i| and |v_j|."""
    u, v = (np.cos(np.arange(1, size + 1)) for size in X.shape)
    return float(np.abs(u) @ X @ np.abs(v) if absolute else u @ X @ v)
