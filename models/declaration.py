"""What every model of the zoo adds to `pm.Model`: what is large, and what was declared."""

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Self, SupportsIndex, override

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.replace import clone_replace
from pytensor.tensor import TensorVariable

from ..validation import argument_error

__all__ = ["Declaration", "family"]


class Declaration(pm.Model):
    """A paper's model. Everything of PyMC works on it unchanged.

    A subclass checks its input, registers its data as ``pm.Data``, declares its variables in
    ``__init__`` and ends with ``self.seal()``. It knows no engine.

    Engines find variables by their names, so that a declaration stands alone: it takes no ``name``,
    and inside another model it is refused. Further variables can be added to it.

    It pickles as the arguments of its constructor, of which it is declared anew, and the data that
    were set since. One that was amended pickles as any PyMC model does, with cloudpickle alone.

    Attributes
    ----------
    large : frozenset of str
        Variables that a result keeps draws of only when asked (``fit(..., var_names=...)``):
        matrices that grow with the square of the number of objects.
    streamed : tuple of str
        Variables whose posterior mean and standard deviation are accumulated draw by draw, so
        that they are there without the draws.
    """

    large: frozenset[str] = frozenset()
    streamed: tuple[str, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Note the constructor's arguments."""
        if "name" in kwargs and "name" not in signature(cls.__init__).parameters:
            requirement = "left out: engines find the variables by their own names"
            raise argument_error("name", cls.__name__, requirement, repr(kwargs["name"]))
        model = super().__new__(cls)
        model._arguments = args, kwargs
        return model

    def __init__(self, coords: Mapping[str, Any] | None = None):
        super().__init__()
        if self.parent is not None:
            raise ValueError(
                f"A {type(self).__name__} must be declared outside of any other model: its engines "
                "know its own variables alone. Declare it first and add to it in 'with model:', or "
                "leave the with-block of the other one."
            )
        self.add_coords(coords)

    @classmethod
    def example(cls) -> Self:
        """Smallest instance on which every engine can be tried."""
        raise NotImplementedError(f"{cls.__name__} has no example.")

    @property
    def variant(self) -> str:
        """Which of the model's alternatives this one is, for results that must be told apart."""
        return ""

    def seal(self) -> None:
        """Record what has been declared: engines written for it refuse a model that was amended."""
        self._declared = self._terms()
        self._named = frozenset(self.named_vars)
        self._starts = list(self.rvs_to_initial_values.values())
        self._data = {str(data.name): data.get_value(borrow=True) for data in self.data_vars}

    def amendments(self) -> list[str]:
        """Names of the terms added to or taken from the declaration since it was sealed."""
        return sorted(self._terms() ^ self._declared)

    @override
    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        if not hasattr(self, "_declared") or self._is_more_than_declared():
            return super().__reduce_ex__(protocol)
        # Setting data puts another array in place; those of the declaration follow from arguments.
        now = {str(data.name): data.get_value(borrow=True) for data in self.data_vars}
        data = {name: values for name, values in now.items() if values is not self._data[name]}
        return _declared_anew, (type(self), *self._arguments, data, dict(self.coords))

    def _is_more_than_declared(self) -> bool:
        """Whether variables, data or initial values were added that a new declaration lacks."""
        starts = list(self.rvs_to_initial_values.values())
        same = len(starts) == len(self._starts) and all(
            now is then for now, then in zip(starts, self._starts, strict=True)
        )
        return bool(self.amendments()) or frozenset(self.named_vars) != self._named or not same

    @override
    def _make_initial_point(
        self,
        *,
        overrides: Mapping[Any, Any] | None = None,
        jitter_rvs: Collection[TensorVariable] | None = None,
        return_transformed: bool = True,
    ) -> Callable[..., dict[str, Any]]:
        """Compile PyMC's initial point, with observed variables at their values.

        PyMC draws them: a variable that depends on one would start at another point at each call.
        """
        data = {rv: self.rvs_to_values[rv] for rv in self.observed_RVs}
        given = dict(zip(self.free_RVs, clone_replace(self.free_RVs, data), strict=True))
        variables = {str(rv.name): replaced for rv, replaced in given.items()}
        starts = {getattr(key, "name", key): value for key, value in (overrides or {}).items()}
        conditioned = _ConditionedOnData(
            variables,
            {new: self.rvs_to_transforms[rv] for rv, new in given.items()},
            {new: self.rvs_to_initial_values[rv] for rv, new in given.items()},
        )
        # Called once: compiling its parts in C would take seconds.
        with pytensor.config.change_flags(cxx=""):
            return make_initial_point_fn(
                model=conditioned,
                overrides=starts,
                jitter_rvs={given[rv] for rv in jitter_rvs or ()},
                return_transformed=return_transformed,
            )

    def _terms(self) -> frozenset[str]:
        terms = [*self.free_RVs, *self.observed_RVs, *self.potentials]
        return frozenset(str(term.name) for term in terms)


def _declared_anew[M: Declaration](
    cls: type[M],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    data: Mapping[str, Any],
    coords: Mapping[str, Any],
) -> M:
    """Declare a model as it was once declared, with the data that were set since."""
    with warnings.catch_warnings():
        # What there was to warn of was said when the model was first declared.
        warnings.simplefilter("ignore", UserWarning)
        model = cls(*args, **kwargs)
    for name, values in data.items():
        dims = model.named_vars_to_dims.get(name, ())
        labels = {dim: coords[dim] for dim in dims if coords[dim] is not None}
        relabelled = any(not np.array_equal(new, model.coords[dim]) for dim, new in labels.items())
        if relabelled or not np.array_equal(values, model[name].get_value()):
            pm.set_data({name: values}, model=model, coords=labels)
    return model


@dataclass(frozen=True)
class _ConditionedOnData:
    """What PyMC reads of a model for its initial point: free variables given the observed ones."""

    variables: Mapping[str, TensorVariable]
    rvs_to_transforms: Mapping[TensorVariable, Any]
    rvs_to_initial_values: Mapping[TensorVariable, Any]

    @property
    def free_RVs(self) -> list[TensorVariable]:
        return list(self.variables.values())

    def __getitem__(self, name: str) -> TensorVariable:
        return self.variables[name]


def family(model: pm.Model) -> str:
    """Name of the zoo's model that `model` is or descends from, else of its own class."""
    for ancestor in type(model).__mro__:
        if Declaration in ancestor.__bases__:
            return ancestor.__name__
    return type(model).__name__
