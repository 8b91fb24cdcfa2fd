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
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import Seed, argument_error, check_count, check_name, integer_seed
from .base import BaseKernel, BasisExpansion, Landmarks, Precomputed
from .features import Objects, feature_spaces
from .labels import NUMBERED, check_distinct
from .learned import LearnedGaussian, LearnedKernel, ParametricStack
from .normalization import NORMALIZATIONS, normalize, scale_to_trace
from .rows import fingerprint, is_dask
from .source import DIMS
from .stack import Origin, with_origin
from .warnings import warn_of_unequal_scales

#: Largest chunk of a Dask array of kernels, in numbers (64 MB).
LARGEST = 8_000_000


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


@dataclass(frozen=True)
class Kernels:
    """An immutable specification of one or several kernels; see `kernelzoo.kernels`.

    ``a | b`` puts kernels side by side. Calling the specification computes the stack.

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

    def _repr_html_(self) -> str:
        rows = [(each.name_on(each.space), each.space or "", repr(each)) for each in self.members]
        columns = ["kernel", "feature space", "specification"]
        return pd.DataFrame(rows, columns=columns).to_html(index=False)

    def named(self, name: str) -> "Kernels":
        """Return this kernel under another name; raise a ValueError for several kernels."""
        if len(self.members) != 1:
            got = f"{len(self.members)} kernels"
            raise argument_error("name", "named", "given to one kernel, before '|'", got)
        return Kernels((replace(self.members[0], name=str(name)),))

    def on(self, space: str) -> "Kernels":
        """Bind the kernels to one feature space, a key of the dict of features."""
        return Kernels(tuple(replace(member, space=space) for member in self.members))

    def normalize(self, *steps: str) -> "Kernels":
        """Normalise every kernel, with constants of the training objects, also for new objects.

        Parameters
        ----------
        *steps : {"trace", "unit"}
            Training trace N, or self-similarity 1.

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

    def landmarks(self, n_components: int, *, seed: Seed = 0) -> "Kernels":
        """Keep the columns of every kernel at landmarks, for many objects.

        The columns are the models' own basis functions: the model on all of them is that on the
        kernels themselves.

        Parameters
        ----------
        n_components : int
            Number of landmarks m, training objects drawn with equal probabilities, and of columns
            of the stack. Kernels of one feature space share their landmarks.
        seed : int, SeedSequence, Generator or None, default=0
            Seed of the landmarks.

        Returns
        -------
        Kernels
            Basis expansions k(x, l_1), ..., k(x, l_m). "trace" is that of all training objects.

        Raises
        ------
        ValueError
            For basis expansions, and kernels that are precomputed or have parameters to learn; when
            called, for more landmarks than training objects.

        Notes
        -----
        O(S N m D); no N x N matrix is formed.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | gaussian(0.5)).landmarks(500)
        >>> model = MultinomialProbit(kernels(X_train), labels)
        >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))
        """
        check_count(n_components, "n_components", "landmarks")
        number = integer_seed(seed, "seed", "landmarks")
        for member in self.members:
            base = member.base
            if isinstance(base, Precomputed | LearnedGaussian) or not base.is_kernel:
                rule = "functions of features, without parameters to learn"
                raise argument_error("kernels", "landmarks", rule, repr(member.name_on(None)))
        return Kernels(
            tuple(replace(m, base=Landmarks(m.base, n_components, number)) for m in self.members)
        )

    # What overflows is an error below; what underflows is none.
    @np.errstate(over="ignore", invalid="ignore", under="ignore")
    def __call__(self, X: Any, X_train: Any = None) -> Any:
        """Compute the stack of kernels.

        Parameters
        ----------
        X : array-like, DataFrame or Dask array of shape (n, D), or dict of them
            The objects of the rows. A dict has one entry per feature space, with the same objects.
            DataFrames are aligned by label: the index has the ids of the objects, and columns of
            new objects get the order of the training features. A precomputed kernel takes
            similarities instead of features: (N, N) for training, (n, N) for new objects. Of a
            Dask array, in chunks of whole rows, kernels are computed when they are needed; as
            training objects it serves landmarks.
        X_train : the same of N rows, optional
            The training objects; needed if `X` are new objects.

        Returns
        -------
        DataArray of shape (S, n, M)
            Dims "kernel", "obs", "basis", with coords. The numbers of new objects without ids
            continue those of the training objects. If X is a Dask array, so is the stack, in the
            same chunks of objects or smaller ones of 64 MB. If a kernel has parameters to learn
            (`Theta`): a `ParametricStack`, which models and `predict` accept instead.

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
        Costs O(S n N D).
        """
        train, entries = self._trained(X if X_train is None else X_train)
        new = train if X_train is None else feature_spaces(X, train)
        spaces = [space for _, _, space in entries]
        new.check_has(spaces)
        if new is train:
            added_up = {space for _, member, space in entries if member.base.adds_features_up}
            warn_of_unequal_scales({s: train.features[s] for s in train.features if s in added_up})
        learned = tuple(
            LearnedKernel(
                *(name, position, member.base, member.steps, space),
                *(new.features[space], train.features[space]),
            )
            for position, (name, member, space) in enumerate(entries)
            if isinstance(member.base, LearnedGaussian)
        )
        # Kernels of the training objects are computed without what new objects need.
        fitted = {
            entry[0]: _function_of(entry, train)
            for entry in entries
            if new is not train or isinstance(entry[1].base, Landmarks)
        }
        if new.are_dask(spaces):
            self._check_row_by_row()
            values = _values_of_dask(entries, fitted, new, train)
        else:
            values = _values(entries, fitted, new)
        basis = train.labels
        if not all(member.base.is_kernel for member in self.members):
            basis = _feature_labels(values.shape[2], entries, fitted, train)
        stack = xr.DataArray(
            values,
            dims=DIMS,
            coords={
                "kernel": [name for name, _, _ in entries],
                "obs": ("obs", new.labels, NUMBERED if new.numbered else None),
                "basis": basis,
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

    def _trained(self, X_train: Any) -> tuple[Objects, list[Entry]]:
        """Training objects, and kernels with their names and feature spaces."""
        train = feature_spaces(X_train, grams=self.grams)
        entries = list(self._resolve(train))
        whole = [space for _, member, space in entries if not isinstance(member.base, Landmarks)]
        if train.are_dask(whole):
            rule = (
                "training objects in memory, for kernels that keep all of them: X.compute(), or "
                "kernels.landmarks(500)"
            )
            raise argument_error("X", "Kernels", rule, "a Dask array")
        for name, member, space in entries:
            if isinstance(member.base, Precomputed):
                train = train.with_gram(space, name)
        return train, entries

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


def _function_of(entry: Entry, train: Objects) -> Callable[[NDArray], NDArray]:
    """Kernel (n, M) as a function of objects' features (n, D), normalised as the training kernel.

    It goes to the workers of a cluster, with the landmarks alone.
    """
    name, member, space = entry
    base, steps, X, scale = member.base, member.steps, train.features[space], 1.0
    if isinstance(base, Landmarks):
        if "trace" in steps and "unit" not in steps:
            # The trace is that of all training objects.
            scale, steps = scale_to_trace(base.trace(X), len(X), name), ()
        X = base.chosen(X)
    trained = base.diagonal(X) if steps else None

    def normalised(new: NDArray) -> NDArray:
        values = base.cross(new, X, name)
        if trained is None:
            return values if scale == 1 else scale * values
        return normalize(values, base.new_diagonal(new), trained, steps, name)

    return normalised


def _feature_labels(
    n: int,
    entries: Sequence[Entry],
    fitted: dict[str, Callable[[NDArray], NDArray]],
    train: Objects,
) -> NDArray:
    """Label n features, so that those of other training objects, or orders, have other labels."""
    codes = []
    for name, member, space in entries:
        if isinstance(member.base, Landmarks):
            # What the landmarks are among the training objects, and their normalised kernel.
            chosen = member.base.chosen(train.features[space])
            codes.append(f"{name} {fingerprint((chosen, fitted[name](chosen)))}")
    # Models take the kernels in any order.
    code = f" {sha256(' '.join(sorted(codes)).encode()).hexdigest()[:8]}" if codes else ""
    return np.array([f"phi{m}{code}" for m in range(n)])


def _values(
    entries: Sequence[Entry], fitted: dict[str, Callable[[NDArray], NDArray]], objects: Objects
) -> NDArray:
    """Kernels (S, n, M) of objects in memory, the training objects where none was fitted."""
    columns = {}
    for name, member, space in entries:
        X = objects.features[space]
        if name in fitted:
            columns[name] = fitted[name](X)
        else:
            gram = member.base.train(X, name)
            own = np.diagonal(gram)
            columns[name] = normalize(gram, own, own, member.steps, name)
        if not np.isfinite(columns[name]).all():
            largest = max(float(np.abs(each).max()) for each in objects.features.values())
            rule = "small enough that kernels do not overflow: standardise the features"
            got = f"entries up to {largest:.3g} in size, for which {name!r} is not finite"
            raise argument_error("X", "Kernels", rule, got)
    _one_width({name: values.shape[1] for name, values in columns.items()})
    return np.stack([*columns.values()])


def _one_width(widths: dict[str, int]) -> int:
    """Return the number of basis functions of all kernels; raise if they differ."""
    if len(set(widths.values())) > 1:
        rule = "mapped to as many basis functions by every kernel"
        raise argument_error("X", "Kernels", rule, str(widths))
    return next(iter(widths.values()))


def _values_of_dask(
    entries: Sequence[Entry],
    fitted: dict[str, Callable[[NDArray], NDArray]],
    objects: Objects,
    train: Objects,
) -> Any:
    """Dask array (S, n, M) in the features' chunks of objects, or smaller ones of 64 MB."""
    import dask
    import dask.array as da

    n_train = len(train.labels)
    widths = {name: getattr(m.base, "n_components", n_train) for name, m, _ in entries}
    width = _one_width(widths)
    kernels = [(space, fitted[name]) for name, _, space in entries]
    spaces = list(dict.fromkeys(space for space, _ in kernels))
    features = [objects.features[space] for space in spaces]
    rows = next(X.chunks[0] for X in features if is_dask(X))
    most = max(1, LARGEST // (len(kernels) * width))
    features = [da.asarray(X).rechunk((rows if max(rows) <= most else most, -1)) for X in features]
    # One task holds the kernels, which go to each worker once.
    shared = dask.delayed(list, pure=False)(dask.delayed(kernels, traverse=False))
    return da.map_blocks(
        _values_of_chunk, *features, kernels=shared, spaces=spaces,
        new_axis=0, chunks=((len(kernels),), features[0].chunks[0], (width,)), dtype=float,
        meta=np.empty((0, 0, 0)),
    )  # fmt: skip


def _values_of_chunk(
    *features: NDArray,
    kernels: Sequence[tuple[str | None, Callable[[NDArray], NDArray]]],
    spaces: Sequence[str | None],
) -> NDArray:
    by_space = dict(zip(spaces, features, strict=True))
    return np.stack([function(by_space[space]) for space, function in kernels])
