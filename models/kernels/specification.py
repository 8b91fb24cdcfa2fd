"""Specifications of kernels: their functions (`functions`), feature spaces and normalisations.

A specification holds no data. It is applied to training and to new objects, with constants from
the training objects.
Notation: S kernels, N training and n new objects, M basis functions (M = N of kernels), D features.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import Seed, argument_error, check_count, check_name, integer_seed
from . import base
from .base import NORMALIZATIONS, BaseKernel, normalize, scale_to_trace
from .chunks import by_object, is_chunked, kernels_by_chunk
from .features import Objects, feature_spaces, fingerprint, order_of_rows
from .labels import NUMBERED, check_distinct
from .source import DIMS, LANDMARK, VARIANCE, LearnedKernel, ParametricStack
from .stack import ORIGIN, Origin
from .warnings import warn_of_constant, warn_of_unequal_scales


@dataclass(frozen=True)
class Member:
    """One kernel of a specification, with its normalisations; without a space, on all of them.

    On training objects, each has a name and a space: see `Kernels.on_training`.
    """

    kernel: BaseKernel
    name: Any = None
    space: str | None = None
    steps: tuple[str, ...] = ()
    #: Number and seed of the landmarks, whose columns alone the kernel has.
    landmarks: tuple[int, int] | None = None

    def __repr__(self) -> str:
        settings = [
            f"{name}={value!r}"
            for name, value in vars(self.kernel).items()
            if repr(value) != repr(getattr(type(self.kernel), name, None))
        ]
        calls = [f"{self.kernel.function_name}({', '.join(settings)})"]
        calls += [f"on({self.space!r})"] if self.space is not None else []
        calls += [f"normalize({', '.join(map(repr, self.steps))})"] if self.steps else []
        calls += ["landmarks({}, seed={})".format(*self.landmarks)] if self.landmarks else []
        calls += [f"named({self.name!r})"] if self.name is not None else []
        return ".".join(calls)

    @property
    def is_kernel(self) -> bool:
        """Whether its values are similarities between objects, and no features."""
        return self.kernel.is_kernel and self.landmarks is None

    @property
    def sums_features(self) -> bool:
        """Whether the kernel sums over features without scaling them, so that scales matter."""
        if isinstance(self.kernel, base.LearnedGaussian):
            return not self.kernel.theta.ard
        return isinstance(self.kernel, base.Radial | base.Polynomial | base.Linear)

    def describe(self, space: str | None) -> str:
        """Name that says what the kernel is, on a feature space (None: the only one)."""
        return f"{'landmarks ' if self.landmarks else ''}{self.kernel.describe(space)}"

    def name_on(self, space: str | None) -> str:
        """Name of this kernel on a feature space, by default its description."""
        if self.name is None:
            return self.describe(space)
        return self.name if space in (None, self.space) else f"{self.name}[{space}]"


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
        """Normalise every kernel by its training trace N ("trace") or self-similarity 1 ("unit").

        The constants are those of the training objects, also for new objects. An unknown name
        raises a ValueError, as does a basis expansion (which is not a matrix of similarities).
        """
        for step in steps:
            check_name(step, NORMALIZATIONS, "steps", "normalize")
        for member in self.members:
            if not member.is_kernel:
                rule = "applied to kernels: before landmarks, and inside a basis expansion"
                got = f"the basis expansion {member.name_on(None)!r}"
                raise argument_error("steps", "normalize", rule, got)
        return Kernels(tuple(replace(m, steps=(*m.steps, *steps)) for m in self.members))

    def landmarks(self, n_components: int, *, seed: Seed = 0) -> "Kernels":
        """Keep the columns of every kernel at landmarks, for many objects.

        The columns are the models' own basis functions k(x, l_1), ..., k(x, l_m): the model on all
        of them is that on the kernels themselves. "trace" is that of all training objects.

        Parameters
        ----------
        n_components : int
            Number of landmarks m, training objects drawn with equal probabilities, and of columns
            of the stack. All kernels of a stack share their landmarks, which are the same objects
            in any order of the rows.
        seed : int, SeedSequence, Generator or None, default=0

        Raises
        ------
        ValueError
            For basis expansions, and kernels that are precomputed or have parameters to learn; when
            called, for more landmarks than training objects.

        Notes
        -----
        O(S N m D); no N x N matrix is formed. Rows are told apart by their features.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | gaussian(0.5)).landmarks(500)
        >>> model = MultinomialProbit(kernels(X_train), labels)
        >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))
        """
        check_count(n_components, "n_components", "landmarks")
        number = integer_seed(seed, "seed", "landmarks")
        unfit = base.Precomputed | base.LearnedGaussian
        for member in self.members:
            if isinstance(member.kernel, unfit) or not member.is_kernel:
                rule = "functions of features, without parameters to learn"
                raise argument_error("kernels", "landmarks", rule, repr(member.name_on(None)))
        return Kernels(tuple(replace(m, landmarks=(n_components, number)) for m in self.members))

    def __call__(self, X: Any, X_train: Any = None) -> Any:
        """Compute the stack of kernels.

        Parameters
        ----------
        X : array-like, DataFrame or Dask array of shape (n, D), or dict of them
            The objects of the rows; of a dict, in one feature space per entry. DataFrames are
            aligned by label: the index has the ids of the objects, and columns of new objects get
            the order of the training features. A precomputed kernel takes similarities instead of
            features: (N, N) for training, (n, N) for new objects.
        X_train : the same of N rows, optional
            The training objects; needed if `X` are new objects.

        Returns
        -------
        DataArray of shape (S, n, M)
            Dims "kernel", "obs", "basis", with coords. The numbers of new objects without ids
            continue those of the training objects. If a kernel has parameters to learn (`Theta`): a
            `ParametricStack`, which models and `predict` accept instead.

        Raises
        ------
        ValueError
            For inputs that are not finite and two-dimensional, differ in objects or features
            (which are named), lack a feature space, cannot be normalised, or are so large that
            kernels overflow.

        Warns
        -----
        KernelWarning
            If a kernel sums over training features of very different scales, or is the same for
            all training objects.

        Notes
        -----
        Costs O(S n N D).

        If X is a Dask array in chunks of whole rows, so is the stack, in the same chunks of objects
        or smaller ones of 64 MB, which are computed when they are needed; NaN raises when its chunk
        is read. For kernels at landmarks, `X_train` can be one, too.
        """
        trained = self.on_training(X if X_train is None else X_train)
        return trained(trained.objects if X_train is None else X)

    @property
    def grams(self) -> set[str | None]:
        """Feature spaces of precomputed kernels; None stands for all."""
        return {each.space for each in self.members if isinstance(each.kernel, base.Precomputed)}

    @np.errstate(over="ignore", invalid="ignore", under="ignore")
    def on_training(self, X_train: Any) -> "TrainedKernels":
        """Every kernel on its feature space, with its name and width from the training objects."""
        train = feature_spaces(X_train, grams=self.grams)
        members = []
        pairs = [(m, space) for m in self.members for space in train.spaces_of(m.space)]
        taken = {member.name_on(space) for member, space in pairs if member.name is not None}
        for member, space in pairs:
            features = train.features[space]
            if member.landmarks is None and is_chunked(features):
                rule = "training objects in memory, for kernels that keep all of them: "
                rule += "X.compute(), or kernels.landmarks(500)"
                raise argument_error("X", "Kernels", rule, "a Dask array")
            argument = "X" if space is None else f'X["{space}"]'
            trained = replace(member, kernel=member.kernel.on_training(features, argument))
            name = trained.name_on(space)
            # Given names do not change.
            if member.name is None:
                described = name
                numbers = count(2)
                while name in taken:
                    name = f"{described} #{next(numbers)}"
                taken.add(name)
            if isinstance(member.kernel, base.Precomputed):
                train = train.with_gram(space, name)
            members.append(replace(trained, name=name, space=space))
        names = [member.name for member in members]
        check_distinct(names, "name", "named", "different for each kernel of a stack")
        return TrainedKernels(members, train)


@dataclass(frozen=True)
class TrainedKernels:
    """Kernels with all that they take from the training objects, which is computed once."""

    members: list[Member]
    objects: Objects

    def __getstate__(self) -> dict[str, Any]:
        # What is computed once holds the features again, which not every pickler notices.
        return {"members": self.members, "objects": self.objects}

    @cached_property
    def functions(self) -> "list[NormalizedKernel]":
        """Kernels of objects' features, normalised."""
        return [_function_of(m, self.objects, self._landmarks) for m in self.members]

    @cached_property
    def _landmarks(self) -> dict[tuple[int, int], NDArray]:
        """Rows of landmarks, by number and seed: the same objects in all feature spaces."""
        n = len(self.objects.labels)
        drawn = {member.landmarks for member in self.members if member.landmarks}
        if drawn and (largest := max(drawn)[0]) > n:
            rule = f"at most the number of training objects, {n}"
            raise argument_error("n_components", "landmarks", rule, str(largest))
        spaces = sorted({str(m.space): m.space for m in self.members if m.landmarks}.items())
        tables = [self.objects.features[space] for _, space in spaces]
        order = order_of_rows(tables) if drawn else np.empty(0)
        return {
            (number, seed): order[np.random.default_rng(seed).choice(n, number, replace=False)]
            for number, seed in drawn
        }

    @cached_property
    def origins(self) -> str:
        """What identifies each kernel's normalisation and training objects, as JSON."""
        origins = {}
        train = self.objects
        for member in self.members:
            # Kernels with parameters hold the training objects themselves.
            held = not member.is_kernel or isinstance(member.kernel, base.LearnedGaussian)
            trained: Any = () if held else (len(train.labels), train.fingerprint(member.space))
            if not (held or isinstance(member.kernel, base.Precomputed)):
                some = train.features[member.space][np.argsort(train.labels.astype(str))[:4]]
                trained = *trained, float(member.kernel.pairwise(some, None).mean())
            origins[member.name] = Origin(" ".join(member.steps), *trained)
        return json.dumps(origins)

    @cached_property
    def _code(self) -> str:
        """What tells features of these training objects, in this order, from those of others."""
        codes = []
        for member, function in zip(self.members, self.functions, strict=True):
            if member.landmarks:
                # What the landmarks are among the training objects, and their normalised kernel.
                chosen = function.X
                codes.append(f"{member.name} {fingerprint((chosen, function(chosen)))}")
        # Models take the kernels in any order.
        return f" {sha256(' '.join(sorted(codes)).encode()).hexdigest()[:8]}" if codes else ""

    # What overflows is an error below; what underflows is none.
    @np.errstate(over="ignore", invalid="ignore", under="ignore")
    def __call__(self, X: Any) -> xr.DataArray | ParametricStack:
        """Compute the stack of kernels between objects and the training objects."""
        train = self.objects
        members = self.members
        new = feature_spaces(X, train)
        self._check_features(new)
        if new is train:
            for space in dict.fromkeys(member.space for member in members if member.sums_features):
                warn_of_unequal_scales(train.features[space], space)
        in_chunks = any(is_chunked(new.features[member.space]) for member in members)
        values: Any = self._values_by_chunk(new) if in_chunks else self._values(new)
        if new is train and not in_chunks:
            for member, of_member in zip(members, values, strict=True):
                if member.sums_features:
                    warn_of_constant(of_member, train.features[member.space], member.name)
        basis = train.labels
        if not all(member.is_kernel for member in members):
            basis = np.array([f"phi{m}{self._code}" for m in range(values.shape[2])])
        descriptions = {member.name: member.describe(member.space) for member in members}
        coords: dict[str, Any] = {
            "kernel": ("kernel", list(descriptions), {ORIGIN: self.origins}),
            "obs": ("obs", new.labels, NUMBERED if new.numbered else None),
            "basis": basis,
        }
        shared = {member.landmarks for member in members}
        if len(shared) == 1 and (landmarks := shared.pop()) is not None:
            rows = self._landmarks[landmarks]
            coords[LANDMARK] = "basis", train.labels[rows]
        if new is not train and all(member.kernel.is_kernel for member in members):
            pairs = zip(members, self.functions, strict=True)
            own = [by_object(each.variances, new.features[member.space]) for member, each in pairs]
            variances: Any = np.stack(own)
            if in_chunks:
                # As xarray asks of all arrays of a stack.
                variances = variances.rechunk(values.chunks[:2])
            coords[VARIANCE] = ("kernel", "obs"), variances
        stack = xr.DataArray(
            values,
            dims=DIMS,
            coords=coords,
            name="kernels",
            attrs={name: text for name, text in descriptions.items() if name != text},
        )
        learned = tuple(
            LearnedKernel(
                *(m.name, position, m.kernel.theta, "X" if m.space is None else f"X_{m.space}"),
                *(new.features[m.space], train.features[m.space]),
            )
            for position, m in enumerate(members)
            if isinstance(m.kernel, base.LearnedGaussian)
        )
        return ParametricStack(stack, learned) if learned else stack

    def _check_features(self, new: Objects) -> None:
        """Raise unless new objects have the features, or similarities, of the training objects."""
        for member in self.members:
            if member.space not in new.features:
                given = new.features.keys()
                rule = f"a dict with the feature space {member.space!r} of the training objects"
                rule = "one array, as the training objects are" if member.space is None else rule
                got = "one array" if None in given else f"a dict with {list(given)}"
                raise argument_error("X", "Kernels", rule, got)
            n_train, width = self.objects.features[member.space].shape
            shape = new.features[member.space].shape
            if not isinstance(member.kernel, base.Precomputed):
                if shape[1] != width:
                    rule = f"of {width} features, as the training objects are"
                    raise argument_error("X", member.name, rule, f"{shape[1]} features")
            elif n_train != width:
                rule = "a square Gram matrix of the training objects (for new objects: their "
                rule += "similarities first, the training Gram matrix second)"
                raise argument_error("X", member.name, rule, f"shape {(n_train, width)}")
            elif shape[1] != n_train:
                hint = ", which looks transposed" if shape[0] == n_train else ""
                rule = f"of shape (new objects, {n_train} training objects)"
                raise argument_error("X", member.name, rule, f"shape {shape}{hint}")

    def _values(self, new: Objects) -> NDArray:
        """Kernels (S, n, M) of objects in memory."""
        columns = {}
        for member, function in zip(self.members, self.functions, strict=True):
            columns[member.name] = function(new.features[member.space])
            if not np.isfinite(columns[member.name]).all():
                size = max(float(np.abs(each).max()) for each in new.features.values())
                rule = "small enough that kernels do not overflow: standardise the features"
                got = f"entries up to {size:.3g} in size, for which {member.name!r} is not finite"
                raise argument_error("X", "Kernels", rule, got)
        _one_width({name: values.shape[1] for name, values in columns.items()})
        return np.stack([*columns.values()])

    def _values_by_chunk(self, new: Objects) -> Any:
        """Kernels (S, n, M) of objects in chunks, computed when they are read."""
        for member in self.members:
            if isinstance(member.kernel, base.LearnedGaussian | base.BasisExpansion):
                rule = "kernels without parameters to learn, and no functions, for a Dask array"
                raise argument_error("kernels", "Kernels", rule, repr(member.kernel.title))
        n_train = len(self.objects.labels)
        widths = {m.name: m.landmarks[0] if m.landmarks else n_train for m in self.members}
        pairs = zip(self.members, self.functions, strict=True)
        functions = [(member.space, function) for member, function in pairs]
        features = {member.space: new.features[member.space] for member in self.members}
        return kernels_by_chunk(functions, features, _one_width(widths))


