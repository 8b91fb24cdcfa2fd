"""Specifications of kernels: their functions (`functions`), feature spaces and normalisations.

A specification is written once and applied to training and to new objects::

    kernels = gaussian(1 / 13) | linear() | polynomial(2)
    kernels(X_train)            # (kernel, obs, basis), square
    kernels(X_test, X_train)    # new objects against training objects

A specification holds no data. The constants of its normalisations come from the training objects.
Notation: S kernels, N training objects, n new objects, M basis functions (M = N for kernels),
D features.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, count
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import Seed, argument_error, check_count, check_name, integer_seed
from .base import BaseKernel, BasisExpansion, Precomputed
from .features import Objects, feature_spaces
from .labels import check_distinct
from .landmarks import CHOICES, Landmarks
from .learned import LearnedGaussian, LearnedKernel, ParametricStack
from .normalization import (
    NORMALIZATIONS,
    Similarities,
    needs_training_gram,
    normalize,
    with_centring,
)
from .rows import BLOCK, fingerprint, is_dask, slices_of
from .source import DIMS
from .stack import Origin, with_origin
from .warnings import warn_of_unequal_scales

#: Largest chunk of a Dask array of kernels, in numbers (64 MB).
LARGEST = 4 * BLOCK


@dataclass(frozen=True)
class Member:
    """One kernel of a specification, with its normalisations; without a space, on all of them."""

    base: BaseKernel
    name: str | None = None
    space: str | None = None
    steps: tuple[str, ...] = ()

    def __repr__(self) -> str:
        settings = [
            f"{name}={value!r}"
            for name, value in vars(self.base).items()
            if value is not getattr(type(self.base), name, None)
        ]
        calls = [f"{self.base.function_name}({', '.join(settings)})"]
        calls += [f"on({self.space!r})"] if self.space is not None else []
        calls += [f"normalize({', '.join(map(repr, self.steps))})"] if self.steps else []
        calls += [f"named({self.name!r})"] if self.name is not None else []
        return ".".join(calls)

    def name_on(self, space: str | None) -> str:
        """Name of this kernel on a feature space (None: the only one)."""
        if self.name is not None:
            return self.name if space is None or self.space == space else f"{self.name}[{space}]"
        return self.base.describe(space)


# Name, kernel and feature space.
type Entry = tuple[str, Member, str | None]


@dataclass(frozen=True, eq=False)
class FittedMember:
    """Kernel (n, M) as a function of objects' features (n, D); a fingerprint tells landmarks."""

    name: str
    space: str | None
    function: Callable[[NDArray], NDArray]
    n_basis: int
    fingerprint: str = ""

    @classmethod
    def of(cls, entry: Entry, train: Objects) -> "FittedMember":
        """Take from the training objects all that the kernel needs."""
        name, member, space = entry
        X_train, told = train.features[space], ""
        if isinstance(member.base, Landmarks):
            base, steps, X_train = member.base.chosen(X_train, member.steps, name)
        else:
            base, steps = with_centring(member.base, X_train, member.steps, name)
        gram = base.train(X_train, name) if needs_training_gram(steps) else None
        part = Similarities(gram, base.diagonal(X_train)) if steps else None

        # The function goes to the workers of a cluster, with the landmarks alone.
        def similarities(X: NDArray) -> NDArray:
            values = base.cross(X, X_train, name)
            if part is None:
                return values
            return normalize(Similarities(values, base.new_diagonal(X)), part, steps, name)

        if isinstance(member.base, Landmarks):
            told = fingerprint((X_train, similarities(X_train)))
        return cls(name, space, similarities, len(X_train), told)

    def __call__(self, objects: Objects) -> NDArray:
        """Normalised values (n, M) of new objects."""
        return self.function(objects.features[self.space])


