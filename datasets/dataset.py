"""A data set with its description, and its splits into training and test parts."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..validation import Count, Fraction, Seed, argument_error, check_arguments, integer_seed

type Features = pd.DataFrame | dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Card:
    """Description, source and licence (as far as the source states it) of a data set.

    Examples
    --------
    >>> kz.datasets.load("wine").card
    """

    description: str
    source: str
    licence: str


def numbered(prefix: str, n: int) -> list[str]:
    """Names of features without names."""
    return [f"{prefix}{d}" for d in range(1, n + 1)]


#: Descriptions of all data sets, and where each is read from.
CATALOGUE: dict[str, Any] = tomllib.loads(
    files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8")
)


def card_of(name: str) -> Card:
    """Card of a data set of the catalogue."""
    row = CATALOGUE[name]
    return Card(row["description"], row["source"], row["licence"])


@dataclass(frozen=True, eq=False)
class Split:
    """A training and a test part.

    The indexes of `X_train` and `X_test`, DataFrames or dicts of them by view, hold the objects'
    labels from the whole data set. In both parts, columns of a Gram matrix are training objects.

    Examples
    --------
    >>> split = kz.datasets.load("wine").split(test_size=0.3, seed=1)
    >>> split.X_train.shape
    """

    X_train: Features
    X_test: Features
    y_train: NDArray
    y_test: NDArray

    def __repr__(self) -> str:
        return f"Split({len(self.y_train)} training objects, {len(self.y_test)} test objects)"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>" + _counts({"training": self.y_train, "test": self.y_test})


@dataclass(frozen=True, eq=False)
class Dataset:
    """Objects, their class labels and the description of their source.

    Parameters
    ----------
    name : str
    X : DataFrame of shape (N, D), or dict of them by view
        Real numbers; the index labels the objects.
    y : ndarray of shape (N,) or None
        Class labels as the source spells them; None if the data set has no labels.
    card : Card
    n_published_train : int, optional
        Size of the training part of the source's own division; it comes first.
    similarities : frozenset of str
        Views that hold similarities to objects instead of features. They are never standardised,
        and square ones are Gram matrices: a split divides their rows and columns.
    extras : mapping of str to ndarray
        Further arrays, explained in the description.

    Examples
    --------
    >>> data = kz.datasets.load("wine")
    >>> data.X.shape
    """

    name: str
    X: Features
    y: NDArray | None
    card: Card
    n_published_train: int | None = None
    similarities: frozenset[str] = frozenset()
    extras: Mapping[str, NDArray] = field(default_factory=dict)

    def __repr__(self) -> str:
        shapes = {view: table.shape for view, table in self.views.items()}
        return f"Dataset({self.name!r}, X {shapes.get(self.name, shapes)})"

    def _repr_html_(self) -> str:
        counts = "" if self.y is None else _counts({"objects": self.y})
        return f"<p>{escape(repr(self))}: {escape(self.card.description)}</p>{counts}"

    @property
    def views(self) -> dict[str, pd.DataFrame]:
        """All views by name; a single table has the name of the data set."""
        return self.X if isinstance(self.X, dict) else {self.name: self.X}

    def split(self, test_size: Fraction = 0.3, *, seed: Seed, standardize: bool = True) -> Split:
        """Divide the objects at random, stratified by class.

        Parameters
        ----------
        test_size : float, default=0.3
            Share of the objects in the test part, between 0 and 1.
        seed : int, SeedSequence, Generator or None
            A Generator advances with each call.
        standardize : bool, default=True
            Subtract the mean and divide by the standard deviation of the training part, feature by
            feature, in both parts. A feature that is constant in the training part is only
            shifted; similarities are not changed.

        Raises
        ------
        ValueError
            For a data set without labels, a `test_size` outside (0, 1), or a class with too few
            members to be in both parts.
        """
        check_arguments(Dataset.split, locals())
        y = self._labels("split")
        # Imported late: scikit-learn takes half a second to import.
        from sklearn.model_selection import train_test_split

        train, test = train_test_split(
            np.arange(len(y)),
            test_size=test_size,
            stratify=y,
            random_state=integer_seed(seed, "seed", "split"),
        )
        absent = sorted(set(y.tolist()) - set(y[train].tolist()), key=str)
        if absent:
            rule = "such that every class can be in both parts"
            got = f"{test_size!r}, which leaves class {absent[0]!r} out of the training part"
            raise argument_error("test_size", "split", rule, got)
        return self._divide(np.sort(train), np.sort(test), standardize)

    def folds(self, n: Count = 10, *, seed: Seed, standardize: bool = True) -> Iterator[Split]:
        """Yield the n divisions of a cross-validation: each object is in exactly one test part.

        Folds are stratified by class; a class of fewer than `n` members is missing from some test
        parts. The arguments are as for `split`.

        Raises
        ------
        ValueError
            For a data set without labels, a number of folds out of range, or a class of one member,
            which would be missing from a training part.
        """
        check_arguments(Dataset.folds, locals())
        y = self._labels("folds")
        if not 2 <= n <= len(y):
            raise argument_error("n", "folds", f"between 2 and {len(y)} (objects)", repr(n))
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        if counts.min() < 2:
            lone = classes.tolist()[int(counts.argmin())]
            raise ValueError(f"The data set {self.name!r} has one object of class {lone!r}.")
        fold = np.empty(len(y), dtype=int)
        # Dealing out the objects class after class makes the sizes of folds differ by at most one.
        rng = np.random.default_rng(integer_seed(seed, "seed", "folds"))
        order = np.lexsort((rng.random(len(y)), codes))
        fold[order] = np.arange(len(y)) % n
        for k in range(n):
            yield self._divide(np.flatnonzero(fold != k), np.flatnonzero(fold == k), standardize)

    def published_split(self, *, standardize: bool = True) -> Split:
        """Divide the objects as the source does; ValueError if it has no division of its own."""
        check_arguments(Dataset.published_split, locals())
        positions = np.arange(len(self._labels("published_split")))
        if self.n_published_train is None:
            raise ValueError(
                f"The data set {self.name!r} has no published split. Use split(seed=...)."
            )
        train, test = np.split(positions, [self.n_published_train])
        return self._divide(train, test, standardize)

    def _labels(self, owner: str) -> NDArray:
        if self.y is None:
            raise ValueError(f"The data set {self.name!r} has no labels; {owner} needs them.")
        return self.y

    def _divide(self, train: NDArray, test: NDArray, standardize: bool) -> Split:
        X: list[Any] = [{}, {}]
        for view, table in self.views.items():
            parts = [table.iloc[train], table.iloc[test]]
            if view not in self.similarities and standardize:
                first = parts[0]
                mean = first.mean()
                sd = first.std(ddof=0)
                # The computed sd of a constant feature may differ from 0 by rounding.
                sd = sd.where(first.nunique() > 1, 1.0)
                parts = [(part - mean) / sd for part in parts]
            elif view in self.similarities and table.shape[1] == len(table):
                parts = [part.iloc[:, train] for part in parts]
            X[0][view], X[1][view] = parts
        if not isinstance(self.X, dict):
            X = [tables[self.name] for tables in X]
        y = self._labels("split")
        return Split(X[0], X[1], y[train], y[test])


def _counts(labels: Mapping[str, NDArray]) -> str:
    """HTML table of the number of objects (part, class)."""
    counts = {part: pd.Series(y).value_counts() for part, y in labels.items()}
    return pd.DataFrame(counts).fillna(0).astype(int).T.to_html()
