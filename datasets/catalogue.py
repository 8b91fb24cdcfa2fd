"""Readers of the data sets: how each row of ``catalogue.toml`` becomes a `Dataset`."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from . import generators
from .dataset import CATALOGUE, Dataset, card_of

#: Environment variable that names a folder of data files.
VARIABLE = "KERNELZOO_DATA"


def read(name: str) -> Dataset:
    """Read a data set of the catalogue from wherever it is."""
    row = CATALOGUE[name]
    made = partial(Dataset, name=name, card=card_of(name))
    match row["from"]:
        case "generator":
            generated: Dataset = getattr(generators, name)()
            return generated
        case "scikit-learn":
            X, y = _of_scikit_learn(row.get("loader", name))
            for place, values in row.get("changed", {}).items():
                X.iloc[int(place)] = values
            return made(X=X, y=y)
        case "package":
            with (files(__package__) / f"{name}.csv.gz").open("rb") as file:
                X, y = _features_and_labels(pd.read_csv(file, compression="gzip"))
            return made(X=X, y=y)
    path = verified(row)
    if path is not None:
        return made(**(_of_archive(path, row) if path.suffix == ".npz" else _of_table(path, row)))
    if "openml" not in row:
        raise _missing(name, row)
    try:
        return made(**_of_openml(row))
    except OSError as error:
        raise _missing(name, row) from error


def where(name: str) -> str:
    """Where a data set is: "package", path of the file, "to be downloaded" or "missing"."""
    row = CATALOGUE[name]
    if row["from"] != "file":
        return "package"
    path = _found(row)
    return str(path or ("to be downloaded" if "openml" in row else "missing"))


def _of_scikit_learn(name: str) -> tuple[pd.DataFrame, NDArray]:
    # Imported late: scikit-learn takes half a second to import.
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    return bunch.data.astype(float), np.asarray(bunch.target_names)[bunch.target]


def _features_and_labels(frame: pd.DataFrame) -> tuple[pd.DataFrame, NDArray]:
    return frame.drop(columns="label").astype(float), np.array(frame["label"].tolist())


def _of_table(path: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a table whose last column is the label, by name or as the number of a name."""
    X, y = _features_and_labels(pd.read_csv(path))
    X.columns = row.get("columns", X.columns)
    return {"X": X, "y": np.asarray(row["labels"])[y - 1] if "labels" in row else y}