@dataclass(frozen=True)
class NormalizedKernel:
    """Kernel (n, M) as a function of objects' features (n, D), normalised as the training kernel.

    It goes to the workers of a cluster, with the landmarks alone.
    """

    kernel: BaseKernel
    X: Any
    scale: float
    steps: tuple[str, ...]
    name: str

    def __call__(self, new: NDArray) -> NDArray:
        """Values (n, M) of new objects; the training objects are told by being the same array."""
        kernel = self.kernel
        X = self.X
        values = kernel.pairwise(new, None if new is X else X)
        if not self.steps:
            return values if self.scale == 1 else self.scale * values
        trained = np.diagonal(values)
        own: NDArray | None = trained
        if new is not X:
            own = None if isinstance(kernel, base.Precomputed) else kernel.diagonal(new)
            trained = kernel.diagonal(X)
        return normalize(values, own, trained, self.steps, self.name)

    def variances(self, new: NDArray) -> NDArray:
        """Normalised self-similarities (n,) of new objects; NaN where similarities are given."""
        if isinstance(self.kernel, base.Precomputed):
            return np.full(len(new), np.nan)
        if "unit" in self.steps:
            return np.ones(len(new))
        scale = self.scale
        if "trace" in self.steps:
            trace = float(self.kernel.diagonal(self.X).sum())
            scale = scale_to_trace(trace, len(self.X), self.name)
        return scale * self.kernel.diagonal(new)


def _function_of(member: Member, train: Objects, landmarks: Mapping[Any, Any]) -> NormalizedKernel:
    kernel = member.kernel
    steps = member.steps
    scale = 1.0
    X = objects = train.features[member.space]
    if member.landmarks:
        X = np.asarray(objects[landmarks[member.landmarks]])
    if member.landmarks and "trace" in steps and "unit" not in steps:
        # The trace is that of all training objects.
        trace = float(np.asarray(by_object(kernel.diagonal, objects)).sum())
        scale = scale_to_trace(trace, len(objects), member.name)
        steps = ()
    return NormalizedKernel(kernel, X, scale, steps, member.name)


def _one_width(widths: dict[str, int]) -> int:
    """Return the number of basis functions of all kernels; raise if they differ."""
    if len(set(widths.values())) > 1:
        rule = "mapped to as many basis functions by every kernel"
        raise argument_error("X", "Kernels", rule, str(widths))
    return next(iter(widths.values()))
