"""Specifications of kernels, and what they become on training objects.

A `Kernel` is a function with its normalisations and the block of features that it is computed from;
`Kernels` are several side by side, which the user writes. They hold no data. `FittedKernels` are
the kernels on training objects: all constants, such as widths, landmarks and traces, come from
these, also for kernels of new objects.

With K the Gram matrix of N training objects, "trace" makes of a kernel k(x, x') N / tr K, whose
training trace is N, and "unit" k(x, x') / sqrt(k(x, x) k(x', x')), whose self-similarities are 1
and whose training trace is N, too: "trace" before or after "unit" changes nothing.
Notation: S kernels, N training and n new objects, M basis functions (M = N of kernels), D features.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import Seed, argument_error, check_count, check_name, integer_seed
from .labels import NUMBERED, check_distinct
from .objects import Objects, by_object, fingerprint, is_chunked, order_of_rows, read_objects
from .source import DIMS, LANDMARK, VARIANCE, LearnedKernel, ParametricStack, Theta
from .stack import ORIGIN, Origin
from .warnings import warn_of_constant, warn_of_unequal_scales

NORMALIZATIONS = ("trace", "unit")
#: Largest chunk of kernels, in numbers (64 MB).
CHUNK_NUMBERS = 8_000_000


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """One kernel of a specification: a function of two objects, and what is done with its values.

    Subclasses are functions, whose settings are further fields. Without a block, a kernel stands
    for one on each block of features.
    """

    name: Any = None
    block: str | None = None
    #: Normalisations.
    steps: tuple[str, ...] = ()
    #: Number and seed of the landmarks, whose columns alone the kernel has.
    landmarks: tuple[int, int] | None = None

    #: Name of the function that specifies the kernel.
    function_name: ClassVar[str]
    #: Whether values are similarities between objects, and no features.
    is_kernel: ClassVar[bool] = True
    #: Whether objects come as their similarities to the training objects, instead of features.
    is_precomputed: ClassVar[bool] = False
    #: Whether features are labels, which are equal or not.
    compares_labels: ClassVar[bool] = False
    #: Whether features are what they are: scaled ones would mean something else.
    takes_unscaled: ClassVar[bool] = False

    @abstractmethod
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Values (n, m) of n objects X against m objects Y, or against themselves (None)."""

    def diagonal(self, X: NDArray) -> NDArray:
        """Self-similarity of each object, shape (n,), which most kernels compute in O(n D)."""
        return np.diagonal(self.pairwise(X, None))

    def on_training(self, X: Any, argument: str = "X") -> Self:
        """Kernel with its width chosen from the features (N, D) of the training objects."""
        return self

    @property
    def learned(self) -> Theta | None:
        """Parameter to learn, if the kernel has one."""
        return None

    @property
    def sums_features(self) -> bool:
        """Whether the kernel sums over features without scaling them, so that scales matter."""
        return False

    @property
    def columns_are_objects(self) -> bool:
        """Whether the columns are the training objects, and neither landmarks nor features."""
        return self.is_kernel and self.landmarks is None

    @property
    def title(self) -> str:
        """Readable name of the function, with the settings that tell kernels apart."""
        return self.function_name

    def describe(self, block: str | None) -> str:
        """Name that says what the kernel is, on a block of features (None: the only one)."""
        described = self.title if block is None else f"{self.title}[{block}]"
        return f"landmarks {described}" if self.landmarks else described

    def name_on(self, block: str | None) -> str:
        """Name of this kernel on a block of features, by default its description."""
        if self.name is None:
            return self.describe(block)
        return self.name if block in (None, self.block) else f"{self.name}[{block}]"

    def written(self) -> str:
        """Return the calls that specify the kernel."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if not f.kw_only}
        settings = [
            f"{name}={value!r}"
            for name, value in own.items()
            if repr(value) != repr(getattr(type(self), name, None))
        ]
        calls = [f"{self.function_name}({', '.join(settings)})"]
        calls += [f"on({self.block!r})"] if self.block is not None else []
        calls += [f"normalize({', '.join(map(repr, self.steps))})"] if self.steps else []
        calls += ["landmarks({}, seed={})".format(*self.landmarks)] if self.landmarks else []
        calls += [f"named({self.name!r})"] if self.name is not None else []
        return ".".join(calls)


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

    members: tuple[Kernel, ...]

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
        return " | ".join(member.written() for member in self.members)

    def _repr_html_(self) -> str:
        rows = [(m.name_on(m.block), m.block or "", m.written()) for m in self.members]
        columns = ["kernel", "block", "specification"]
        return pd.DataFrame(rows, columns=columns).to_html(index=False)

    def named(self, name: str) -> "Kernels":
        """Return this kernel under another name; raise a ValueError for several kernels."""
        if len(self.members) != 1:
            got = f"{len(self.members)} kernels"
            raise argument_error("name", "named", "given to one kernel, before '|'", got)
        return Kernels((replace(self.members[0], name=str(name)),))

    def on(self, block: str) -> "Kernels":
        """Bind the kernels to one block of features, a key of the dict of features."""
        return Kernels(tuple(replace(member, block=block) for member in self.members))

    def normalize(self, *steps: str) -> "Kernels":
        """Normalise every kernel by its training trace N ("trace") or self-similarity 1 ("unit").

        The constants are those of the training objects, also for new objects. An unknown name
        raises a ValueError, as does a basis expansion (which is not a matrix of similarities).
        """
        for step in steps:
            check_name(step, NORMALIZATIONS, "steps", "normalize")
        for member in self.members:
            if not member.columns_are_objects:
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
        for member in self.members:
            unfit = member.is_precomputed or member.learned
            if unfit or not member.columns_are_objects:
                rule = "functions of features, without parameters to learn"
                raise argument_error("kernels", "landmarks", rule, repr(member.name_on(None)))
        return Kernels(tuple(replace(m, landmarks=(n_components, number)) for m in self.members))

    def __call__(self, X: Any, X_train: Any = None) -> Any:
        """Compute the stack of kernels.

        Parameters
        ----------
        X : array-like, DataFrame or Dask array of shape (n, D), or dict of them
            The objects of the rows; of a dict, one block of features per entry. DataFrames are
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
            (which are named), lack a block, cannot be normalised, or are so large that kernels
            overflow.

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
        fitted = self.on_training(X if X_train is None else X_train)
        return fitted(fitted.objects if X_train is None else X)

    @property
    def grams(self) -> set[str | None]:
        """Blocks that hold Gram matrices; None stands for all."""
        return {member.block for member in self.members if member.is_precomputed}

    @property
    def labelled(self) -> set[str | None]:
        """Blocks that hold labels; None stands for all."""
        return {member.block for member in self.members if member.compares_labels}

    @np.errstate(over="ignore", invalid="ignore", under="ignore")
    def on_training(self, X_train: Any) -> "FittedKernels":
        """Every kernel on its block, with its name and width from the training objects."""
        train = read_objects(X_train, grams=self.grams, labelled=self.labelled)
        kernels = []
        pairs = [(m, block) for m in self.members for block in train.blocks_of(m.block)]
        taken = {member.name_on(block) for member, block in pairs if member.name is not None}
        for member, block in pairs:
            features = train.features[block]
            if member.landmarks is None and is_chunked(features):
                rule = "training objects in memory, for kernels that keep all of them: "
                rule += "X.compute(), or kernels.landmarks(500)"
                raise argument_error("X", "Kernels", rule, "a Dask array")
            argument = "X" if block is None else f'X["{block}"]'
            fitted = member.on_training(features, argument)
            name = fitted.name_on(block)
            # Given names do not change.
            if member.name is None:
                described = name
                numbers = count(2)
                while name in taken:
                    name = f"{described} #{next(numbers)}"
                taken.add(name)
            if member.is_precomputed:
                train = train.with_gram(block, name)
            kernels.append(replace(fitted, name=name, block=block))
        names = [kernel.name for kernel in kernels]
        check_distinct(names, "name", "named", "different for each kernel of a stack")
        return FittedKernels(self, kernels, train)


