"""Completion of kernels with missing rows, as a transformer of scikit-learn."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from xarray import DataArray

from ..inference.completion import complete_kernels
from ..inference.mutual_completion.new_rows import NewRows, imputed_rows
from ..models.kernels.labels import as_frame, listed
from ..models.kernels.source import CompletedRows
from ..models.kernels.specification import normalize
from ..models.kernels.stack import labelled
from ..validation import (
    argument_error,
    check_jitter,
    check_name,
    check_one_table,
    check_positive,
    check_undated,
    integer_seed,
)
from .blocks import OF_NEW, Tables, attempt, in_blocks

OWNER = "KernelCompleter"


@dataclass(eq=False, repr=False, kw_only=True)
class KernelCompleter(
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # type: ignore[call-arg]
):
    """Fill the missing rows of several kernels, from the training objects only.

    A missing object has NaN in its whole row, and a training object in its column too. `fit`
    completes the kernels of the training objects; `transform` completes the rows of each new object
    given the training objects alone.

    Parameters
    ----------
    method : {"mutual", "mean", "zero"}, default="mutual"
        "mutual" completes all kernels together by `MutualKernelCompletion`; the others, without
        uncertainty, are those of `impute_kernels`, with means of training objects.
    engine : {"gibbs", "exact", "em"}, default="gibbs"
        Engine of "mutual", as in `complete_kernels`; "em" is fast, without uncertainty.
    draws : int, default=20
        Draws of the completed kernels.
    normalize : "trace" or None, default="trace"
        Normalisation of the completed kernels, with constants from the training objects.
    lam : float, default=0.1
        Weight of the identity in `MutualKernelCompletion`.
    excess : float, default=2
        Degrees of freedom of `MutualKernelCompletion` above l - 1, for l training objects. The
        larger, the more alike the kernels are taken to be, and the more certain the completion. The
        point of "em" does not depend on them.
    jitter : float, default=0
        Added to the diagonals of the visible blocks, which must be positive definite for "gibbs"
        and "exact", after division by their means.
    random_state : int, optional
    progressbar : bool, default=False

    Attributes
    ----------
    completion_ : CompletedKernels
        Completed kernels of the training objects, with draws, ``sd`` and ``visible``.
    completed_ : CompletedRows
        The same, normalised: the kernels of a model whose fit carries the uncertainty.
    kernel_names_ : ndarray (kernel,)
    n_features_in_ : int
        Number of training objects.

    Raises
    ------
    ValueError
        For rows of which only some entries are missing, objects that lack all kernels, labels of
        columns other than those of the training objects, and as `complete_kernels`.

    Notes
    -----
    `X` is an array (obs, training obs, kernel) or (obs, training obs), a DataArray with these dims,
    or a dict of frames. scikit-learn's cross-validation takes rows and columns of every kernel, but
    cannot cut a dict. An array's kernels are numbered K0, K1, ...

    A classifier in a pipeline takes the means. Training rows come from all training objects
    together, so that `transform` of a training object that lacks kernels is not its row in
    `fit_transform`.

    Training costs O(K l^3) per sweep. New objects cost O(M K l^3) for M draws and each combination
    of kernels that they lack.

    Examples
    --------
    >>> kernels = np.stack([A, B], axis=-1)                    # (obs, obs, kernel) with NaN
    >>> completer = KernelCompleter(engine="em")
    >>> pipeline = make_pipeline(completer, KernelProbitClassifier("precomputed"))
    >>> pipeline.fit(kernels[:9, :9], kinds[:9]).predict_proba(kernels[9:, :9])

    With the uncertainty of the completion:

    >>> completer = KernelCompleter(draws=5, random_state=1).fit(kernels[:9, :9])
    >>> model = kz.MultinomialProbit(completer.completed_, kinds[:9])
    >>> result = kz.fit(model, "vb")
    >>> kz.predict(model, result, completer.completions(kernels[9:, :9]))
    """

    method: Literal["mutual", "mean", "zero"] = "mutual"
    engine: Literal["gibbs", "exact", "em"] = "gibbs"
    draws: int = 20
    normalize: Any = "trace"
    lam: float = 0.1
    excess: float = 2.0
    jitter: float = 0.0
    random_state: int | None = None
    progressbar: bool = False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Complete the kernels of the training objects; `y` is ignored."""
        with attempt(self) as trial:
            trial._fit(X)
        return self

    def _fit(self, X: Any) -> None:
        tables = self._tables(X, reset=True)
        # Without gaps no model checks them, but new objects may have gaps.
        check_positive(self.lam, "lam", OWNER)
        check_jitter(self.jitter, OWNER)
        steps = () if self.normalize is None else (self.normalize,)
        for step in steps:
            check_name(step, ["trace"], "normalize", OWNER)
        self._seed = integer_seed(self.random_state, "random_state", OWNER)
        n = len(next(iter(tables.values())))
        self._nu = n - 1 + check_positive(self.excess, "excess", OWNER)
        same = {name: getattr(self, name) for name in ("method", "engine", "draws", "progressbar")}
        settings = {"lam": self.lam, "nu": self._nu, "jitter": self.jitter}
        completion = complete_kernels(
            tables, normalize=steps, random_seed=self._seed, model=settings, **same
        )
        if self.method == "mutual" and self.engine != "em" and len(completion) < self.draws:
            # New objects that lack kernels have as many draws as if training objects lacked some.
            completion = replace(completion, draws=np.repeat(completion.draws, self.draws, axis=0))
        self.completion_ = completion
        self.completed_: CompletedRows = completion.of(completion.objects)
        self.kernel_names_ = completion.mean["kernel"].to_numpy().astype(object)
        self.n_features_in_ = n
        # Parameters set since the fit are those of the next one.
        self._settings = self.method, self.engine, self.lam
        of_kernels = zip(completion.mean.values, completion.visible.T, strict=True)
        units = np.array([np.diagonal(kernel)[seen].mean() for kernel, seen in of_kernels])
        self._weights = self._nu / units

    @override
    def fit_transform(self, X: Any, y: Any = None) -> DataArray:
        """Complete the kernels of the training objects and return their means; see `transform`."""
        return self.fit(X, y).completed_.mean.transpose("obs", "basis", "kernel")

    def transform(self, X: Any) -> DataArray:
        """Complete the rows of new objects.

        Parameters
        ----------
        X : array (obs, training obs, kernel), DataArray, or dict of frames
            NaN where an object lacks a kernel, and in the columns of training objects that do.

        Returns
        -------
        DataArray (obs, basis, kernel)
            Means; `completions` has the draws.
        """
        return self.completions(X).mean.transpose("obs", "basis", "kernel")

    def completions(self, X: Any) -> CompletedRows:
        """Complete the rows of new objects, with the draws, for ``kz.predict``.

        Each draw of the training objects' kernels gives one draw of the new rows, which does not
        depend on which other objects are given.

        Parameters
        ----------
        X
            As in `transform`.
        """
        check_is_fitted(self)
        trained = self.completion_
        seen = self.completion_.visible
        # In the order of the training kernels and objects.
        stack = labelled(self._tables(X, reset=False), trained.mean, OWNER, "X").astype(float)
        rows = _with_whole_gaps(stack, seen)
        method, engine, lam = self._settings
        if method != "mutual":
            mean = imputed_rows(rows, trained.mean.to_numpy(), seen, zero=method == "zero")
            draws = [mean]
        else:
            each = [NewRows(K, seen, lam * self._nu, self._weights) for K in trained.draws]
            mean = np.mean([one.mean(rows) for one in each], axis=0)
            draws = [mean]
            if engine != "em":
                draws = [one.draw(rows, [self._seed, m]) for m, one in enumerate(each)]
        return CompletedRows(
            stack.copy(data=self._normalized(mean, trained.mean.to_numpy())),
            np.stack([self._normalized(*pair) for pair in zip(draws, trained.draws, strict=True)]),
            bool(seen.all() and not np.isnan(rows).any()),
            trained.key,
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """Names of the kernels."""
        check_is_fitted(self)
        return self.kernel_names_

    def _tables(self, X: Any, *, reset: bool) -> Tables:
        """Matrix of each kernel, by name; scikit-learn checks arrays."""
        if (tables := in_blocks(X, OWNER)) is not None:
            return tables
        X = as_frame(X)
        check_one_table(X, "X", OWNER)
        check_undated(X, "X", OWNER)
        checks: dict[str, Any] = {"allow_nd": True, "ensure_all_finite": "allow-nan"}
        checks["ensure_min_samples"] = 2 if reset else 1
        try:
            array = validate_data(self, X, reset=reset, **checks)
        except ValueError as error:
            if reset:
                raise
            raise ValueError(f"{error} {OF_NEW}") from None
        if isinstance(X, pd.DataFrame):
            return {"K0": X}
        deep = array[:, :, None] if array.ndim == 2 else array
        return {f"K{k}": deep[:, :, k] for k in range(deep.shape[2])}

    def _normalized(self, rows: NDArray, kernels: NDArray) -> NDArray:
        steps = self.completion_.steps
        pairs = zip(rows, kernels, strict=True)
        return np.stack([normalize(new, None, np.diagonal(K), steps, OWNER) for new, K in pairs])

    @override
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.three_d_array = True
        tags.input_tags.dict = tags.input_tags.allow_nan = True
        return tags


def _with_whole_gaps(stack: DataArray, visible: NDArray) -> NDArray:
    """Rows (kernel, new, l) in which each object has all visible entries of a kernel, or none."""
    rows = stack.to_numpy()
    known = visible.T[:, None, :] & ~np.isnan(rows).all(axis=2)[:, :, None]
    if (wrong := known == np.isnan(rows)).any():
        k, i, j = (int(x) for x in np.argwhere(wrong)[0])
        rule = "NaN in the whole row of an object that lacks a kernel, and in the columns of "
        state = "NaN" if known[k, i, j] else "a number"
        names = tuple(stack[dim].values.tolist()[at] for dim, at in (("obs", i), ("basis", j)))
        got = f'{state} at {names} of kernel "{stack["kernel"].values[k]}"'
        raise argument_error("X", OWNER, f"{rule}training objects that do", got)
    if (nowhere := np.isnan(rows).all(axis=(0, 2))).any():
        got = f"{listed(stack['obs'].values[nowhere].tolist())} in none"
        raise argument_error("X", OWNER, "such that each object is in at least one kernel", got)
    return rows