# What kernels have taken from training objects, as long as these are there.
_FITTED: WeakKeyDictionary[Objects, "dict[Kernels, list[tuple[Entry, FittedMember]]]"] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True)
class Kernels:
    """An immutable specification of one or several kernels; see `kernelzoo.kernels`.

    Parameters
    ----------
    members : tuple of Member

    Notes
    -----
    ``a | b`` puts kernels side by side.  Calling the specification computes the stack.

    Examples
    --------
    >>> kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    >>> training = kernels(X_train)
    >>> new = kernels(X_test, X_train)
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        names = [member.name for member in self.members if member.name is not None]
        check_distinct(names, "name", "named", "different for each kernel of a stack")

    def __or__(self, other: "Kernels") -> "Kernels":
        if not isinstance(other, Kernels):
            return NotImplemented
        return Kernels(self.members + other.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.members))

    def named(self, name: str) -> "Kernels":
        """Return this kernel under another name; raise a ValueError for several kernels."""
        if len(self.members) != 1:
            got = f"{len(self.members)} kernels"
            raise argument_error("name", "named", "given to one kernel, before '|'", got)
        return self._with(name=str(name))

    def on(self, space: str) -> "Kernels":
        """Bind the kernels to one feature space, a key of the dict of features."""
        return self._with(space=space)

    def normalize(self, *steps: str) -> "Kernels":
        """Append normalisations to every kernel, applied in the order given.

        Parameters
        ----------
        *steps : {"trace", "unit", "center"}
            Training trace N; self-similarity 1; zero mean in feature space.  The constants come
            from the training objects, also for new objects.

        Raises
        ------
        ValueError
            For an unknown name, or a basis expansion (which is not a matrix of similarities).
        """
        for step in steps:
            check_name(step, NORMALIZATIONS, "steps", "normalize")
        for member in self.members:
            if not member.base.is_kernel:
                rule = (
                    "applied to kernels: before landmarks, and inside the function of a basis "
                    "expansion"
                )
                got = f"the basis expansion {member.name_on(None)!r}"
                raise argument_error("steps", "normalize", rule, got)
        return Kernels(tuple(replace(m, steps=(*m.steps, *steps)) for m in self.members))

    def landmarks(
        self, n_components: int, *, by: Literal["uniform", "kmeans"] = "uniform", seed: Seed = 0
    ) -> "Kernels":
        """Keep the columns of every kernel at landmarks, for many objects.

        The columns are the models' own basis functions: the model on all of them is that on the
        kernels themselves.

        Parameters
        ----------
        n_components : int
            Number of landmarks m, and of columns of the stack.
        by : {"uniform", "kmeans"}, default="uniform"
            Landmarks are training objects drawn with equal probabilities, or centres of clusters
            of the objects (scikit-learn's MiniBatchKMeans on 50 m of them; Zhang et al. 2008).
            Kernels of one feature space share their landmarks.
        seed : int, SeedSequence, Generator or None, default=0
            Seed of the landmarks.

        Returns
        -------
        Kernels
            Basis expansions k(x, l_1), ..., k(x, l_m). The means of "center" are those of the
            landmarks, and so is a trace after it.

        Raises
        ------
        ValueError
            For basis expansions, and kernels that are precomputed or have parameters to learn; when
            called, for more landmarks than training objects.

        Notes
        -----
        The stack costs O(S N m D), and is float64. No N x N matrix is formed.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | gaussian(0.5)).landmarks(500, by="kmeans")
        >>> model = MultinomialProbit(kernels(X_train), labels)
        >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))
        """
        check_count(n_components, "n_components", "landmarks")
        check_name(by, CHOICES, "by", "landmarks")
        number = integer_seed(seed, "seed", "landmarks")
        for member in self.members:
            base = member.base
            if isinstance(base, Precomputed | LearnedGaussian) or not base.is_kernel:
                rule = "functions of features, without parameters to learn"
                raise argument_error("kernels", "landmarks", rule, repr(member.name_on(None)))
        return Kernels(
            tuple(
                replace(m, base=Landmarks(m.base, n_components, number, by)) for m in self.members
            )
        )

    def _with(self, **changes: Any) -> "Kernels":
        return Kernels(tuple(replace(member, **changes) for member in self.members))

    def __call__(self, X: Any, X_train: Any = None) -> Any:
        """Compute the stack of kernels.

        Parameters
        ----------
        X : array-like, DataFrame or Dask array of shape (n, D), or dict of them
            The objects of the rows.  A dict has one entry per feature space, with the same objects.
            DataFrames are aligned by label: the index has the ids of the objects, and columns of
            new objects get the order of the training features.  A precomputed kernel takes
            similarities instead of features: (N, N) for training, (n, N) for new objects.  Of a
            Dask array, in chunks of whole rows, kernels are computed when they are needed; as
            training objects it serves landmarks.
        X_train : the same of N rows, optional
            The training objects; needed if `X` are new objects.

        Returns
        -------
        DataArray of shape (S, n, M)
            Dims "kernel", "obs", "basis", with coords; float64.  For a training stack of kernels
            the labels of "basis" are those of "obs".  The numbers of new objects without ids
            continue those of the training objects.  The attributes describe the kernels with given
            names.  If X is a Dask array, so is the stack, in the same chunks of objects or smaller
            ones of 64 MB.  If a kernel has parameters to learn (`Theta`): a `ParametricStack`,
            which models and `predict` accept instead.

        Raises
        ------
        ValueError
            For inputs that are not finite and two-dimensional, differ in objects or features
            (which are named), lack a feature space, cannot be normalised, or are so large that
            kernels overflow; and for a Dask array that the kernels cannot read by rows. NaN in a
            Dask array raises when its chunk is read.

        Warns
        -----
        KernelWarning
            If a kernel sums over training features of very different scales: a quarter of them or
            more have less than a hundredth of the largest standard deviation.

        Notes
        -----
        Costs O(S n N D).  For new objects the training Gram matrix is computed only for centring,
        O(S N^2 D) more.
        """
        # What overflows is an error below; what underflows is none.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return self._stack(X, X_train)

    def _stack(self, X: Any, X_train: Any) -> Any:
        train, entries = self._trained(X if X_train is None else X_train)
        new = train if X_train is None else feature_spaces(X, train)
        spaces = [space for _, _, space in entries]
        new.check_has(spaces)
        if new is train:
            added_up = {space for _, member, space in entries if member.base.adds_features_up}
            warn_of_unequal_scales({s: train.features[s] for s in train.features if s in added_up})
        of_dask = new.are_dask(spaces)
        if of_dask:
            self._check_row_by_row()
        learned = tuple(
            LearnedKernel(
                *(name, position, member.base, member.steps, space),
                *(new.features[space], train.features[space]),
            )
            for position, (name, member, space) in enumerate(entries)
            if isinstance(member.base, LearnedGaussian)
        )
        if self._are_features:
            fitted = [each for _, each in self._fitted(train)]
        else:
            # Kernels of the training objects are computed without what new objects need.
            fitted = [
                FittedMember.of(entry, train)
                for entry in entries
                if new is not train or isinstance(entry[1].base, Landmarks)
            ]
        if self._are_features or of_dask:
            values = _values_by_rows(fitted, new)
        else:
            values = _values_at_once(entries, fitted, new)
        expansion = not all(member.base.is_kernel for member in self.members)
        stack = xr.DataArray(
            values,
            dims=DIMS,
            coords={
                "kernel": [name for name, _, _ in entries],
                "obs": new.coord,
                "basis": _feature_labels(values.shape[2], fitted) if expansion else train.labels,
            },
            name="kernels",
            attrs={n: m.base.describe(space) for n, m, space in entries if m.name is not None},
        )
        stack = with_origin(stack, {name: _origin(m, train, s) for name, m, s in entries})
        return ParametricStack(stack, learned) if learned else stack

    def _check_row_by_row(self) -> None:
        """Raise for kernels whose rows cannot be computed by chunks of a Dask array."""
        for member in self.members:
            if isinstance(member.base, LearnedGaussian | BasisExpansion):
                rule = (
                    "kernels without parameters to learn, or features in place of them, for a Dask "
                    "array"
                )
                raise argument_error("kernels", "Kernels", rule, repr(member.name_on(None)))

    @property
    def grams(self) -> set[str | None]:
        """Feature spaces of precomputed kernels; None stands for all."""
        return {each.space for each in self.members if isinstance(each.base, Precomputed)}

    @property
    def _are_features(self) -> bool:
        """Whether all are features, so that objects need not be in memory."""
        return all(isinstance(member.base, Landmarks) for member in self.members)

    def _trained(self, X_train: Any) -> tuple[Objects, list[Entry]]:
        """Training objects, and kernels with their names and feature spaces."""
        train = feature_spaces(X_train, grams=self.grams)
        if self._are_features:
            return train, [entry for entry, _ in self._fitted(train)]
        entries = list(self._resolve(train))
        if train.are_dask(space for _, _, space in entries):
            rule = (
                "training objects in memory, for kernels that keep all of them: X.compute(), or "
                "kernels.landmarks(500)"
            )
            raise argument_error("X", "Kernels", rule, "a Dask array")
        for name, member, space in entries:
            if isinstance(member.base, Precomputed):
                train = train.with_gram(space, name)
        return train, entries

    def _fitted(self, train: Objects) -> list[tuple[Entry, FittedMember]]:
        """Kernels fitted once to training objects that stay, those of an estimator."""
        known = _FITTED.setdefault(train, {})
        if self not in known:
            known[self] = [(e, FittedMember.of(e, train)) for e in self._resolve(train)]
        return known[self]

    def _resolve(self, objects: Objects) -> Iterator[Entry]:
        """Yield name, kernel and feature space of every entry, given the training objects."""
        pairs = [
            (replace(member, base=member.base.on_training(objects.features[space])), space)
            for member in self.members
            for space in objects.spaces_of(member.space)
        ]
        taken = {member.name_on(space) for member, space in pairs if member.name is not None}
        for member, space in pairs:
            name = member.name_on(space)
            if member.name is None:
                # Given names do not change; equal descriptions are numbered.
                numbered = (f"{name} #{i}" for i in count(2))
                name = next(each for each in chain([name], numbered) if each not in taken)
                taken.add(name)
            yield name, member, space


def _origin(member: Member, train: Objects, space: str | None) -> Origin:
    """Return what identifies a kernel's normalisation and training objects."""
    steps = " ".join(member.steps)
    # Kernels with parameters hold the training objects themselves.
    if not member.base.is_kernel or isinstance(member.base, LearnedGaussian):
        return Origin(steps)
    return Origin(steps, len(train.labels), train.fingerprint(space))