@dataclass(frozen=True)
class FittedKernels:
    """A specification on training objects, with all that it takes from them, computed once."""

    specification: Kernels
    #: Each kernel on its block, with its name and width.
    kernels: list[Kernel]
    objects: Objects

    def __getstate__(self) -> dict[str, Any]:
        # What is computed once holds the features again, which not every pickler notices.
        return {name: getattr(self, name) for name in ("specification", "kernels", "objects")}

    @cached_property
    def functions(self) -> "list[FittedKernel]":
        """Kernels as functions of objects' features, normalised."""
        return [self._function_of(kernel) for kernel in self.kernels]

    def _function_of(self, kernel: Kernel) -> "FittedKernel":
        X = self.objects.features[kernel.block]
        if not kernel.landmarks:
            return FittedKernel(kernel, X)
        columns = np.asarray(X[self._landmarks[kernel.landmarks]])
        if "trace" not in kernel.steps or "unit" in kernel.steps:
            return FittedKernel(kernel, columns)
        # The trace is that of all training objects, and not of the landmarks.
        trace = float(np.asarray(by_object(kernel.diagonal, X)).sum())
        scale = scale_to_trace(trace, len(X), kernel.name)
        return FittedKernel(replace(kernel, steps=()), columns, scale)

    @cached_property
    def _landmarks(self) -> dict[tuple[int, int], NDArray]:
        """Rows of landmarks, by number and seed: the same objects in all blocks."""
        n = len(self.objects.labels)
        drawn = {kernel.landmarks for kernel in self.kernels if kernel.landmarks}
        if drawn and (largest := max(drawn)[0]) > n:
            rule = f"at most the number of training objects, {n}"
            raise argument_error("n_components", "landmarks", rule, str(largest))
        blocks = sorted({str(k.block): k.block for k in self.kernels if k.landmarks}.items())
        tables = [self.objects.features[block] for _, block in blocks]
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
        for kernel in self.kernels:
            # Kernels with parameters hold the training objects themselves.
            held = not kernel.columns_are_objects or kernel.learned
            trained: Any = () if held else (len(train.labels), train.fingerprint(kernel.block))
            if not (held or kernel.is_precomputed):
                some = train.features[kernel.block][np.argsort(train.labels.astype(str))[:4]]
                trained = *trained, float(kernel.pairwise(some, None).mean())
            origins[kernel.name] = Origin(" ".join(kernel.steps), *trained)
        return json.dumps(origins)

    @cached_property
    def _code(self) -> str:
        """What tells features of these training objects, in this order, from those of others."""
        codes = []
        for function in self.functions:
            if function.kernel.landmarks:
                # What the landmarks are among the training objects, and their normalised kernel.
                chosen = function.X
                codes.append(f"{function.kernel.name} {fingerprint((chosen, function(chosen)))}")
        # Models take the kernels in any order.
        return f" {sha256(' '.join(sorted(codes)).encode()).hexdigest()[:8]}" if codes else ""

    # What overflows is an error below; what underflows is none.
    @np.errstate(over="ignore", invalid="ignore", under="ignore")
    def __call__(self, X: Any) -> xr.DataArray | ParametricStack:
        """Compute the stack of kernels between objects and the training objects."""
        train = self.objects
        new = read_objects(X, train, labelled=self.specification.labelled)
        self._check_features(new)
        summing = [kernel for kernel in self.kernels if kernel.sums_features]
        if new is train:
            for block in dict.fromkeys(kernel.block for kernel in summing):
                warn_of_unequal_scales(train.features[block], block)
        in_chunks = any(is_chunked(new.features[kernel.block]) for kernel in self.kernels)
        values: Any = self._values_by_chunk(new) if in_chunks else self._values(new)
        if new is train and not in_chunks:
            for kernel, of_kernel in zip(self.kernels, values, strict=True):
                if kernel.sums_features:
                    warn_of_constant(of_kernel, train.features[kernel.block], kernel.name)
        descriptions = {kernel.name: kernel.describe(kernel.block) for kernel in self.kernels}
        stack = xr.DataArray(
            values,
            dims=DIMS,
            coords=self._coords(new, values),
            name="kernels",
            attrs={name: text for name, text in descriptions.items() if name != text},
        )
        learned = tuple(
            LearnedKernel(
                kernel.name,
                position,
                kernel.learned,
                "X" if kernel.block is None else f"X_{kernel.block}",
                new.features[kernel.block],
                train.features[kernel.block],
            )
            for position, kernel in enumerate(self.kernels)
            if kernel.learned
        )
        return ParametricStack(stack, learned) if learned else stack

    def _coords(self, new: Objects, values: Any) -> dict[str, Any]:
        """Coordinates of a stack with these values: its labels, landmarks and variances."""
        train = self.objects
        basis = train.labels
        if not all(kernel.columns_are_objects for kernel in self.kernels):
            basis = np.array([f"phi{m}{self._code}" for m in range(values.shape[2])])
        coords: dict[str, Any] = {
            "kernel": ("kernel", [kernel.name for kernel in self.kernels], {ORIGIN: self.origins}),
            "obs": ("obs", new.labels, NUMBERED if new.numbered else None),
            "basis": basis,
        }
        shared = {kernel.landmarks for kernel in self.kernels}
        if len(shared) == 1 and (landmarks := shared.pop()) is not None:
            rows = self._landmarks[landmarks]
            coords[LANDMARK] = "basis", train.labels[rows]
        if new is not train and all(kernel.is_kernel for kernel in self.kernels):
            own = [by_object(f.variances, new.features[f.kernel.block]) for f in self.functions]
            variances: Any = np.stack(own)
            if is_chunked(values):
                # As xarray asks of all arrays of a stack.
                variances = variances.rechunk(values.chunks[:2])
            coords[VARIANCE] = ("kernel", "obs"), variances
        return coords

    def _check_features(self, new: Objects) -> None:
        """Raise unless new objects have the features, or similarities, of the training objects."""
        for kernel in self.kernels:
            if kernel.block not in new.features:
                given = new.features.keys()
                rule = f"a dict with the block {kernel.block!r} of the training objects"
                rule = "one array, as the training objects are" if kernel.block is None else rule
                got = "one array" if None in given else f"a dict with {list(given)}"
                raise argument_error("X", "Kernels", rule, got)
            n_train, width = self.objects.features[kernel.block].shape
            shape = new.features[kernel.block].shape
            if not kernel.is_precomputed:
                if shape[1] != width:
                    rule = f"of {width} features, as the training objects are"
                    raise argument_error("X", kernel.name, rule, f"{shape[1]} features")
            elif n_train != width:
                rule = "a square Gram matrix of the training objects (for new objects: their "
                rule += "similarities first, the training Gram matrix second)"
                raise argument_error("X", kernel.name, rule, f"shape {(n_train, width)}")
            elif shape[1] != n_train:
                hint = ", which looks transposed" if shape[0] == n_train else ""
                rule = f"of shape (new objects, {n_train} training objects)"
                raise argument_error("X", kernel.name, rule, f"shape {shape}{hint}")

    def _values(self, new: Objects) -> NDArray:
        """Kernels (S, n, M) of objects in memory."""
        columns = {}
        for function in self.functions:
            name = function.kernel.name
            columns[name] = function(new.features[function.kernel.block])
            if not np.isfinite(columns[name]).all():
                size = max(float(np.abs(each).max()) for each in new.features.values())
                rule = "small enough that kernels do not overflow: standardise the features"
                got = f"entries up to {size:.3g} in size, for which {name!r} is not finite"
                raise argument_error("X", "Kernels", rule, got)
        _one_width({name: values.shape[1] for name, values in columns.items()})
        return np.stack([*columns.values()])

    def _values_by_chunk(self, new: Objects) -> Any:
        """Kernels (S, n, M), computed when they are read: in the objects' chunks, or of 64 MB."""
        import dask
        import dask.array as da

        for kernel in self.kernels:
            if kernel.learned or not kernel.is_kernel:
                rule = "kernels without parameters to learn, and no functions, for a Dask array"
                raise argument_error("kernels", "Kernels", rule, repr(kernel.title))
        n_train = len(self.objects.labels)
        widths = {k.name: k.landmarks[0] if k.landmarks else n_train for k in self.kernels}
        width = _one_width(widths)
        features = {kernel.block: new.features[kernel.block] for kernel in self.kernels}
        blocks = list(features)
        rows = next(X.chunks[0] for X in features.values() if is_chunked(X))
        most = max(1, CHUNK_NUMBERS // (len(self.kernels) * width))
        size = rows if max(rows) <= most else most
        tables = [da.asarray(X).rechunk((size, -1)) for X in features.values()]
        # One task holds the kernels, which go to each worker once.
        shared = dask.delayed(list, pure=False)(dask.delayed(self.functions, traverse=False))

        def of_chunk(*tables: NDArray, functions: list[FittedKernel]) -> NDArray:
            by_block = dict(zip(blocks, tables, strict=True))
            return np.stack([function(by_block[function.kernel.block]) for function in functions])

        return da.map_blocks(
            of_chunk, *tables, functions=shared,
            new_axis=0, chunks=((len(self.kernels),), tables[0].chunks[0], (width,)), dtype=float,
            meta=np.empty((0, 0, 0)),
        )  # fmt: skip


@dataclass(frozen=True)
class FittedKernel:
    """Kernel (n, M) as a function of objects' features (n, D), normalised as the training kernel.

    `X` are the objects of the columns. It goes to the workers of a cluster, with the landmarks
    alone. `scale` comes from training objects that are not among the columns.
    """

    kernel: Kernel
    X: Any
    scale: float = 1.0

    def __call__(self, new: NDArray) -> NDArray:
        """Values (n, M) of new objects; the training objects are told by being the same array."""
        kernel = self.kernel
        X = self.X
        values = kernel.pairwise(new, None if new is X else X)
        if not kernel.steps:
            return values if self.scale == 1 else self.scale * values
        trained = np.diagonal(values)
        own: NDArray | None = trained
        if new is not X:
            own = None if kernel.is_precomputed else kernel.diagonal(new)
            trained = kernel.diagonal(X)
        return normalize(values, own, trained, kernel.steps, kernel.name)

    def variances(self, new: NDArray) -> NDArray:
        """Normalised self-similarities (n,) of new objects; NaN where similarities are given."""
        kernel = self.kernel
        if kernel.is_precomputed:
            return np.full(len(new), np.nan)
        if "unit" in kernel.steps:
            return np.ones(len(new))
        scale = self.scale
        if "trace" in kernel.steps:
            trace = float(kernel.diagonal(self.X).sum())
            scale = scale_to_trace(trace, len(self.X), kernel.name)
        return scale * kernel.diagonal(new)


def scale_to_trace(trace: float, n_train: int, name: str) -> float:
    """Factor that brings a kernel of this trace to the trace N; raise unless it is positive."""
    if not trace > 0:
        rule = "of positive trace for the 'trace' normalisation"
        raise argument_error("X", name, rule, f"a trace of {trace:.4g}")
    return n_train / trace


def normalize(
    values: Any, own: NDArray | None, train: NDArray, steps: Sequence[str], name: str
) -> Any:
    """Similarities (n, N) after the steps.

    `own` (n,) and `train` (N,) are the self-similarities; `own` is None if they are not known.
    """
    if "unit" not in steps:
        scale = scale_to_trace(float(train.sum()), len(train), name) if "trace" in steps else 1.0
        return scale * values if steps else values
    if own is None:
        rule = "normalised beforehand, k(x, x') / sqrt(k(x, x) k(x', x')), for new objects of a "
        rule += "precomputed kernel with the 'unit' normalisation"
        raise argument_error("X", name, rule, "similarities without the new objects' own")
    for diagonal in (own, train):
        if not np.all(diagonal > 0):
            rule = "of positive self-similarities for the 'unit' normalisation"
            raise argument_error("X", name, rule, f"{diagonal.min():.4g} for an object")
    return values / (own[:, None] ** 0.5 * train**0.5)


def _one_width(widths: dict[str, int]) -> int:
    """Return the number of basis functions of all kernels; raise if they differ."""
    if len(set(widths.values())) > 1:
        rule = "mapped to as many basis functions by every kernel"
        raise argument_error("X", "Kernels", rule, str(widths))
    return next(iter(widths.values()))
