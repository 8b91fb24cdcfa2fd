"""The data sets of ``catalogue.toml``: how each row becomes a `Dataset`."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..validation import check_name
from . import generators
from .dataset import CATALOGUE, Dataset, card_of, numbered

#: Environment variable that names a folder of data files.
VARIABLE = "KERNELZOO_DATA"


def names() -> list[str]:
    """Names of all data sets.

    Examples
    --------
    >>> kz.datasets.names()
    """
    return list(CATALOGUE)


def table() -> pd.DataFrame:
    """Sizes, location, source and licence of all data sets, one per row; reads no data.

    Examples
    --------
    >>> kz.datasets.table()
    """
    rows = pd.DataFrame.from_dict(CATALOGUE, orient="index").rename_axis("name")
    elsewhere = {
        name: str(_found(row) or ("to be downloaded" if "openml" in row else "missing"))
        for name, row in CATALOGUE.items()
        if row["from"] == "file"
    }
    rows["where"] = [elsewhere.get(name, "package") for name in CATALOGUE]
    return rows[["objects", "features", "classes", "where", "source", "licence"]]


def load(name: str) -> Dataset:
    """Load a data set by name, one of ``names()``; generators take their default arguments.

    Raises
    ------
    ValueError
        For an unknown name, or a file with a wrong checksum.
    FileNotFoundError
        If the data are not found and cannot be downloaded; the message names the file and folders.

    Examples
    --------
    >>> data = kz.datasets.load("wine").split(test_size=0.3, seed=1)
    >>> data.X_train.shape
    """
    row = CATALOGUE[check_name(name, CATALOGUE, "name", "load")]
    match row["from"]:
        case "generator":
            generated: Dataset = getattr(generators, name)()
            return generated
        case "scikit-learn":
            # Imported late: scikit-learn takes half a second to import.
            from sklearn import datasets

            bunch = getattr(datasets, f"load_{row.get('loader', name)}")(as_frame=True)
            X = bunch.data.astype(float)
            for place, values in row.get("changed", {}).items():
                X.iloc[int(place)] = values
            fields = {"X": X, "y": np.asarray(bunch.target_names)[bunch.target]}
        case "package":
            with (files(__package__) / f"{name}.csv.gz").open("rb") as file:
                fields = _features_and_labels(pd.read_csv(file, compression="gzip"))
        case _:
            fields = _of_file(name, row)
    return Dataset(name=name, card=card_of(name), **fields)


def _features_and_labels(frame: pd.DataFrame) -> dict[str, Any]:
    return {"X": frame.drop(columns="label").astype(float), "y": np.array(frame["label"].tolist())}


def _of_file(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields from the file of a data set, or from OpenML if no folder has it."""
    path = verified(row)
    if path is not None:
        return _of_archive(path, row) if path.suffix == ".npz" else _of_table(path, row)
    missing = FileNotFoundError(
        f"The data set {name!r} needs the file {row['file']} (SHA-256 {row['sha256']}). Put it "
        f"into one of these folders, or set the environment variable {VARIABLE} to a folder that "
        "holds it:\n  " + "\n  ".join(map(str, search_folders()))
    )
    if "openml" not in row:
        raise missing
    try:
        return _of_openml(row)
    except OSError as error:
        raise missing from error


def _of_table(path: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a table whose last column is the label, by name or as the number of a name."""
    fields = _features_and_labels(pd.read_csv(path))
    fields["X"].columns = row.get("columns", fields["X"].columns)
    if "labels" in row:
        fields["y"] = np.asarray(row["labels"])[fields["y"] - 1]
    return fields


def _of_archive(path: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an archive of arrays (``.npz``): ``y``, ``views``, ``index`` and ``extras``.

    Arrays NAME_train and NAME_test are the parts of the published division. The views in
    ``similarities`` are not standardised; of square ones rows and columns are the same objects.
    """
    with np.load(path) as archive:
        arrays = dict(archive)
    n_train = None
    for part in [name.removesuffix("_train") for name in arrays if name.endswith("_train")]:
        both = arrays.pop(f"{part}_train"), arrays.pop(f"{part}_test")
        arrays[part] = np.concatenate(both)
        n_train = len(both[0])
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


def verified(row: Mapping[str, Any]) -> Path | None:
    """Path of a file after verification, None if no folder has it; ValueError if it is another."""
    if (path := _found(row)) is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != row["sha256"]:
            raise ValueError(
                f"The file {path} must have the SHA-256 {row['sha256']}. Got {found}: it is "
                "damaged or of another version. Remove or replace it."
            )
    return path


def _found(row: Mapping[str, Any]) -> Path | None:
    return next(filter(Path.is_file, (folder / row["file"] for folder in search_folders())), None)


def user_folder() -> Path:
    """Return the user's cache folder of this package, which need not exist."""
    import pooch  # imported late: it shows a warning in notebooks without widgets

    return Path(pooch.os_cache("kernelzoo"))


def search_folders() -> list[Path]:
    """Folders as they are searched: that of KERNELZOO_DATA, the user's, and subfolders of each."""
    roots = [Path(os.environ[VARIABLE])] if os.environ.get(VARIABLE) else []
    return [root / part for root in (*roots, user_folder()) for part in ("", "registry", "public")]


def _of_openml(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a table, or of the tables of several views, at OpenML; tests have no network."""
    if "views" not in row:
        classes = row["openml"]["classes"]
        X, codes = openml_table(**row["openml"])
        X.columns = row["columns"]
        return {"X": X, "y": np.asarray(classes)[codes]}
    # Only mfeat has several views; the projections verify that its digits come in blocks of 200.
    views = {view: openml_table(**table)[0] for view, table in row["openml"].items()}
    for view, X in views.items():
        X.columns = numbered(view, X.shape[1])
    return {"X": views, "y": np.repeat(np.arange(10), 200)}


def openml_table(
    data_id: int, projection: float, classes: Sequence[str] = (), tolerance: float = 1e-9
) -> tuple[pd.DataFrame, NDArray]:
    """Download a table; return features and the positions of labels in `classes`, -1 for others."""
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(data_id=data_id, as_frame=True, data_home=str(user_folder()))
    # Some tables declare whole numbers as categories, which only strings convert.
    X = bunch.data.astype(str).astype(float)
    codes = pd.Index(classes).get_indexer(bunch.target.astype(str))
    table = np.column_stack([X, codes]) if classes else X.to_numpy()
    # OpenML's own checksum does not say that this is the table meant here, with rows in the order
    # on which splits depend. Therefore its `project` is verified, up to a relative `tolerance`
    # where the number of decimals may differ.
    if not abs(project(table) - projection) <= tolerance * project(np.abs(table), absolute=True):
        raise ValueError(
            f"The OpenML table {data_id} must have the projection {projection!r}. Got "
            f"{project(table)!r}, shape {X.shape}: it is another version of the data."
        )
    return X, codes


def project(X: NDArray, *, absolute: bool = False) -> float:
    """Return u'Xv with u_i = cos(i), v_j = cos(j), i, j from 1, or with |u_i| and |v_j|."""
    # A permuted row, a swapped column or a changed value changes it.
    u, v = (np.cos(np.arange(1, size + 1)) for size in X.shape)
    return float(np.abs(u) @ X @ np.abs(v) if absolute else u @ X @ v)
