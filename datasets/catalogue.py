"""Catalogue of the data sets: ``catalogue.toml`` describes each and says where it is read from."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from . import archives, generators
from .cache import CacheFile
from .dataset import Card
from .openml import OpenMLTable
from .sources import (
    Cached,
    Reader,
    bundled,
    csv,
    downloaded,
    from_scikit_learn,
    generated,
    iris_uci,
)


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue.

    Parameters
    ----------
    objects, features : str
        Their numbers, by part or by view if there are several.
    classes : int
    card : Card
    read : callable
        Maps the name of the data set to its ``Contents``.
    """

    objects: str
    features: str
    classes: int
    card: Card
    read: Reader


def _entry(name: str, row: Mapping[str, Any]) -> Entry:
    if row["from"] == "generator":
        card, read = generators.CARDS[name], generated(getattr(generators, name))
    else:
        card, read = Card(row["description"], row["source"], row["licence"]), _reader(name, row)
    return Entry(row["objects"], row["features"], row["classes"], card, read)


def _reader(name: str, row: Mapping[str, Any]) -> Reader:
    match row["from"]:
        case "scikit-learn":
            return from_scikit_learn
        case "iris_uci":
            return iris_uci
        case "package":
            return bundled
    file = CacheFile(row["file"], row["sha256"])
    if name in archives.READERS:
        return Cached(file, archives.READERS[name], archives.DOWNLOADS.get(name))
    download = None
    if "openml" in row:
        table = OpenMLTable(**row["openml"] | {"classes": tuple(row["openml"]["classes"])})
        download = downloaded(table, row["columns"])
    return Cached(file, csv(row.get("columns"), row.get("labels")), download)


CATALOGUE: dict[str, Entry] = {
    name: _entry(name, row)
    for name, row in tomllib.loads(
        files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8")
    ).items()
}
