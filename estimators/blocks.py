"""Kernels of the blocks of features, with every constant from the training objects."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import reduce, singledispatch
from operator import or_
from typing import Any, Literal, Self, override

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from xarray import DataArray

from ..models.kernels import Kernels, gaussian, precomputed
from ..models.kernels.base import Landmarks
from ..models.kernels.features import Objects, feature_spaces
from ..models.kernels.labels import as_frame, check_distinct, with_ids_of_columns
from ..models.kernels.learned import ParametricStack
from ..models.kernels.normalization import NORMALIZATIONS
from ..models.kernels.specification import Member
from ..models.kernels.stack import PRECISION, precision_of
from ..validation import (
    argument_error,
    check_flag,
    check_name,
    check_one_table,
    check_undated,
    check_unmasked,
)
from .gaps import Gaps
from .output import StackOutput
from .reading import Tables, check_measured, check_names, ids_of, in_blocks, labelled, select

__all__ = ["KernelBlocks", "KernelReader"]

PRECOMPUTED = "precomputed"
#: New objects whose kernels are computed at once.
MANY = 10_000


class KernelReader(BaseEstimator):
    """Part of every estimator that turns its input into kernels; see `KernelBlocks`."""

    kernels: Any
    blocks: Any
    normalize: Any
    standardize: bool
    _columns: Any
    _kernels_given: bool
    feature_names_in_: np.ndarray

    def _fit_kernels(
        self, X: Any, order: pd.Index | None = None, kernels: Kernels | None = None
    ) -> DataArray | ParametricStack:
        """Choose kernels, scales and widths on the training objects; return their stack.

        `order` are the ids of the objects in the order that they get, by default that of `X`;
        `kernels` replace those of the estimator.
        """
        owner = type(self).__name__
        standardize = check_flag(self.standardize, "standardize", owner)
        tables = self._tables(X, reset=True)
        self._blocks_given = set(tables)
        given = self.kernels if kernels is None else kernels
        specification = specified(given, list(tables), owner)
        self.specification_ = _normalized(specification, self.normalize, owner)
        members = self.specification_.members
        if len({member.base.is_kernel for member in members}) > 1:
            required = (
                "kernels only, or features only, such as kz.linear().landmarks(200) beside "
                "kz.gaussian().landmarks(200)"
            )
            raise argument_error("kernels", owner, required, "both")
        grams = {b for b in tables if not self.specification_.grams.isdisjoint({None, b})}
        for block in grams:
            tables[block] = with_ids_of_columns(tables[block])
        order = ids_of(tables) if order is None else order
        bound = [member.space for member in members if member.space is not None]
        if None not in tables:
            for space in bound:
                check_name(space, map(str, tables), "kernels", owner)
            if len(bound) == len(members):
                tables = {block: tables[block] for block in tables if block in bound}
        check_measured(tables, owner)
        objects = feature_spaces(_mapping(tables), order=order)
        grams &= objects.features.keys()
        for block in grams:
            objects = objects.with_gram(block, "X" if block is None else block)
        rounding = max((precision_of(tables[block]) for block in grams), default=0.0)
        self._scalers = {
            # Arrays, whatever sklearn.set_config says.
            block: StandardScaler().set_output(transform="default").fit(values)
            for block, values in objects.features.items()
            if standardize and block not in grams
        }
        self._training, self._rounding = self._scaled(objects), rounding
        stack = self._training_kernels()
        table = stack.start if isinstance(stack, ParametricStack) else stack
        self.kernel_names_ = table["kernel"].to_numpy().astype(object)
        told = {name: text for name, text in table.attrs.items() if name != PRECISION}
        self._descriptions = {str(name): str(text) for name, text in told.items()}
        return stack

    def _training_kernels(self) -> DataArray | ParametricStack:
        """Kernels of the training objects."""
        stack = self.specification_(self._training)
        if isinstance(stack, DataArray) and self._rounding:
            stack.attrs[PRECISION] = self._rounding
        return stack

    def kernel_stack(self, X: Any) -> DataArray | ParametricStack:
        """Kernels between new objects and the training objects, as ``kz.predict`` takes them.

        Parameters
        ----------
        X : as in `fit`
            New objects.

        Returns
        -------
        DataArray (kernel, obs, basis), or ParametricStack for kernels with parameters to learn
            With the ids of the new objects along ``obs``, if they are distinct and none is of a
            training object; otherwise with numbers.
        """
        check_is_fitted(self)
        return self.specification_(_as_input(*self._new_objects(X)), self._training)

    def _new_stacks(self, X: Any) -> Iterator[DataArray | ParametricStack]:
        """Kernels of new objects, of so many of them at a time that they fit into memory."""
        check_is_fitted(self)
        new = feature_spaces(_as_input(*self._new_objects(X)), self._training)
        for start in range(0, len(new.labels), MANY):
            yield self.specification_(new.block(slice(start, start + MANY)), self._training)

    def _new_objects(self, X: Any) -> tuple[Objects, bool]:
        """Check and scale new objects; say whether kernels may have their ids."""
        tables = self._tables(X, reset=False)
        self._check_blocks(tables, self._training.features)
        used = {block: t for block, t in tables.items() if block in self._training.features}
        check_measured(used, type(self).__name__)
        new = feature_spaces(_mapping(used), self._training, order=ids_of(X))
        new = self._scaled(new)
        ids = pd.Index(new.labels)
        # Under the ids of training objects the kernels would take new features for theirs.
        distinct = ids.is_unique and set(ids).isdisjoint(self._training.labels.tolist())
        return new, distinct and not new.numbered

    def _check_blocks(self, tables: Tables, used: Iterable[str | None]) -> None:
        """Raise unless new objects have the blocks used in training, and no unknown ones."""
        missing = [block for block in used if block not in tables]
        unknown = [block for block in tables if block not in self._blocks_given]
        if not (missing or unknown):
            return
        one = "one array or frame without block names"
        known, given = sorted(map(str, self._blocks_given)), sorted(map(str, tables))
        required = one if None in self._blocks_given else f"of the blocks {known}"
        got = one if None in tables else f"the blocks {given}"
        required = f"{required}, as the training objects are"
        raise argument_error("X", type(self).__name__, required, got)

    def _tables(self, X: Any, *, reset: bool) -> Tables:
        """Read the tables of all blocks; `reset` also records the names of the features."""
        owner = type(self).__name__
        if reset:
            # New objects are read as the training objects were, whatever `set_params` does later.
            self._columns, self._kernels_given = deepcopy(self.blocks), self._pairwise
        tables = in_blocks(X, owner)
        if tables is None:
            return self._tables_of_one(as_frame(X), reset)
        if self._columns is not None:
            requirement = "None, because X names its blocks"
            raise argument_error("blocks", owner, requirement, repr(self._columns))
        if reset:
            self._record_features(tables)
        return tables

    def _tables_of_one(self, X: Any, reset: bool) -> Tables:
        """Tables of the blocks of one array or frame, after scikit-learn's checks."""
        owner = type(self).__name__
        check_one_table(X, "X", owner)
        check_unmasked(X, "X", owner)
        if self._columns is None or not isinstance(X, pd.DataFrame):
            check_undated(X, "X", owner)
        if isinstance(X, pd.DataFrame):
            check_distinct(X.columns, "X", owner, "a frame with distinct names of columns")
        given, kernels_given = self._columns, self._kernels_given
        cut = given is not None and not kernels_given
        precomputes = isinstance(self.kernels, Kernels) and None in self.kernels.grams
        gaps = self._takes_gaps or kernels_given or precomputes
        # Columns in no block may hold anything.
        checks: dict[str, Any] = (
            {"skip_check_array": True}
            if cut and isinstance(X, pd.DataFrame)
            else {
                # Of kernels with gaps, a later message says who completes them.
                "ensure_all_finite": "allow-nan" if gaps else True,
                # Kernels in single precision may have a larger asymmetry and smaller eigenvalues.
                "dtype": [np.float64, np.float32] if kernels_given else np.float64,
                "allow_nd": kernels_given,
                "ensure_min_samples": 2 if reset else 1,
            }
        )
        checked = validate_data(self, X, reset=reset, **checks)
        if cut:
            blocks = _as_mapping(given, owner)
            check_names(blocks, "blocks", owner)
            return {
                str(b): select(columns, checked, str(b), owner) for b, columns in blocks.items()
            }
        if checked.ndim == 2:
            return {None: labelled(checked, X)}
        if checked.ndim > 3 or (reset and checked.shape[0] != checked.shape[1]):
            required = (
                "of shape (objects, training objects, kernels), square for training objects: "
                "np.stack(kernels, axis=-1)"
            )
            raise argument_error("X", owner, required, f"shape {checked.shape}")
        names = [f"K{s}" for s in range(checked.shape[2])] if given is None else given
        check_names(names, "blocks", owner)
        if len(names) != checked.shape[2]:
            required = f"{checked.shape[2]} names, one per kernel"
            raise argument_error("blocks", owner, required, repr(names))
        return {str(name): checked[:, :, s] for s, name in enumerate(names)}

    def _record_features(self, tables: Tables) -> None:
        """Set what scikit-learn's estimators know about their features, as pairs with the block."""
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        widths = [np.shape(table)[1:2] for table in tables.values()]
        self.n_features_in_ = sum(int(width[0]) for width in widths if width)
        if all(isinstance(table, pd.DataFrame) for table in tables.values()):
            names = [(block, name) for block, table in tables.items() for name in table.columns]
            self.feature_names_in_ = np.empty(len(names), dtype=object)
            self.feature_names_in_[:] = names

    def _scaled(self, objects: Objects) -> Objects:
        """Return objects whose features have mean 0 and deviation 1 over the training objects."""
        owner = type(self).__name__
        features = dict(objects.features)
        for block, scaler in self._scalers.items():
            values, expected = features[block], scaler.n_features_in_
            if values.shape[1] != expected:
                argument = "X" if block is None else f'X["{block}"]'
                required = f"of {expected} features, as the training objects are"
                raise argument_error(argument, owner, required, f"{values.shape[1]} features")
            features[block] = scaler.transform(values)
        return replace(objects, features=features)

    @override
    def __getstate__(self) -> dict[str, Any]:
        """State without keys that are None, which skops cannot store."""
        state = dict(super().__getstate__())
        if "_scalers" in state:
            state["_scalers"] = list(state["_scalers"].items())
        return state

    @override
    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore dicts."""
        super().__setstate__(dict(state))
        if "_scalers" in state:
            self._scalers = dict(state["_scalers"])

    @property
    def _takes_gaps(self) -> bool:
        """Whether objects may lack blocks."""
        return False

    @property
    def _pairwise(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == PRECOMPUTED

    @override
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.three_d_array = self._pairwise
        tags.input_tags.dict = True
        return tags


class KernelBlocks(
    StackOutput,
    TransformerMixin,
    KernelReader,
    auto_wrap_output_keys=None,  # type: ignore[call-arg]
):
    """Kernels of blocks of features, with every constant from the training objects.

    Parameters
    ----------
    kernels : Kernels, dict or "precomputed", optional
        Specification used for each block, such as ``kz.gaussian("median") | kz.linear()``; or one
        for each block by its name (blocks that the dict does not name are left out); or
        "precomputed": `X` holds kernels. Default: ``kz.gaussian("median")``. A kernel that is the
        only one of its block is named after the block.
    blocks : dict, optional
        Columns of each block, where `X` is one array or frame: a slice of positions, a list of
        positions or names, or the beginning that names have in common. Columns in no block are
        ignored. For precomputed kernels: their names. Default: one block, or those that `X` names.
    normalize : {"trace", "unit"} or None, default="trace"
        Normalisation of the kernels that have none of their own; weights are comparable only
        between kernels of one scale. Features of kernels are those of the normalised kernels;
        basis expansions by a function are left as they are.
    standardize : bool, default=True
        Bring each feature to mean 0 and standard deviation 1 over the training objects. Kernels
        that add features up are otherwise decided by the features of largest scale. Set it to False
        for features whose scales mean something, such as counts, fingerprints or shares.
    missing : {"error", "nan"}, default="error"
        Whether objects may lack blocks. With "nan", the kernel of a block is that of the objects
        that have it, scales, widths and normalisations included, and NaN in the rows and columns of
        the others: what `KernelCompleter` and ``kz.completion.complete_kernels`` take. An object
        lacks a block if its row is NaN as a whole, or if the frame of the block does not have it.

    Attributes
    ----------
    kernel_names_ : ndarray (kernel,)
    specification_ : Kernels
        Applied to the blocks, normalisations included.
    n_features_in_ : int
        Number of features of all blocks.
    feature_names_in_ : ndarray
        Names of the features, where `X` names them; pairs (block, feature) if it names blocks too.

    Raises
    ------
    ValueError
        For blocks and features that differ from those of the training objects, objects that blocks
        do not share, missing values, and kernels that cannot be computed.

    Notes
    -----
    `X` is one of

    - a DataFrame with columns (block, feature): ``pd.concat({"rna": A, "protein": B}, axis=1)``;
    - an array or DataFrame, with `blocks` if there are several;
    - a dict of arrays or DataFrames of the same objects; frames are aligned by their index, in the
      order of the first frame, whether a kernel uses it or not (with ``missing="nan"``, objects
      that only further frames have come after those of the first);
    - with "precomputed": an array (obs, training obs, kernel) or, of one kernel, (obs, training
      obs). scikit-learn's cross-validation takes rows and columns of every kernel.

    The rows of predictions, and of kernels from `transform`, have the order of the first frame, and
    so must an array `y`; a Series goes by its index.

    Features of new objects go by their names. Those of a frame with columns of one level must have
    the order of the training features, as everywhere in scikit-learn.

    Training objects cost O(S N^2 D) for S kernels and D features, n new objects O(S n N D).

    Examples
    --------
    >>> X = pd.concat({"rna": rna, "protein": protein}, axis=1)
    >>> kernels = KernelBlocks(kz.gaussian("median")).fit_transform(X)  # (obs, basis, kernel)
    >>> pipeline = make_pipeline(KernelBlocks(), KernelProbitClassifier("precomputed")).fit(X, y)

    Tables of different objects:

    >>> X = pd.concat({"rna": rna.iloc[:15], "protein": protein.iloc[5:]}, axis=1)
    >>> kernels = KernelBlocks(missing="nan").fit_transform(X)
    >>> completed = KernelCompleter(engine="em").fit_transform(kernels)
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        blocks: Any = None,
        normalize: Any = "trace",
        standardize: bool = True,
        missing: Literal["error", "nan"] = "error",
    ):
        self.kernels = kernels
        self.blocks = blocks
        self.normalize = normalize
        self.standardize = standardize
        self.missing = missing

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose scales, widths and normalisations on the training objects.

        Parameters
        ----------
        X : dict, DataFrame or array
            Training objects.
        y : ignored
        """
        self._fixed(self._fit_kernels(X))
        return self

    @override
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and return the kernels of the training objects; see `transform`."""
        return self._output(self._fixed(self._fit_kernels(X)))

    def transform(self, X: Any) -> Any:
        """Kernels between objects and the training objects.

        Returns
        -------
        DataArray (obs, basis, kernel), or a DataFrame after ``set_output(transform="pandas")``
            "basis" are the training objects, or the functions of a basis expansion.
        """
        return self._output(self._fixed(self.kernel_stack(X)))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the kernels."""
        check_is_fitted(self)
        return self.kernel_names_

    @override
    def kernel_stack(self, X: Any) -> DataArray | ParametricStack:
        check_is_fitted(self)
        if not self._readers:
            return super().kernel_stack(X)
        owner, tables = type(self).__name__, self._tables(X, reset=False)
        self._check_blocks(tables, self._readers)
        new = Gaps.of({str(block): tables[block] for block in self._readers}, owner)
        kernels = {
            block: reader._fixed(reader.kernel_stack({block: new.tables[block]}))
            for block, reader in self._readers.items()
            if len(new.rows[block])
        }
        return new.stack(kernels, self._gaps, new.as_new(self._gaps), self.kernel_names_)

    @override
    def _fit_kernels(
        self, X: Any, order: pd.Index | None = None, kernels: Kernels | None = None
    ) -> DataArray | ParametricStack:
        owner = type(self).__name__
        self._readers: dict[str, KernelBlocks] = {}
        check_name(self.missing, ("error", "nan"), "missing", owner)
        if not self._takes_gaps:
            return super()._fit_kernels(X, order, kernels)
        tables = self._tables(X, reset=True)
        if None in tables or self._pairwise:
            required = '"error" for kernels, and for one table without blocks'
            raise argument_error("missing", owner, required, '"nan"')
        self._blocks_given = set(tables)
        blocks = [str(block) for block in tables]
        given = self.kernels if kernels is None else kernels
        specification = specified(given, [*blocks], owner)
        self.specification_ = _normalized(specification, self.normalize, owner)
        for member in self.specification_.members:
            if not member.base.is_kernel:
                required = 'kernels, not basis functions, with missing="nan"'
                raise argument_error("kernels", owner, required, repr(member))
            if member.space is not None:
                check_name(member.space, blocks, "kernels", owner)
        own = {block: _bound_to(self.specification_, block) for block in blocks}
        used = [block for block in blocks if own[block]]
        self._gaps = Gaps.of({block: tables[block] for block in used}, owner)
        for block in used:
            if len(self._gaps.rows[block]) < 2:
                got = f"{len(self._gaps.rows[block])}"
                raise argument_error(f'X["{block}"]', owner, "of at least two objects", got)
        # A reader computes scales, widths and normalisations on the objects that have its block.
        self._readers = {
            block: KernelBlocks(Kernels(own[block]), normalize=None, standardize=self.standardize)
            for block in used
        }
        stacks = {
            block: reader._fixed(reader._fit_kernels({block: self._gaps.tables[block]}))
            for block, reader in self._readers.items()
        }
        names = [name for stack in stacks.values() for name in stack["kernel"].values.tolist()]
        check_distinct(names, "kernels", owner, "of distinct names")
        self.kernel_names_ = np.array(names, dtype=object)
        self._gaps = replace(self._gaps, tables={})
        return self._gaps.stack(stacks, self._gaps, self._gaps.labels, self.kernel_names_)

    @property
    @override
    def _takes_gaps(self) -> bool:
        return self.missing == "nan"

    @override
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps
        return tags

    def _fixed(self, stack: DataArray | ParametricStack) -> DataArray:
        if isinstance(stack, ParametricStack):
            got = f"the parameters {list(stack.parameters)}"
            requirement = "without parameters to learn, which only the classifiers accept"
            raise argument_error("kernels", type(self).__name__, requirement, got)
        return stack


@singledispatch
def specified(kernels: Any, blocks: list[str | None], owner: str) -> Kernels:
    """Specification of the kernels of all blocks.

    Parameters
    ----------
    kernels : Kernels, dict, "precomputed" or None
        As in `KernelBlocks`.
    blocks : list of str, or [None]
        Names of the blocks; None for one without a name.
    owner : str
        The estimator, for messages.
    """
    raise argument_error(
        "kernels",
        owner,
        'a specification such as kz.gaussian("median") | kz.linear(), a dict of them by block, or '
        '"precomputed"',
        repr(kernels),
    )


@specified.register
def _(kernels: None, blocks: list[str | None], owner: str) -> Kernels:
    return specified(gaussian("median"), blocks, owner)


@specified.register
def _(kernels: Kernels, blocks: list[str | None], owner: str) -> Kernels:
    if blocks == [None] or not _is_anonymous(kernels):
        return kernels
    return reduce(or_, (_on(kernels, block) for block in blocks))


@specified.register
def _(kernels: str, blocks: list[str | None], owner: str) -> Kernels:
    check_name(kernels, [PRECOMPUTED], "kernels", owner)
    return reduce(or_, (_on(precomputed(), block) for block in blocks))


@specified.register
def _(kernels: Mapping, blocks: list[str | None], owner: str) -> Kernels:
    if blocks == [None]:
        required = "one specification, because X has no blocks; pass 'blocks' to make them"
        raise argument_error("kernels", owner, required, f"a dict with {list(kernels)}")
    if not kernels:
        raise argument_error("kernels", owner, "a dict with at least one block", "none")
    check_names(kernels, "kernels", owner)
    each = {str(block): specified(given, [None], owner) for block, given in kernels.items()}
    for block in each:
        check_name(block, [str(known) for known in blocks], "kernels", owner)
    return reduce(or_, (_on(given, block) for block, given in each.items()))


def _on(kernels: Kernels, block: str | None) -> Kernels:
    """Kernels of a block; a single one without a name is named after it."""
    if block is None:
        return kernels
    bound = kernels.on(block)
    return bound.named(block) if _is_anonymous(kernels) else bound


def _bound_to(kernels: Kernels, block: str) -> tuple[Member, ...]:
    """Kernels that a block has, with the names that they have beside those of other blocks."""
    return tuple(
        replace(m, space=block, name=None if m.name is None else m.name_on(block))
        for m in kernels.members
        if m.space in (None, block)
    )


def _is_anonymous(kernels: Kernels) -> bool:
    """Whether there is one kernel, without a name and not bound to a block."""
    return len(kernels) == 1 and kernels.members[0].name is kernels.members[0].space is None


def _normalized(kernels: Kernels, steps: Any, owner: str) -> Kernels:
    """Append normalisations to the kernels, and features of kernels, that have none."""
    if steps is None:
        return kernels
    named = (steps,) if isinstance(steps, str) or not isinstance(steps, Iterable) else tuple(steps)
    for step in named:
        check_name(step, NORMALIZATIONS, "normalize", owner)
    return Kernels(
        tuple(
            replace(m, steps=named)
            if (m.base.is_kernel or isinstance(m.base, Landmarks)) and not m.steps
            else m
            for m in kernels.members
        )
    )


def _as_mapping(blocks: Any, owner: str) -> Mapping:
    if not isinstance(blocks, Mapping) or not blocks:
        required = "a dict of columns by the name of the block"
        raise argument_error("blocks", owner, required, repr(blocks))
    return blocks


def _mapping(tables: Tables) -> Any:
    """Tables as a specification of kernels takes them: without a dict if there are no blocks."""
    return tables.get(None, tables)


def _as_input(objects: Objects, labelled: bool) -> Any:
    """Objects as a specification of kernels takes them, with their ids if `labelled`."""
    tables: Tables = {}
    for block, values in objects.features.items():
        columns = objects.columns.get(block)
        tables[block] = pd.DataFrame(values, objects.labels, columns) if labelled else values
    return _mapping(tables)
