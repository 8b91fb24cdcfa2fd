"""Form of the kernels that transformers return."""

from typing import Any, Self

import pandas as pd
from sklearn import get_config
from xarray import DataArray

from ..validation import check_name

__all__ = ["StackOutput"]

FORMS = ("default", "pandas")


class StackOutput:
    """Part of transformers that return kernels (obs, basis, kernel), with ``set_output``."""

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the form of the kernels that `transform` and `fit_transform` return.

        Parameters
        ----------
        transform : {"default", "pandas"}, optional
            "default" is a DataArray (obs, basis, kernel). "pandas" is a DataFrame with a row an
            object and columns (kernel, basis), which estimators with precomputed kernels take. None
            changes nothing. Without a call, ``sklearn.set_config(transform_output=...)`` decides,
            and `transform` raises a ValueError if it asks for another form.

        Returns
        -------
        self
        """
        if transform is not None:
            check_name(transform, FORMS, "transform", type(self).__name__)
            # The name that sklearn.base.clone copies.
            self._sklearn_output_config = {"transform": transform}
        return self

    def _output(self, stack: DataArray) -> Any:
        """Return kernels in the form chosen."""
        stack = stack.transpose("obs", "basis", "kernel")
        chosen = getattr(self, "_sklearn_output_config", {})
        form = chosen.get("transform")
        if form is None:
            form = get_config()["transform_output"]
            check_name(form, FORMS, "transform_output", "sklearn.set_config")
        if form == "default":
            return stack
        names = stack["kernel"].values.tolist()
        return pd.concat({name: stack.sel(kernel=name).to_pandas() for name in names}, axis=1)
