"""Readers of the archives (``.npz``) in the cache folder, one per data set."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .openml import OpenMLTable
from .sources import Contents

# For real-valued views a tolerance of 3e-7 allows rounding in the fifth decimal, but detects two
# exchanged rows.
_MFEAT = {
    "fou": OpenMLTable(14, 8.817162377912235, tolerance=3e-7),
    "fac": OpenMLTable(12, 4504.228709212451),
    "kar": OpenMLTable(16, -121.83467877345329, tolerance=3e-7),
    "pix": OpenMLTable(20, -529.9918236328955),
    "zer": OpenMLTable(22, 5034.241381184156, tolerance=3e-7),
    "mor": OpenMLTable(18, -35897.57897207145, tolerance=3e-7),
}


def read_mfeat(path: Path) -> Contents:
    """Six views of 2000 digits."""
    arrays = _load(path)
    y = arrays.pop("labels").astype(int)
    return Contents({view: _table(X, view) for view, X in arrays.items()}, y)


def download_mfeat() -> Contents:
    """Download the six views; the projections verify that the digits come in blocks of 200."""
    views = {view: table.fetch()[0] for view, table in _MFEAT.items()}
    for view, X in views.items():
        X.columns = _numbered(view, X.shape[1])
    return Contents(views, np.repeat(np.arange(10), 200))


def read_usps(path: Path) -> Contents:
    """Images of digits, with the published training and test part."""
    arrays = _load(path)
    return Contents(
        _table(np.concatenate([arrays["X_train"], arrays["X_test"]]), "pixel"),
        np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(int),
        n_published_train=len(arrays["y_train"]),
    )


def read_protein_fold(path: Path) -> Contents:
    """Twelve views of proteins, with the published training and test part."""
    arrays = _load(path)
    views = [name.removesuffix("_train") for name in arrays if name.endswith("_train")]
    joined = {
        view: np.concatenate([arrays[f"{view}_train"], arrays[f"{view}_test"]]) for view in views
    }
    y = joined.pop("labels").astype(int)
    n_train = len(arrays["labels_train"])
    return Contents(
        {view: _table(X, view) for view, X in joined.items()},
        y,
        n_published_train=n_train,
        similarities=frozenset({"SWblosum62", "SWpam50"}),
    )


def read_kernels_digits200(path: Path) -> Contents:
    """Six Gram matrices of the same digits, with masks."""
    arrays = _load(path)
    y = arrays.pop("labels").astype(int)
    grams = {f"K{k}": pd.DataFrame(K) for k, K in enumerate(arrays.pop("K"))}
    return Contents(grams, y, similarities=frozenset(grams), extras=arrays)


def read_kernels_embryo(path: Path) -> Contents:
    """Five Gram matrices of different objects, and incomplete ones with masks."""
    arrays = _load(path)
    grams = {view: pd.DataFrame(arrays.pop(view)) for view in _numbered("view", 5)}
    return Contents(grams, None, similarities=frozenset(grams), extras=arrays)


def read_tara_oceans(path: Path) -> Contents:
    """Three views of ocean samples."""
    arrays = _load(path)
    index = arrays["sample_name"]
    return Contents(
        {
            "phychem": pd.DataFrame(arrays["phychem"], index, arrays["phychem_names"]),
            "pro_phylo": _table(arrays["pro_phylo"], "pro_phylo", index),
            "pro_NOGs": _table(arrays["pro_NOGs"], "pro_NOGs", index),
        },
        arrays["sample_depth"],
        extras={"ocean": arrays["sample_ocean"]},
    )


def read_nutrimouse(path: Path) -> Contents:
    """Two views of mice."""
    arrays = _load(path)
    views = {view: _table(arrays[view], view) for view in ("gene", "lipid")}
    return Contents(views, arrays["genotype"], extras={"diet": arrays["diet"]})


def _load(path: Path) -> dict[str, NDArray]:
    with np.load(path) as archive:
        return dict(archive)


def _table(X: NDArray, prefix: str, index: ArrayLike | None = None) -> pd.DataFrame:
    return pd.DataFrame(X.astype(float), index, _numbered(prefix, X.shape[1]))


def _numbered(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{d}" for d in range(1, n + 1)]


#: Readers and downloads by name of the data set.
READERS = {
    "mfeat": read_mfeat,
    "usps": read_usps,
    "protein_fold": read_protein_fold,
    "kernels_digits200": read_kernels_digits200,
    "kernels_embryo": read_kernels_embryo,
    "tara_oceans": read_tara_oceans,
    "nutrimouse": read_nutrimouse,
}
DOWNLOADS = {"mfeat": download_mfeat}