def _of_archive(path: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an archive of arrays (``.npz``): ``y``, ``views``, ``index`` and ``extras``.

    Arrays NAME_train and NAME_test are the parts of the published division. The views in
    ``similarities`` are not standardised; of square ones rows and columns are the same objects.
    """
    with np.load(path) as archive:
        arrays = dict(archive)
    parts = [name.removesuffix("_train") for name in arrays if name.endswith("_train")]
    n_train = len(arrays[f"{parts[0]}_train"]) if parts else None
    for part in parts:
        both = arrays.pop(f"{part}_train"), arrays.pop(f"{part}_test")
        arrays[part] = np.concatenate(both)
    y = arrays.pop(row["y"]) if "y" in row else None
    arrays |= {f"K{k}": K for k, K in enumerate(arrays.pop("K", ()))}
    index = arrays.get(row.get("index", ""))
    similarities = frozenset(row.get("similarities", ()))
    views = {}
    for view in row["views"]:
        values = arrays.pop(view)
        names: Any = arrays.get(f"{view}_names", numbered(row.get("prefix", view), values.shape[1]))
        if view in similarities and len(values) == values.shape[1]:
            names = None
        views[view] = pd.DataFrame(values.astype(float), index, names)
    extras = row.get("extras", {})
    kept = {name: arrays[key] for name, key in extras.items()} if extras != "others" else arrays
    return {
        "X": views if len(views) > 1 else views.popitem()[1],
        "y": y.astype(int) if y is not None and y.dtype.kind == "i" else y,
        "n_published_train": n_train,
        "similarities": similarities,
        "extras": kept,
    }


def numbered(prefix: str, n: int) -> list[str]:
    """Names of features without names."""
    return [f"{prefix}{d}" for d in range(1, n + 1)]


def verified(row: Mapping[str, Any]) -> Path | None:
    """Path of a file after verification, None if no folder has it; ValueError if it is another."""
    path = _found(row)
    if path is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != row["sha256"]:
            raise ValueError(
                f"The file {path} must have the SHA-256 {row['sha256']}. Got {found}: it is "
                "damaged or of another version. Remove or replace it."
            )
    return path


def _found(row: Mapping[str, Any]) -> Path | None:
    candidates = (folder / row["file"] for folder in search_folders())
    return next((path for path in candidates if path.is_file()), None)


def _missing(name: str, row: Mapping[str, Any]) -> FileNotFoundError:
    folders = "\n  ".join(map(str, search_folders()))
    return FileNotFoundError(
        f"The data set {name!r} needs the file {row['file']} (SHA-256 {row['sha256']}). Put it "
        f"into one of these folders, or set the environment variable {VARIABLE} to a folder that "
        f"holds it:\n  {folders}"
    )


def user_folder() -> Path:
    """Return the user's cache folder of this package, which need not exist."""
    import pooch  # imported late: it shows a warning in notebooks without widgets

    return Path(pooch.os_cache("kernelzoo"))


def search_folders() -> list[Path]:
    """Folders searched for data files, in this order.

    The folder in the environment variable KERNELZOO_DATA, then the user's cache folder; each is
    followed by its subfolders ``registry`` and ``public``.
    """
    roots = [Path(os.environ[VARIABLE])] if os.environ.get(VARIABLE) else []
    return [root / part for root in (*roots, user_folder()) for part in ("", "registry", "public")]


def _of_openml(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a table, or of the tables of several views, at OpenML.

    The tests have no network; no download has been tested. Only mfeat has several views; the
    projections verify that its digits come in blocks of 200.
    """
    if "views" not in row:
        classes = row["openml"]["classes"]
        X, codes = openml_table(**row["openml"])
        X.columns = row["columns"]
        return {"X": X, "y": np.asarray(classes)[codes]}
    views = {view: openml_table(**table)[0] for view, table in row["openml"].items()}
    for view, X in views.items():
        X.columns = numbered(view, X.shape[1])
    return {"X": views, "y": np.repeat(np.arange(10), 200)}


def openml_table(
    data_id: int, projection: float, classes: Sequence[str] = (), tolerance: float = 1e-9
) -> tuple[pd.DataFrame, NDArray]:
    """Download a table; return features and the positions of labels in `classes`, -1 for others.

    OpenML's own checksum does not say that this is the table meant here, with rows in the order on
    which splits depend. Therefore its `project` is verified, up to a relative `tolerance` where the
    number of decimals may differ.
    """
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(data_id=data_id, as_frame=True, data_home=str(user_folder()))
    # Some tables declare whole numbers as categories, which only strings convert.
    X = bunch.data.astype(str).astype(float)
    codes = pd.Index(classes).get_indexer(bunch.target.astype(str))
    table = np.column_stack([X, codes]) if classes else X.to_numpy()
    if not abs(project(table) - projection) <= tolerance * project(np.abs(table), absolute=True):
        raise ValueError(
            f"The OpenML table {data_id} must have the projection {projection!r}. Got "
            f"{project(table)!r}, shape {X.shape}: it is another version of the data."
        )
    return X, codes


def project(X: NDArray, *, absolute: bool = False) -> float:
    """Return u'Xv with u_i = cos(i), v_j = cos(j), i, j from 1, or with |u_i| and |v_j|.

    A permuted row, a swapped column or a changed value changes it.
    """
    u, v = (np.cos(np.arange(1, size + 1)) for size in X.shape)
    return float(np.abs(u) @ X @ np.abs(v) if absolute else u @ X @ v)
