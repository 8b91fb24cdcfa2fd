"""Kernels of the blocks of features, with every constant from the training objects."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any, Self, override

import numpy as np
import pandas as pd
import pymc as pm
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from xarray import DataArray

from ..models.kernels import (
    Kernels,
    KernelWarning,
    covariance,
    function,
    gaussian,
    precomputed,
)
from ..models.kernels.labels import (
    as_frame,
    check_distinct,
    ids_along,
    listed,
    with_ids_of_columns,
)
from ..models.kernels.objects import Objects, read_objects
from ..models.kernels.source import ParametricStack
from ..models.kernels.specification import NORMALIZATIONS, FittedKernels
from ..models.kernels.stack import PRECISION, precision_of
from ..user_warnings import warn_user
from ..validation import argument_error, check_name, check_one_table, check_real, check_undated

PRECOMPUTED = "precomputed"
#: What precomputed kernels of new objects are.
OF_NEW = "Kernels of new objects are between these (rows) and the training objects (columns): "
OF_NEW += "K[np.ix_(new, train)]."
#: What to write for kernels by their names in other libraries.
WRITTEN = {
    "rbf": "kz.gaussian(gamma)",
    "gaussian": 'kz.gaussian("median")',
    "linear": "kz.linear()",
    "poly": "kz.polynomial(degree, gamma, coef0)",
    "polynomial": "kz.polynomial(degree, gamma, coef0)",
    "cosine": 'kz.linear().normalize("unit")',
}
SCALE = "scale"
RANK = "rank"
# Largest number of quantiles that ranks are interpolated between.
MOST_QUANTILES = 1000
# Median excess kurtosis of heavy-tailed features; 6 for exponential ones.
HEAVY_KURTOSIS = 6.0

#: Tables by the name of their block; a single table without blocks has the name None.
type Tables = dict[str | None, Any]


@contextmanager
def attempt[E: BaseEstimator](estimator: E) -> Iterator[E]:
    """Copy to fit, whose attributes become the estimator's only when nothing was raised."""
    trial = copy(estimator)
    yield trial
    estimator.__dict__ = trial.__dict__


@dataclass(frozen=True)
class FittedBlocks:
    """Kernels fitted to the blocks of a table, and how the table was read and scaled."""

    kernels: FittedKernels
    #: Kernels of the training objects.
    stack: DataArray | ParametricStack
    standardize: bool | str
    scalers: dict[str | None, Any]
    #: Parameter `blocks`, and whether `kernels` is "precomputed", at the time of the fit.
    columns: Any
    pairwise: bool
    #: Names of all blocks of the input, those that no kernel uses among them.
    blocks: frozenset[str | None]

    @property
    def specification(self) -> Kernels:
        """Specification of the kernels."""
        return self.kernels.specification

    @property
    def objects(self) -> Objects:
        """Training objects, their features scaled."""
        return self.kernels.objects

    @property
    def table(self) -> DataArray:
        """The stack, with parameters to learn at their start."""
        return self.stack.start if isinstance(self.stack, ParametricStack) else self.stack

    def weighted(self, rows: Any) -> DataArray | ParametricStack:
        """Stack with these rows, the objects' copies, and all columns."""
        if rows is None:
            return self.stack
        if not isinstance(self.stack, DataArray):
            raise ValueError("sample_weight is for kernels without parameters to learn.")
        return self.stack.isel(obs=rows)

    @property
    def heavy_tailed(self) -> bool:
        """Whether scaled features of a block have heavy tails, as those with many zeros do."""
        for block in self.scalers:
            features = np.asarray(self.objects.features[block])
            varying = features[:, features.std(axis=0) > 0]
            if varying.size and np.median((varying**4).mean(axis=0)) - 3 > HEAVY_KURTOSIS:
                return True
        return False


