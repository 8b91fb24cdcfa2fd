"""Specifications of kernels: their functions (`functions`), feature spaces and normalisations.

A specification is written once and applied to training and to new objects::

    kernels = gaussian(1 / 13) | linear() | polynomial(2)
    kernels(X_train)            # (kernel, obs, basis), square
    kernels(X_test, X_train)    # new objects against training objects

A specification holds no data.  The constants of its normalisations come from the objects given last
(the training objects), never from new objects.  Values are those of ``sklearn.metrics.pairwise``;
``covariance`` takes any covariance function of ``pm.gp.cov``.

Notation: S kernels, N training objects, n new objects, M basis functions (M = N for kernels),
D features.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import (
    Seed,
    argument_error,
    check_count,
    check_flag,
    check_name,
    integer_seed,
)
from .base import (
    BaseKernel,
    BasisExpansion,
    Precomputed,
)
from .blocks import KernelsInBlocks, feature_labels
from .features import Objects, feature_spaces
from .kernel_features import ExactFeatures, KernelFeatures, check_exact
from .learned import LearnedCovariance, LearnedKernel, ParametricStack
from .member import FittedMember, Member
from .memory import check_fits
from .normalization import NORMALIZATIONS
from .nystroem import LANDMARKS, LandmarkColumns, NystroemFeatures
from .random_features import RandomFeatures, check_frequencies
from .stack import with_origin
from .warnings import warn_of_unequal_scales

__all__ = ["Kernels"]


# Name, kernel and feature space.
type Entry = tuple[str, Member, str | None]

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
        given = Counter(member.name for member in self.members if member.name is not None)
        repeated = [name for name, times in given.items() if times > 1]
        if repeated:
            raise argument_error(
                "name", "named", "different for each kernel of a stack", f"{repeated[0]!r} twice"
            )

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
            raise argument_error(
                "name", "named", "given to one kernel, before '|'", f"{len(self.members)} kernels"
            )
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
                raise argument_error(
                    "steps",
                    "normalize",
                    "applied to kernels: before features take their place, and inside the function "
                    "of a basis expansion",
                    f"the basis expansion {member.name_on(None)!r}",
                )
        return Kernels(tuple(replace(m, steps=(*m.steps, *steps)) for m in self.members))

    def nystroem(
        self,
        n_components: int,
        *,
        by: Literal["uniform", "kmeans"] = "uniform",
        seed: Seed = 0,
    ) -> "Kernels":
        """Replace every kernel by its Nystroem features, for many objects.

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
            Basis expansions whose inner products approximate the kernels; exact for all training
            objects as landmarks. A normalised kernel gives the features of the normalised kernel:
            traces and self-similarities are those of the kernel itself, without error, and the
            features' own are at most as large; the means of "center" come from the features.

        Raises
        ------
        ValueError
            For basis expansions, and kernels that are precomputed or have parameters to learn; when
            called, for more landmarks than training objects.

        Notes
        -----
        The stack costs O(S (m^3 + N m (m + D))). It is made in blocks, in float64 because the
        models take nothing else. No N x N matrix is formed, and arrays, memory maps and arrays on
        disk are read in blocks.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | gaussian(0.5)).nystroem(500)
        >>> model = MultinomialProbit(kernels(X_train), labels)
        >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))
        """
        return self._on_landmarks(NystroemFeatures, n_components, by, seed)

    def landmarks(
        self,
        n_components: int,
        *,
        by: Literal["uniform", "kmeans"] = "uniform",
        seed: Seed = 0,
    ) -> "Kernels":
        """Keep the columns of every kernel at landmarks, for many objects.

        The columns are the models' own basis functions: the model on all of them is that on the
        kernels themselves. `nystroem` approximates the inner products of the kernel's feature space
        instead, which makes another model of the regressors' prior.

        Parameters
        ----------
        n_components : int
            Number of landmarks m, and of columns of the stack.
        by : {"uniform", "kmeans"}, default="uniform"
            Choice of the landmarks, as in `nystroem`.
        seed : int, SeedSequence, Generator or None, default=0
            Seed of the landmarks.

        Returns
        -------
        Kernels
            Basis expansions k(x, l_1), ..., k(x, l_m). Those of a kernel normalised by "trace" or
            "unit" are exact; the means of "center" come from the Nystroem features.

        Raises
        ------
        ValueError
            As `nystroem`.

        Notes
        -----
        The stack costs O(S (m^3 + N m (m + D))); no N x N matrix is formed.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | gaussian(0.5)).landmarks(500, by="kmeans")
        >>> model = MultinomialProbit(kernels(X_train), labels)
        >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))
        """
        return self._on_landmarks(LandmarkColumns, n_components, by, seed)

    def _on_landmarks(
        self, features: type[NystroemFeatures], n_components: int, by: str, seed: Seed
    ) -> "Kernels":
        owner = features.kind
        check_count(n_components, "n_components", owner)
        check_name(by, LANDMARKS, "by", owner)
        number = integer_seed(seed, "seed", owner)
        return self._in_place(owner, lambda base: features(base, n_components, number, by))

    def random_features(
        self, n_components: int, *, orthogonal: bool = True, seed: Seed = 0
    ) -> "Kernels":
        """Replace every kernel by random Fourier features, for many objects.

        Parameters
        ----------
        n_components : int
            Number of features M, even: a cosine and a sine of each frequency.
        orthogonal : bool, default=True
            Whether frequencies are orthogonal in groups of D, which reduces the error of a Gaussian
            kernel (Yu et al. 2016).
        seed : int, SeedSequence, Generator or None, default=0
            Seed of the frequencies. All kernels of a stack get the same directions.

        Returns
        -------
        Kernels
            Basis expansions whose inner products are unbiased for the kernels, with standard
            deviations of at most sqrt(2 / M). For kernels that are not normalised or whose steps
            are "trace" and "unit", self-similarities are exact; the means of "center" come from
            the features.

        Raises
        ------
        ValueError
            For kernels other than gaussian, laplace, and Matern12, Matern32, Matern52 and ExpQuad
            of ``pm.gp.cov``, and for an odd number of features.

        Notes
        -----
        The stack costs O(S N M D), and is float64. Random features need more columns than Nystroem
        features as good, because they do not look at the objects; they need no landmarks.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | laplace(0.1)).random_features(500)
        """
        check_count(n_components, "n_components", "random_features")
        if n_components % 2:
            raise argument_error(
                "n_components",
                "random_features",
                "even, a cosine and a sine of each frequency",
                str(n_components),
            )
        check_flag(orthogonal, "orthogonal", "random_features")
        seed = integer_seed(seed, "seed", "random_features")
        for member in self.members:
            check_frequencies(member.base)
        return self._in_place(
            "random_features", lambda base: RandomFeatures(base, n_components, seed, orthogonal)
        )

    def exact_features(self) -> "Kernels":
        """Replace linear and polynomial kernels by their features, for many objects.

        Returns
        -------
        Kernels
            Basis expansions whose inner products are the kernels up to rounding: D columns for the
            linear kernel, the monomials up to the degree for a polynomial one, binomial(D + degree,
            degree), 5,000 at most. In a stack with more columns, the others are zero.

        Raises
        ------
        ValueError
            For other kernels, and when called with objects of too many features.

        Examples
        --------
        >>> kernels = gaussian(0.05).nystroem(200) | linear().exact_features()
        """
        for member in self.members:
            check_exact(member.base)
        return self._in_place("exact_features", ExactFeatures)

    def _in_place(self, owner: str, features: Callable[[BaseKernel], BaseKernel]) -> "Kernels":
        """Put features in place of every kernel."""
        for member in self.members:
            if isinstance(member.base, (Precomputed, LearnedCovariance)) or not (
                member.base.is_kernel
            ):
                raise argument_error(
                    "kernels",
                    owner,
                    "functions of features, without parameters to learn",
                    repr(member.name_on(None)),
                )
        return Kernels(tuple(replace(m, base=features(m.base)) for m in self.members))

    def in_blocks(self, X: Any, X_train: Any = None, *, size: int | None = None) -> KernelsInBlocks:
        """Kernels of very many objects, computed block by block when they are needed.

        `predict` takes those of new objects, and models take ``in_blocks(X_train).to_dask()``.

        Parameters
        ----------
        X : array, DataFrame, or dict of them
            The objects of the rows, as in a call of the specification. Arrays, memory maps, and
            arrays on disk such as zarr's are read a block at a time.
        X_train : the same, optional
            The training objects; needed if `X` are new objects.
        size : int, optional
            Objects a block. Default: so many that a block has 64 MB.

        Returns
        -------
        KernelsInBlocks
            What landmarks and normalisations take from the training objects is computed once.

        Raises
        ------
        ValueError
            As a call of the specification does; also for kernels with parameters to learn, and for
            basis expansions by a function. NaN raises when its block is read.

        Examples
        --------
        >>> kz.predict(model, result, kernels.in_blocks(X_new, X_train))
        """
        if size is not None:
            check_count(size, "size", "in_blocks")
        for member in self.members:
            if isinstance(member.base, (LearnedCovariance, BasisExpansion)):
                raise argument_error(
                    "kernels",
                    "in_blocks",
                    "kernels without parameters to learn, or features in place of them",
                    repr(member.name_on(None)),
                )
        same = X_train is None
        train, entries = self._trained(X if same else X_train)
        new = train if same else feature_spaces(X, train, in_blocks=True)
        new.check_has(space for _, _, space in entries)
        return self._blocks(entries, new, train, size)

    def _with(self, **changes: Any) -> "Kernels":
        return Kernels(tuple(replace(member, **changes) for member in self.members))

    def __call__(self, X: Any, X_train: Any = None) -> Any:
        """Compute the stack of kernels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, D), or dict of them
            The objects of the rows.  A dict has one entry per feature space, with the same objects.
            DataFrames are aligned by label: the index has the ids of the objects, and columns of
            new objects get the order of the training features.  A precomputed kernel takes
            similarities instead of features: (N, N) for training, (n, N) for new objects.
        X_train : the same of N rows, optional
            The training objects; needed if `X` are new objects.

        Returns
        -------
        DataArray of shape (S, n, M)
            Dims "kernel", "obs", "basis", with coords; float64.  For a training stack of kernels
            the labels of "basis" are those of "obs".  The numbers of new objects without ids
            continue those of the training objects.  The attributes describe the kernels with given
            names.  If a kernel has parameters to learn (`Theta`): a `ParametricStack`, which models
            and `predict` accept instead.

        Raises
        ------
        ValueError
            For inputs that are not finite and two-dimensional, differ in objects or features
            (which are named), lack a feature space, cannot be normalised, are so large that kernels
            overflow, or are so many that kernels do not fit into memory.

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
        features = self._are_features
        new = train if X_train is None else feature_spaces(X, train, in_blocks=features)
        new.check_has(space for _, _, space in entries)
        if new is train:
            added_up = {space for _, member, space in entries if member.base.adds_features_up}
            warn_of_unequal_scales({s: train.features[s] for s in train.features if s in added_up})
        if features:
            return self._blocks(entries, new, train).whole()
        if all(member.base.is_kernel for member in self.members):
            check_fits((len(entries), len(new.labels), len(train.labels)), "X", "Kernels")
        fitted = {
            name: member.fitted(name, train, space)
            for name, member, space in entries
            if new is not train or isinstance(member.base, KernelFeatures)
        }
        columns = [
            (name, fitted[name](new) if name in fitted else member.train(name, train, space))
            for name, member, space in entries
        ]
        _check_overflow(dict(columns), new)
        shapes = {name: values.shape for name, values in columns}
        if len(set(shapes.values())) > 1:
            raise argument_error(
                "X", "Kernels", "mapped to as many basis functions by every kernel", str(shapes)
            )
        values = np.stack([values for _, values in columns])
        learned = tuple(
            LearnedKernel(
                *(name, position, member.base, member.steps, space),
                *(new.features[space], train.features[space]),
            )
            for position, (name, member, space) in enumerate(entries)
            if isinstance(member.base, LearnedCovariance)
        )
        expansion = not all(member.base.is_kernel for member in self.members)
        basis = feature_labels(values.shape[2], [*fitted.values()]) if expansion else train.labels
        stack = xr.DataArray(
            values,
            dims=("kernel", "obs", "basis"),
            coords={"kernel": [name for name, _ in columns], "obs": new.coord, "basis": basis},
            name="kernels",
            attrs=_descriptions(entries),
        )
        stack = with_origin(stack, {n: m.origin(train, space) for n, m, space in entries})
        return ParametricStack(stack, learned) if learned else stack

    @property
    def grams(self) -> set[str | None]:
        """Feature spaces of precomputed kernels; None stands for all."""
        return {each.space for each in self.members if isinstance(each.base, Precomputed)}

    @property
    def _are_features(self) -> bool:
        """Whether all are features, so that objects need not be in memory."""
        return all(isinstance(member.base, KernelFeatures) for member in self.members)

    def _trained(self, X_train: Any) -> tuple[Objects, list[Entry]]:
        """Training objects, and kernels with their names and feature spaces."""
        train = feature_spaces(X_train, in_blocks=self._are_features, grams=self.grams)
        if self._are_features:
            return train, [entry for entry, _ in self._fitted(train)]
        entries = list(self._resolve(train))
        for name, member, space in entries:
            if isinstance(member.base, Precomputed):
                train = train.with_gram(space, name)
        return train, entries

    def _fitted(self, train: Objects) -> list[tuple[Entry, FittedMember]]:
        """Kernels and what they take from training objects.

        Landmarks and widths are chosen once for training objects that stay, those of an estimator.
        """
        known = _FITTED.setdefault(train, {})
        if self not in known:
            known[self] = [
                ((name, member, space), member.fitted(name, train, space))
                for name, member, space in self._resolve(train)
            ]
        return known[self]

    def _blocks(
        self, entries: Sequence[Entry], new: Objects, train: Objects, size: int | None = None
    ) -> KernelsInBlocks:
        if self._are_features:
            fitted = [each for _, each in self._fitted(train)]
        else:
            fitted = [member.fitted(name, train, space) for name, member, space in entries]
        return KernelsInBlocks.of(new, fitted, train.labels, _descriptions(entries), size)

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


def _descriptions(entries: Sequence[Entry]) -> dict[str, str]:
    """Descriptions of kernels with given names."""
    return {name: m.base.describe(space) for name, m, space in entries if m.name is not None}


def _check_overflow(kernels: Mapping[str, NDArray], objects: Objects) -> None:
    """Raise if a kernel of finite features has entries that are not finite."""
    for name, values in kernels.items():
        if not np.isfinite(values).all():
            largest = max(float(np.abs(each).max()) for each in objects.features.values())
            raise argument_error(
                "X",
                "Kernels",
                "small enough that kernels do not overflow: standardise the features",
                f"entries up to {largest:.3g} in size, for which {name!r} is not finite",
            )