def _feature_labels(n: int, kernels: Sequence[FittedMember]) -> NDArray:
    """Label n features, so that those of other training objects, or orders, have other labels."""
    # Models take the kernels in any order.
    told = sorted(f"{k.name} {k.fingerprint}" for k in kernels if k.fingerprint)
    code = f" {sha256(' '.join(told).encode()).hexdigest()[:8]}" if told else ""
    return np.array([f"phi{m}{code}" for m in range(n)])


def _values_at_once(
    entries: Sequence[Entry], fitted: Sequence[FittedMember], objects: Objects
) -> NDArray:
    """Kernels (S, n, M) of objects in memory, the training objects where none was fitted."""
    known = {kernel.name: kernel for kernel in fitted}
    columns = {}
    for name, member, space in entries:
        X = objects.features[space]
        columns[name] = known[name](objects) if name in known else _of_training(member, X, name)
        if not np.isfinite(columns[name]).all():
            largest = max(float(np.abs(each).max()) for each in objects.features.values())
            rule = "small enough that kernels do not overflow: standardise the features"
            got = f"entries up to {largest:.3g} in size, for which {name!r} is not finite"
            raise argument_error("X", "Kernels", rule, got)
    _one_width({name: values.shape[1] for name, values in columns.items()})
    return np.stack([*columns.values()])


