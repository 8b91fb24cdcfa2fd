"""Completion of kernels with missing rows, as a transformer of scikit-learn."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..inference.completion import CompletedKernels, complete_kernels
from ..validation import argument_error

__all__ = ["KernelCompleter"]


class KernelCompleter(TransformerMixin, BaseEstimator):
    """Fill the missing rows of several kernels of the same objects.

    Objects are completed together, without labels. `transform` therefore takes the ids of objects
    that were fitted, and returns their kernels with the training objects, normalised with constants
    from the training objects.

    Parameters
    ----------
    method : {"mutual", "mean", "zero"}, default="mutual"
        As in `complete_kernels`: all kernels together, or each from its own visible entries.
    engine : {"gibbs", "exact", "em"}, default="gibbs"
        Engine of "mutual". "gibbs" and "exact" know the uncertainty.
    draws : int, default=20
        Draws of the completed kernels.
    normalize : str or sequence of str, default="trace"
        As in `complete_kernels`.
    model : mapping, optional
        Arguments of `MutualKernelCompletion` besides the kernels.
    random_state : int, optional
    progressbar : bool, default=False

    Attributes
    ----------
    completion_ : CompletedKernels
        Completed kernels of all objects, with draws, ``sd`` and ``visible``.
    train_ : array
        Ids of the training objects.
    uncertainty_ : DataArray (kernel, obs, basis) or None
        Standard deviations of the completed entries; None for methods without uncertainty.

    Examples
    --------
    >>> completer = KernelCompleter(random_state=1).fit(kernels, train=train)
    >>> completer.transform(train)                     # means, a stack
    >>> completer.transform(new, draws=True)           # with their draws, for predict
    """

    def __init__(
        self,
        *,
        method: Literal["mutual", "mean", "zero"] = "mutual",
        engine: Literal["gibbs", "exact", "em"] = "gibbs",
        draws: int = 20,
        normalize: Any = "trace",
        model: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        progressbar: bool = False,
    ):
        self.method = method
        self.engine = engine
        self.draws = draws
        self.normalize = normalize
        self.model = model
        self.random_state = random_state
        self.progressbar = progressbar

    def fit(self, kernels: Any, y: Any = None, *, train: Any = None) -> Self:
        """Complete the kernels.

        Parameters
        ----------
        kernels
            Dict or stack of square kernels with NaN in the rows and columns of missing objects.
        y : None
            Not used.
        train : sequence of ids, optional
            Training objects. Default: all.

        Raises
        ------
        ValueError
            As `complete_kernels`, and for unknown or repeated ids.
        """
        self.completion_: CompletedKernels = complete_kernels(
            kernels,
            method=self.method,
            engine=self.engine,
            draws=self.draws,
            normalize=self.normalize,
            random_seed=self.random_state,
            progressbar=self.progressbar,
            model=self.model,
        )
        self.train_ = np.asarray(self.completion_.objects if train is None else list(train))
        self.completion_.of(self.train_)
        self.uncertainty_ = self.completion_.sd
        return self

    def fit_transform(self, kernels: Any, y: Any = None, *, train: Any = None) -> xr.DataArray:
        """Complete the kernels and return those of the training objects."""
        return self.fit(kernels, y, train=train).transform(self.train_)

    def transform(self, objects: Any, *, draws: bool = False) -> Any:
        """Completed kernels of fitted objects with the training objects.

        Parameters
        ----------
        objects : sequence of ids
        draws : bool, default=False
            Also return the draws, for models and `predict`, which average over them.

        Returns
        -------
        DataArray (kernel, obs, basis), or CompletedRows with `draws`

        Raises
        ------
        ValueError
            For kernels in place of ids, and for ids that were not fitted.
        """
        check_is_fitted(self)
        if isinstance(objects, Mapping) or np.ndim(objects) != 1:
            rule = "ids of objects that were fitted: new objects are completed with the others"
            got = type(objects).__name__
            raise argument_error("objects", "KernelCompleter.transform", rule, got)
        same = np.array_equal(np.asarray(objects), self.train_)
        rows = self.completion_.of(objects, None if same else self.train_)
        return rows if draws else rows.mean