@dataclass(eq=False, repr=False, kw_only=True)
class KernelReader(BaseEstimator):
    """Part of every estimator that turns its input into kernels; see `KernelBlocks`."""

    kernels: Any = field(default=None, kw_only=False)
    blocks: Any = None
    normalize: Any = "trace"
    standardize: bool | str = SCALE

    def _fit_kernels(
        self, X: Any, kernels: Any, standardize: bool | str, order: pd.Index | None = None
    ) -> FittedBlocks:
        """Choose kernels, scales and widths on the training objects, ordered by the ids `order`."""
        owner = type(self).__name__
        if not isinstance(standardize, bool | str) or standardize not in (True, False, SCALE, RANK):
            rule = "'scale', 'rank', True (as 'scale'), False, or 'auto' of a classifier "
            rule += "or regressor"
            raise argument_error("standardize", owner, rule, repr(standardize))
        tables = self._tables(X, reset=True)
        blocks = frozenset(tables)
        specification = _normalized(specified(kernels, [*tables], owner), self.normalize, owner)
        grams = {b for b in tables if not specification.grams.isdisjoint({None, b})}
        tables |= {block: with_ids_of_columns(tables[block]) for block in grams}
        order = ids_of(tables) if order is None else order
        bound = {member.block for member in specification.members}
        if None not in bound:
            # Blocks that no kernel uses may lack objects. An unknown one is refused below.
            tables = {block: tables[block] for block in tables if block in bound} or tables
        # A table without blocks is taken without the dict.
        labelled = specification.labelled
        objects = read_objects(tables.get(None, tables), order=order, labelled=labelled)
        grams &= objects.features.keys()
        for block in grams:
            objects = objects.with_gram(block, "X" if block is None else block)
        scalers = {
            # Arrays, whatever sklearn.set_config says.
            block: _scaler(standardize, values).set_output(transform="default").fit(values)
            for block, values in objects.features.items()
            if standardize and block not in grams
            if not _is_unscaled(specification, block, owner)
        }
        objects = _scaled(objects, scalers)
        fitted = specification.on_training(objects)
        stack = fitted(fitted.objects)
        rounding = max((precision_of(tables[block]) for block in grams), default=0.0)
        if isinstance(stack, DataArray) and rounding:
            # Kernels in single precision may have a larger asymmetry and smaller eigenvalues.
            stack.attrs[PRECISION] = rounding
        return FittedBlocks(
            fitted, stack, standardize, scalers, self.blocks, self._pairwise, blocks
        )

    def _respecified(
        self, fitted: FittedBlocks, kernels: Any, objects: Objects | None = None
    ) -> FittedBlocks:
        """Other kernels of the same features, or of those of some objects."""
        owner = type(self).__name__
        blocks = [*fitted.objects.features]
        specification = _normalized(specified(kernels, blocks, owner), self.normalize, owner)
        other = specification.on_training(fitted.objects if objects is None else objects)
        return replace(fitted, kernels=other, stack=other(other.objects))

    def _keep(self, fitted: FittedBlocks) -> None:
        """Set the attributes of a fitted estimator that describe its kernels.

        Warn of blocks that are left out, and of blocks in names of columns.
        """
        owner = type(self).__name__
        left_out = fitted.blocks - fitted.objects.features.keys()
        if left_out:
            named = listed(sorted(map(str, left_out)))
            message = f"X has blocks that are left out, because the 'kernels' of {owner} give them "
            warn_user(f"{message}no kernel: {named}.", KernelWarning)
        columns = None if fitted.columns or fitted.pairwise else fitted.objects.columns.get(None)
        if columns is not None and (found := _blocks_in_names(columns)):
            blocks, remedy = found
            warn_user(
                f"{owner} takes X as one block, but its columns are named as those of the blocks "
                f"{listed(blocks)}. To keep these apart, {remedy}.",
                KernelWarning,
            )
        self._fitted = fitted
        self.specification_ = fitted.specification
        self.standardize_ = fitted.standardize
        self.kernel_names_ = fitted.table["kernel"].to_numpy().astype(object)

    def kernel_stack(self, X: Any) -> DataArray | ParametricStack:
        """Kernels between new objects and the training objects, as ``kz.predict`` takes them.

        Returns
        -------
        DataArray (kernel, obs, basis), or ParametricStack for kernels with parameters to learn
            With the ids of the new objects along ``obs``, which may be those of training objects,
            or numbers if they have none.
        """
        check_is_fitted(self)
        fitted = self._fitted
        tables = self._tables(X, reset=False)
        if not fitted.objects.features.keys() <= tables.keys() <= fitted.blocks:
            one = "one array or frame without block names"
            trained, got = (
                one if None in blocks else f"the blocks {sorted(map(str, blocks))}"
                for blocks in (fitted.blocks, tables)
            )
            required = f"{trained}, as the training objects are"
            raise argument_error("X", type(self).__name__, required, got)
        used = {block: t for block, t in tables.items() if block in fitted.objects.features}
        new = read_objects(
            used.get(None, used),
            fitted.objects,
            order=ids_of(X),
            labelled=fitted.specification.labelled,
        )
        return fitted.kernels(_scaled(new, fitted.scalers))

    def _tables(self, X: Any, *, reset: bool) -> Tables:
        """Read the tables of all blocks; `reset` also records their features."""
        owner = type(self).__name__
        # Parameters set since the fit are those of the next one.
        columns = self.blocks if reset else self._fitted.columns
        pairwise = self._pairwise if reset else self._fitted.pairwise
        tables = in_blocks(X, owner)
        if tables is None:
            return self._tables_of_one(as_frame(X), columns, pairwise=pairwise, reset=reset)
        if columns is not None:
            rule = "None, because X names its blocks"
            raise argument_error("blocks", owner, rule, repr(columns))
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = sum(sum(np.shape(table)[1:2]) for table in tables.values())
        return tables

    def _tables_of_one(self, X: Any, columns: Any, *, pairwise: bool, reset: bool) -> Tables:
        """Tables of the blocks of one array or frame, after scikit-learn's checks."""
        owner = type(self).__name__
        framed = isinstance(X, pd.DataFrame)
        if pairwise and columns is not None:
            rule = "None for an array of kernels; a dict or a DataArray names them"
            raise argument_error("blocks", owner, rule, repr(columns))
        check_one_table(X, "X", owner)
        # Columns in no block may hold anything.
        as_it_is = framed and columns is not None
        if framed:
            check_distinct(X.columns, "X", owner, "a frame with distinct names of columns")
        checks: dict[str, Any] = {"skip_check_array": True}
        if not as_it_is:
            check_undated(X, "X", owner)
            checks = {
                # A later message names the objects, and what completes kernels.
                "ensure_all_finite": "allow-nan",
                "dtype": [np.float64, np.float32] if pairwise else np.float64,
                "allow_nd": pairwise,
                "ensure_min_samples": 2 if reset else 1,
            }
        try:
            table = validate_data(self, X, reset=reset, **checks)
        except ValueError as error:
            # scikit-learn names neither the column nor what the kernels are.
            array = isinstance(X, pd.DataFrame | np.ndarray) and X.ndim == 2 and not as_it_is
            if array and np.asarray(X).dtype.kind in "OUS":
                rule = "real numbers (of categories by pd.get_dummies; ids are the index of a "
                rule += "frame)"
                for name, column in pd.DataFrame(X).items():
                    check_real(column, f"X[{name!r}]", owner, booleans=True, rule=rule)
            if pairwise and not reset:
                raise ValueError(f"{error} {OF_NEW}") from None
            raise
        if table.ndim == 3:
            if reset and table.shape[0] != table.shape[1]:
                rule = "of shape (objects, training objects, kernels), square for training "
                rule += "objects: np.stack(kernels, axis=-1)"
                raise argument_error("X", owner, rule, f"shape {table.shape}")
            return {f"K{k}": kernel for k, kernel in enumerate(np.moveaxis(table, 2, 0))}
        if framed and not as_it_is:
            table = pd.DataFrame(table, X.index, X.columns)
        if columns is None:
            return {None: table}
        if not isinstance(columns, Mapping) or not columns:
            rule = "a dict of columns by the name of the block"
            raise argument_error("blocks", owner, rule, repr(columns))
        _check_names(columns, "blocks", owner)
        return {str(b): _columns_of(table, given, str(b), owner) for b, given in columns.items()}

    @property
    def _pairwise(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == PRECOMPUTED

    @override
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.three_d_array = self._pairwise
        tags.input_tags.dict = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class KernelBlocks(
    TransformerMixin,
    KernelReader,
    auto_wrap_output_keys=None,  # type: ignore[call-arg]
):
    """Kernels of blocks of features, with every constant from the training objects.

    Parameters
    ----------
    kernels : Kernels, function, dict or "precomputed", optional
        Specification used for each block, such as ``kz.gaussian("median") | kz.linear()``; or a
        function of two arrays of objects, also of ``pm.gp.cov`` or scikit-learn (see
        ``kz.kernels.function``); or one for each block by its name (blocks that the dict does not
        name are left out, with a warning); or "precomputed": `X` holds kernels. Default:
        ``kz.gaussian("median")``. A kernel that is the only one of its block is named after the
        block.
    blocks : dict, optional
        Columns of each block, where `X` is one array or frame: a slice of positions, a list of
        positions or names, a mask, or the beginning that names have in common. Columns in no block
        are ignored. Default: one block, or those that `X` names.
    normalize : {"trace", "unit"} or None, default="trace"
        Normalisation of the kernels that have none of their own; weights are comparable only
        between kernels of one scale. Features of kernels are those of the normalised kernels;
        basis expansions by a function are left as they are.
    standardize : {"scale", "rank"} or bool, default="scale"
        Bring each feature to mean 0 and standard deviation 1 over the training objects: otherwise
        the features of largest scale decide a kernel. "rank": first replace each value by its rank
        among the training objects; for features with many zeros or heavy tails. False: for features
        whose scales mean something, such as counts or shares. True is "scale".

    Attributes
    ----------
    kernel_names_ : ndarray (kernel,)
    specification_ : Kernels
        Applied to the blocks, normalisations included.
    standardize_ : str or bool
        How the features were standardised.
    n_features_in_ : int
        Number of features of all blocks.
    feature_names_in_ : ndarray
        Names of the features of one frame without block names.

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
    - a dict of arrays or DataFrames of the same objects; frames are aligned by their index;
    - with "precomputed": an array (obs, training obs, kernel) or, of one kernel, (obs, training
      obs). scikit-learn's cross-validation takes rows and columns of every kernel.

    The rows of predictions, and of kernels from `transform`, have the order of the first frame,
    whether a kernel uses it or not, and so must an array `y`; a Series is aligned by its index.
    Features of new objects are matched by name. Those of a frame with columns of one level must
    have the order of the training features, as everywhere in scikit-learn.

    Training objects cost O(S N^2 D) for S kernels and D features, n new objects O(S n N D).

    Examples
    --------
    >>> X = pd.concat({"rna": rna, "protein": protein}, axis=1)
    >>> kernels = KernelBlocks(kz.gaussian("median")).fit_transform(X)  # (obs, basis, kernel)
    >>> pipeline = make_pipeline(KernelBlocks(), KernelProbitClassifier("precomputed")).fit(X, y)
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose scales, widths and normalisations on the training objects; `y` is ignored."""
        self.fit_transform(X)
        return self

    @override
    def fit_transform(self, X: Any, y: Any = None) -> DataArray:
        """Fit, and return the kernels of the training objects; see `transform`."""
        with attempt(self) as trial:
            fitted = trial._fit_kernels(X, self.kernels, self.standardize)
            if isinstance(fitted.stack, ParametricStack):
                got = f"the parameters {list(fitted.stack.parameters)}"
                requirement = "without parameters to learn, which only the classifiers accept"
                raise argument_error("kernels", type(self).__name__, requirement, got)
            trial._keep(fitted)
        return fitted.stack.transpose("obs", "basis", "kernel")

    def transform(self, X: Any) -> DataArray:
        """Kernels between objects and the training objects.

        Returns
        -------
        DataArray (obs, basis, kernel)
            "basis" are the training objects, or the functions of a basis expansion.
        """
        stack = self.kernel_stack(X)
        assert isinstance(stack, DataArray)
        return stack.transpose("obs", "basis", "kernel")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the kernels."""
        check_is_fitted(self)
        return self.kernel_names_


def _scaler(standardize: bool | str, values: Any) -> Any:
    if standardize != RANK:
        return StandardScaler()
    ranks = QuantileTransformer(n_quantiles=min(len(values), MOST_QUANTILES), subsample=None)
    return make_pipeline(ranks, StandardScaler())


def _is_unscaled(kernels: Kernels, block: str | None, owner: str) -> bool:
    """Whether the kernels of a block take its features as they are."""
    on_block = [each for each in kernels.members if each.block in (None, block)]
    unscaled = [each for each in on_block if each.takes_unscaled]
    if unscaled and len(unscaled) < len(on_block):
        where = "X" if block is None else f'X["{block}"]'
        rule = f"for {where} either all of features as they are or all of scaled ones: give the "
        rule += "table under two names, or standardize=False"
        raise argument_error("kernels", owner, rule, repr(Kernels(tuple(on_block))))
    return bool(unscaled)


def _scaled(objects: Objects, scalers: Mapping[str | None, Any]) -> Objects:
    scaled = {block: each.transform(objects.features[block]) for block, each in scalers.items()}
    return replace(objects, features=objects.features | scaled)


def specified(kernels: Any, blocks: list[str | None], owner: str) -> Kernels:
    """Specification of the kernels of all blocks, [None] for one without a name."""
    if kernels is None:
        kernels = gaussian("median")
    elif isinstance(kernels, str) and kernels == PRECOMPUTED:
        kernels = precomputed()
    elif isinstance(kernels, pm.gp.cov.BaseCovariance):
        kernels = covariance(kernels)
    elif isinstance(kernels, type) or getattr(kernels, "__module__", "") == gaussian.__module__:
        rule = f"what {kernels.__name__}(...) returns"
        raise argument_error("kernels", owner, rule, f"{kernels.__name__} itself")
    elif callable(kernels) and not isinstance(kernels, Kernels):
        kernels = function(kernels)
    if isinstance(kernels, Kernels):
        if blocks == [None] or not _is_anonymous(kernels):
            return kernels
        return reduce(or_, (_on(kernels, str(block)) for block in blocks))
    if not isinstance(kernels, Mapping) or not kernels:
        required = 'a specification such as kz.gaussian("median") | kz.linear(), a dict of them '
        required += 'with at least one block, or "precomputed"'
        raise argument_error("kernels", owner, required, repr(kernels) + _instead_of(kernels))
    if blocks == [None]:
        required = "one specification, because X has no blocks; pass 'blocks' to make them"
        raise argument_error("kernels", owner, required, f"a dict with {list(kernels)}")
    _check_names(kernels, "kernels", owner)
    for block in kernels:
        check_name(str(block), [str(known) for known in blocks], "kernels", owner)
    each = {str(block): specified(given, [None], owner) for block, given in kernels.items()}
    return reduce(or_, (_on(given, block) for block, given in each.items()))


def _instead_of(kernels: Any) -> str:
    """Say, at the end of a message, what to write for a kernel of another library."""
    if isinstance(kernels, str) and kernels.lower() in WRITTEN:
        return f"; write {WRITTEN[kernels.lower()]}"
    return ""


def _blocks_in_names(columns: pd.Index) -> tuple[list[str], str] | None:
    """Blocks that a transformer wrote into the names of all columns, and what keeps them apart."""
    names = columns.tolist()
    if all(isinstance(name, tuple) and len(name) == 2 for name in names):
        blocks = list(dict.fromkeys(str(name[0]) for name in names))
        remedy = "set X.columns = pd.MultiIndex.from_tuples(X.columns)"
    elif all(isinstance(name, str) and name.partition("__")[2] for name in names):
        blocks = list(dict.fromkeys(name.partition("__")[0] for name in names))
        remedy = f"set blocks={ {block: f'{block}__' for block in blocks} }"
    else:
        return None
    return (blocks, remedy) if len(blocks) > 1 else None


def _on(kernels: Kernels, block: str) -> Kernels:
    """Kernels of a block; a single one without a name is named after it."""
    bound = kernels.on(block)
    return bound.named(block) if _is_anonymous(kernels) else bound


def _is_anonymous(kernels: Kernels) -> bool:
    return len(kernels) == 1 and kernels.members[0].name is kernels.members[0].block is None


def _normalized(kernels: Kernels, steps: Any, owner: str) -> Kernels:
    """Append normalisations to the kernels, and features of kernels, that have none."""
    if steps is None:
        return kernels
    named = (steps,) if isinstance(steps, str) or not isinstance(steps, Iterable) else tuple(steps)
    for step in named:
        check_name(step, NORMALIZATIONS, "normalize", owner)
    members = (
        replace(m, steps=named) if m.is_kernel and not m.steps else m for m in kernels.members
    )
    return Kernels(tuple(members))


def in_blocks(X: Any, owner: str) -> Tables | None:
    """Tables of a dict, a frame (block, feature) or a DataArray (kernel, obs, basis); else None."""
    tables: dict[Any, Any] = {}
    # Some of SciPy's sparse matrices are mappings.
    if isinstance(X, Mapping) and not issparse(X):
        tables = dict(X)
        if not tables:
            raise argument_error("X", owner, "of blocks with distinct names", "none")
    elif isinstance(X, pd.DataFrame) and X.columns.nlevels > 1:
        if X.columns.nlevels > 2:
            got = f"{X.columns.nlevels} levels"
            raise argument_error("X", owner, "a frame with columns of levels (block, feature)", got)
        check_distinct(X.columns, "X", owner, "of columns (block, feature) with distinct names")
        tables = {block: X[block] for block in X.columns.get_level_values(0).unique()}
    elif isinstance(X, DataArray) and X.ndim == 3:
        if set(X.dims) != {"kernel", "obs", "basis"}:
            raise argument_error("X", owner, "of dims ('obs', 'basis', 'kernel')", f"dims {X.dims}")
        stack = X.transpose("kernel", "obs", "basis")
        names = X["kernel"].values if "kernel" in X.coords else map("K{}".format, range(len(stack)))
        tables = dict(zip(names, stack.drop_vars("kernel", errors="ignore"), strict=True))
    if not tables:
        return None
    for block, table in tables.items():
        check_one_table(table, f'X["{block}"]', owner)
    _check_names(tables, "X", owner)
    return {str(block): as_frame(table) for block, table in tables.items()}


def ids_of(X: Any) -> pd.Index | None:
    """Ids of the objects of an estimator's input, in the order of its rows, or None."""
    # A dict has those of its first table with ids, whether a kernel uses it or not.
    if isinstance(X, Mapping):
        return next((ids for table in X.values() if (ids := ids_of(table)) is not None), None)
    if isinstance(X, DataArray) and X.ndim != 2:
        return None if isinstance(ids := ids_along(X, "obs"), range) else ids
    frame = as_frame(X)
    return frame.index if isinstance(frame, pd.DataFrame | pd.Series) else None


def _check_names(blocks: Iterable[Any], argument: str, owner: str) -> None:
    check_distinct([*map(str, blocks)], argument, owner, "of blocks with distinct names")


def _columns_of(X: Any, columns: Any, block: str, owner: str) -> Any:
    """Columns of a block: a slice of positions, positions or names, or a prefix of names."""
    argument = f'blocks["{block}"]'
    framed = isinstance(X, pd.DataFrame)
    table = X if framed else pd.DataFrame(X)
    try:
        if isinstance(columns, int | np.integer):
            raise TypeError(f"one position is [{columns}]")
        if isinstance(columns, slice) or np.asarray(columns).dtype.kind in "iub":
            chosen = table.iloc[:, columns if isinstance(columns, slice) else np.asarray(columns)]
        elif isinstance(columns, str) and framed:
            chosen = table.loc[:, [str(name).startswith(columns) for name in table.columns]]
        else:
            chosen = table[list(columns)]
    except (KeyError, IndexError, TypeError) as error:
        required = "a slice of positions, a list or mask of columns of X, or a prefix of its names"
        raise argument_error(argument, owner, required, f"{columns!r} ({error})") from None
    check_distinct(chosen.columns, argument, owner, "a list of distinct columns")
    if not chosen.shape[1]:
        raise argument_error(argument, owner, "of at least one column of X", repr(columns))
    return chosen if framed else chosen.to_numpy()