def _of_training(member: Member, X: NDArray, name: str) -> NDArray:
    """Normalised values (N, M) of the training objects among themselves."""
    base, steps = with_centring(member.base, X, member.steps, name)
    values = base.train(X, name)
    if not steps:
        return values
    part = Similarities(values, np.diagonal(values).copy())
    return normalize(part, part, steps, name)


def _values_by_rows(kernels: Sequence[FittedMember], objects: Objects) -> Any:
    """Kernels (S, n, M), computed by blocks of rows: an array, or a Dask array of a Dask array."""
    width = _one_width({kernel.name: kernel.n_basis for kernel in kernels})
    if objects.are_dask(kernel.space for kernel in kernels):
        return _dask_values(kernels, objects, width)
    values = np.empty((len(kernels), len(objects.labels), width))
    for rows in slices_of(len(objects.labels), width):
        block = objects.block(rows)
        for out, kernel in zip(values, kernels, strict=True):
            out[rows] = kernel(block)
    return values


def _one_width(widths: dict[str, int]) -> int:
    """Return the number of basis functions of all kernels; raise if they differ."""
    if len(set(widths.values())) > 1:
        rule = "mapped to as many basis functions by every kernel"
        raise argument_error("X", "Kernels", rule, str(widths))
    return next(iter(widths.values()))


def _dask_values(kernels: Sequence[FittedMember], objects: Objects, width: int) -> Any:
    """Dask array (S, n, M) in the features' chunks of objects, or smaller ones of 64 MB."""
    import dask
    import dask.array as da

    spaces = list(dict.fromkeys(kernel.space for kernel in kernels))
    features = [objects.features[space] for space in spaces]
    rows = next(X.chunks[0] for X in features if is_dask(X))
    most = max(1, LARGEST // (len(kernels) * width))
    features = [da.asarray(X).rechunk((rows if max(rows) <= most else most, -1)) for X in features]
    # One task holds the kernels, which go to each worker once.
    shared = dask.delayed(list, pure=False)(dask.delayed(list(kernels), traverse=False))
    return da.map_blocks(
        _values_of_chunk, *features, kernels=shared, spaces=spaces,
        new_axis=0, chunks=((len(kernels),), features[0].chunks[0], (width,)), dtype=float,
        meta=np.empty((0, 0, 0)),
    )  # fmt: skip


def _values_of_chunk(
    *features: NDArray, kernels: Sequence[FittedMember], spaces: Sequence[str | None]
) -> NDArray:
    by_space = dict(zip(spaces, features, strict=True))
    return np.stack([kernel.function(by_space[kernel.space]) for kernel in kernels])
