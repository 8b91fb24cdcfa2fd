"""Base classes of the models on a weighted combination of kernels."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, override

import numpy as np
import xarray as xr

from ..validation import argument_error, check_codes, check_labels, check_name
from .combinations.sums import Combination, WeightedSum
from .declaration import Declaration
from .kernels.dask_stack import read_kernels
from .kernels.labels import aligned, ids_along
from .kernels.source import DIMS, KernelSource
from .kernels.warnings import warn_of_near_identity, warn_of_negligible
from .learned_scale import LearnedScale

__all__ = ["CompositeDeclaration", "LabelledDeclaration"]


class CompositeDeclaration(Declaration):
    """A model on a composite kernel: reads and checks the kernels, and the rule that combines them.

    `rules` are the rules with a name; the model takes these alone or, if `any_rule`, also others.
    `takes` says it in words.
    """

    rules: ClassVar[Mapping[str, type[Combination]]]
    any_rule: ClassVar[bool] = False
    takes: ClassVar[str]

    combination: Any
    kernel_source: KernelSource
    #: Attributes of the kernels: their normalisations and training objects.
    origin: dict[str, Any]

    def read_kernels(
        self, kernels: Any, combination: str | Combination, shape: float, rate: float | LearnedScale
    ) -> xr.DataArray:
        """Check kernels and rule, add the coords and return the stack of kernels.

        `shape` and `rate` are those of the precisions of the regression weights.
        """
        owner = type(self).__name__
        stack, self.kernel_source = read_kernels(kernels, owner)
        self.origin = stack["kernel"].attrs
        if isinstance(combination, str):
            check_name(combination, self.rules, "combination", owner)
            combination = self.rules[combination]()
        known = isinstance(combination, tuple(self.rules.values()))
        other = hasattr(combination, "declare") and not isinstance(combination, type)
        if not (known or (self.any_rule and other)):
            raise argument_error("combination", owner, self.takes, repr(combination))
        self.combination = combination.for_kernels(stack["kernel"].values)
        if not self.kernel_source.in_memory and not isinstance(self.combination, WeightedSum):
            rule = "a weighted sum for kernels in a Dask array"
            raise argument_error("combination", owner, rule, repr(combination))
        for each in self.kernel_source.stacks(stack):
            self.combination.check(each)
        self._learns_scale = isinstance(rate, LearnedScale)
        start = rate.median if isinstance(rate, LearnedScale) else rate
        # Of a Dask array, that would take a pass.
        if self.kernel_source.in_memory:
            warn_of_negligible(stack, owner, (start / shape) ** 0.5)
            warn_of_near_identity(getattr(self.kernel_source, "fixed", stack), owner)
        self.add_coords({dim: stack[dim].values for dim in DIMS})
        return stack

    @property
    @override
    def variant(self) -> str:
        scale = ["learned scale"] if self._learns_scale else []
        return ", ".join([type(self.combination).__name__, *self._options(), *scale])

    def _options(self) -> list[str]:
        """Options of the declaration that tell variants apart."""
        return []

    @property
    def learned(self) -> bool:
        """Whether the weights of the kernels are random variables."""
        return self["beta"] not in self.data_vars


class LabelledDeclaration(CompositeDeclaration):
    """A classifier on a composite kernel: its classes."""

    def read_labels(
        self, labels: Any, classes: Sequence[Hashable] | None, stack: xr.DataArray
    ) -> np.ndarray:
        """Check labels of the objects of a stack, add the classes as coords, and return codes."""
        owner = type(self).__name__
        labels = aligned(labels, ids_along(stack, "obs"), "labels", owner)
        n_objects = stack.sizes["obs"]
        codes, known = check_labels(labels, "labels", owner, classes=classes, n_objects=n_objects)
        self.add_coord("class", known)
        return codes

    @property
    def label_codes(self) -> np.ndarray:
        """Current class codes, int array (obs,) of 0..C-1.

        Raises
        ------
        ValueError
            If ``pm.set_data`` has set other codes.
        """
        return check_codes(self["labels"].get_value(), self.n_classes, type(self).__name__)

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return len(self.coords["class"])
