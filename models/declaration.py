"""Base classes of the papers' models: any of them, and those on a composite kernel."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from inspect import Signature, signature
from numbers import Real
from types import MappingProxyType, MethodType
from typing import Any, ClassVar, Self, SupportsIndex, override

import cloudpickle
import numpy as np
import pymc as pm
import xarray as xr
from pytensor.tensor import TensorVariable

from ..user_warnings import silent
from ..validation import (
    argument_error,
    check_codes,
    check_finite,
    check_labels,
    check_name,
    check_psd,
    check_square_symmetric,
    check_unmasked,
)
from .combinations.sums import Combination
from .initial_point import compile_initial_point
from .kernels.labels import aligned, ids_along
from .kernels.source import DIMS, IN_MEMORY, KernelSource, ParametricStack
from .kernels.stack import LARGEST_ENTRY, read_kernels
from .kernels.warnings import warn_of_near_identity, warn_of_negligible
from .learned_scale import LearnedScale
from .printing import printed

#: The amended model that cloudpickle is writing.
_AMENDED: ContextVar[Any] = ContextVar("amended", default=None)


class Declaration(pm.Model):
    """A paper's model. Everything of PyMC works on it unchanged.

    A subclass checks its input, registers its data as ``pm.Data``, declares its variables in
    ``__init__`` and ends with ``self.seal()``. It knows no engine.

    Engines find variables by name. Therefore a declaration takes no ``name`` and cannot be declared
    inside another model. Variables can be added to it.

    Pickling stores the constructor's arguments and the data set since; unpickling calls the
    constructor again. An amended declaration is pickled by cloudpickle, whatever pickles it.

    Attributes
    ----------
    large : frozenset of str
        Variables whose draws are kept only on request (``fit(..., var_names=...)``): matrices
        that grow with the square of the number of objects.
    streamed : tuple of str
        Variables whose posterior mean and standard deviation are accumulated draw by draw.
    kernel_source : KernelSource
        Where the kernels come from.
    origin : mapping of str to str
        Attributes of the kernels: their normalisations and training objects.
    """

    __signature__: ClassVar[Signature]
    large: frozenset[str] = frozenset()
    streamed: tuple[str, ...] = ()
    kernel_source: KernelSource = IN_MEMORY
    origin: Mapping[Any, Any] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the constructor's arguments to `help` and editors: PyMC's metaclass hides them."""
        super().__init_subclass__(**kwargs)
        constructor = signature(cls.__init__)
        cls.__signature__ = constructor.replace(parameters=[*constructor.parameters.values()][1:])

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Store the constructor's arguments for pickling."""
        if "name" in kwargs and "name" not in signature(cls.__init__).parameters:
            requirement = "left out: engines find variables by name"
            raise argument_error("name", cls.__name__, requirement, repr(kwargs["name"]))
        model = super().__new__(cls)
        # The caller may change labels in place; kernels are too large for a copy.
        own = {k: v if k == "kernels" else deepcopy(v) for k, v in kwargs.items()}
        model._arguments = (*args[:1], *map(deepcopy, args[1:])), own
        return model

    def __init__(self, coords: Mapping[str, Any] | None = None):
        super().__init__()
        self.str_repr = MethodType(printed, self)
        self._repr_latex_ = MethodType(partial(printed, formatting="latex"), self)
        if self.parent is not None:
            raise ValueError(
                f"A {type(self).__name__} must be declared outside of any other model: its engines "
                "know only its own variables. Declare it first and add variables to it in 'with "
                "model:', or leave the with-block of the other model."
            )
        self.add_coords(coords)

    @classmethod
    def example(cls) -> Self:
        """Smallest instance that every engine can fit."""
        raise NotImplementedError(f"{cls.__name__} has no example.")

    @property
    def variant(self) -> str:
        """Options, and numbers and priors other than the defaults, which results store."""
        defaults = {p.name: p.default for p in type(self).__signature__.parameters.values()}
        return ", ".join([*self._options(), *_changed(self._given(), defaults)])

    def _options(self) -> list[str]:
        """Options of the declaration that tell variants apart."""
        return []

    def _given(self) -> dict[str, Any]:
        """Arguments of the constructor by name."""
        args, kwargs = self._arguments
        return type(self).__signature__.bind(*args, **kwargs).arguments

    def add_kernels(self, stack: xr.DataArray) -> None:
        """Add the coords of a stack, and keep what tells whether new kernels are computed alike."""
        self.origin = stack["kernel"].attrs
        self.add_coords({dim: stack[dim].values for dim in DIMS})

    def seal(self) -> None:
        """Record the declared terms, so that hand-written engines can refuse an amended model.

        ValueError when it is sealed: a second seal would hide what was added after the first.
        """
        if "_declared" in self.__dict__:
            raise ValueError(
                f"{type(self).__name__} is sealed by its own constructor. Terms that are "
                "added afterwards amend the model, and engines written for it refuse it; leave out "
                "seal()."
            )
        self._declared = self._terms()
        self._named = frozenset(self.named_vars)
        self._starts = list(self.rvs_to_initial_values.values())
        own = vars(self).keys() - vars(pm.Model(name="", model=None)).keys()
        self._fixed = frozenset(name for name in own if not name.startswith("_"))
        self._data = {str(data.name): data.get_value(borrow=True) for data in self.data_vars}

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_fixed", ()):
            raise AttributeError(
                f"{name} of a {type(self).__name__} is fixed by its declaration: declare a new "
                "model."
            )
        super().__setattr__(name, value)

    def kernel_values(self) -> np.ndarray:
        """Kernels (kernel, obs, basis) that are data now, read-only; ValueError for others."""
        if reason := self.kernel_source.not_data:
            raise ValueError(reason)
        values = self["K"].get_value(borrow=True).view()
        values.flags.writeable = False
        return values

    def check_data(self) -> None:
        """Raise ValueError if ``pm.set_data`` set numbers or kernels that no engine should read.

        Numbers must be finite and at most 1e60 in size. Matrices whose rows and columns have the
        same labels must still be symmetric or positive semidefinite if they were when the model was
        declared. New matrices cost O(n^3), unchanged data nothing.
        """
        self.amendments()  # raises for a model that is not sealed
        self.check_stand_ins()
        for data in self.data_vars:
            name = str(data.name)
            now = data.get_value(borrow=True)
            then = self._data.get(name, now)
            if now is then or now.dtype.kind != "f":
                continue
            # PyMC masks NaN.
            check_unmasked(now, name, "pm.set_data")
            check_finite(now, name, "pm.set_data")
            # As when the model was declared: squares of squares overflow at 1e77.
            if (size := float(np.abs(now).max(initial=0.0))) > LARGEST_ENTRY:
                rule = f"at most {LARGEST_ENTRY:g} in size: rescale it"
                raise argument_error(name, "pm.set_data", rule, f"an entry of {size:.3g}")
            if now.ndim < 2:
                continue
            rows, columns = self.named_vars_to_dims[name][-2:]
            if not np.array_equal(self.coords[rows], self.coords[columns]):
                continue
            was = then[None] if then.ndim == 2 else then
            for i, matrix in enumerate(now[None] if now.ndim == 2 else now):
                entry = name if now.ndim == 2 else f"{name}[{i}]"
                _check_as_before(was[min(i, len(was) - 1)], matrix, entry)

    def check_stand_ins(self) -> None:
        """Raise ValueError if ``pm.set_data`` has changed data that stand for kernels."""
        for name, values in self.kernel_source.stand_ins.items():
            if not np.array_equal(self[name].get_value(borrow=True), values):
                raise ValueError(
                    f"pm.set_data has changed {name}, which stands for kernels as they were "
                    "declared: declare a new model for other kernels."
                )

    def copied(self) -> Self:
        """Independent copy with the current data, whose data can be set without changing these."""
        reduced = self.__reduce_ex__(2)
        if isinstance(reduced, tuple) and reduced[0] is _redeclared:
            return _redeclared(*reduced[1])
        return cloudpickle.loads(cloudpickle.dumps(self))

    def redeclared(self, **changes: Any) -> Self:
        """Declare the model again with other arguments, and without its amendments.

        Data that ``pm.set_data`` has changed keep their values, unless `changes` gives the kernels.

        Examples
        --------
        >>> wider = kz.MultinomialProbit.example().redeclared(upsilon=100.0)
        """
        data = {} if "kernels" in changes else self._changed_data()
        return _redeclared(type(self), (), self._given() | changes, data, dict(self.coords))

    def _changed_data(self) -> dict[str, np.ndarray]:
        """Give the data that ``pm.set_data`` has replaced."""
        now = {str(data.name): data.get_value(borrow=True) for data in self.data_vars}
        return {name: values for name, values in now.items() if values is not self._data[name]}

    def as_data(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return what the data keep of a simulated value of an observed variable; here all."""
        return value

    def amendments(self) -> list[str]:
        """Names of the terms added to or taken from the declaration since it was sealed."""
        if "_declared" not in self.__dict__:
            raise ValueError(f"The constructor of {type(self).__name__} must end with self.seal().")
        return sorted(self._terms() ^ self._declared)

    @override
    def __copy__(self) -> Self:
        # PyMC's copy would be no declaration.
        return self.copied()

    @override
    def __deepcopy__(self, memo: Any) -> Self:
        return self.copied()

    @override
    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        if not hasattr(self, "_declared") or _AMENDED.get() is self:
            return super().__reduce_ex__(protocol)
        if self._is_more_than_declared():
            # Variables that PyMC adds have methods without a name, which pickle does not take.
            token = _AMENDED.set(self)
            try:
                return cloudpickle.loads, (cloudpickle.dumps(self),)
            finally:
                _AMENDED.reset(token)
        # Unchanged arrays follow from the constructor's arguments.
        data = self._changed_data()
        coords = dict(self.coords)
        return _redeclared, (type(self), *self._arguments, data, coords)

    def _is_more_than_declared(self) -> bool:
        """Whether variables, data or initial values differ from those of a new declaration."""
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
        return compile_initial_point(
            self, overrides or {}, jitter_rvs or (), return_transformed=return_transformed
        )

    def _terms(self) -> frozenset[str]:
        terms = [*self.free_RVs, *self.observed_RVs, *self.potentials]
        return frozenset(str(term.name) for term in terms)


class CompositeDeclaration(Declaration):
    """Base class of models on several kernels, which a rule with weights combines.

    A constructor calls `read_kernels`, and declares in ``with self:`` the data ``K`` with dims
    ("kernel", "obs", "basis"), the weights ``beta = self.combination.declare()`` and the composite
    kernel ``self.combination.combine(K, beta)``. A classifier is a `LabelledDeclaration`.

    Attributes
    ----------
    combination : Combination
        Rule in use. That of a single kernel has the fixed weight 1, and ``beta`` is data.
    rules : mapping of str to type, class attribute
        Rules that the argument `combination` may name. Default: none.
    any_rule : bool, class attribute
        Whether the model takes rules other than these. Default: yes.
    any_source : bool, class attribute
        Whether the model takes kernels with parameters to learn and completed kernels, whose draws
        its engines and predictions must then read. Default: no.
    takes : str, class attribute
        The rules in words, for the message that refuses another.

    Examples
    --------
    >>> class OnKernels(kz.models.CompositeDeclaration):
    ...     def __init__(self, kernels, combination=kz.combinations.Mean()):
    ...         super().__init__()
    ...         stack = self.read_kernels(kernels, combination)
    ...         with self:
    ...             K = pm.Data("K", stack.values, dims=stack.dims)
    ...             beta = self.combination.declare()
    ...             f = self.combination.combine(K, beta) @ pm.Normal("alpha", dims="basis")
    """

    rules: ClassVar[Mapping[str, type[Combination]]] = MappingProxyType({})
    any_rule: ClassVar[bool] = True
    any_source: ClassVar[bool] = False
    takes: ClassVar[str] = "a rule such as kz.combinations.Mean()"

    combination: Any

    def read_kernels(
        self, kernels: Any, combination: str | Combination, scale: float = 1.0
    ) -> xr.DataArray:
        """Check kernels and rule, and add the coords "kernel", "obs" and "basis".

        Parameters
        ----------
        kernels : DataArray, dict of 2-D arrays, array
            The constructor's argument.
        combination : str or Combination
            The rule, or a name in `rules`; as the attribute `combination` it has its numbers in the
            order of the kernels.
        scale : float, default=1
            Prior scale of the regressors, by which kernels of negligible size are warned of.

        Returns
        -------
        DataArray (kernel, obs, basis)
            The kernels.

        Raises
        ------
        ValueError
            For kernels that `as_stack` refuses, also where their ids disagree, and for kernels and
            rules that the model does not take.
        """
        owner = type(self).__name__
        stack, self.kernel_source = self._stack_and_source(kernels)
        if not self.any_source and self.kernel_source is not IN_MEMORY:
            requirement = "complete, in memory and without parameters to learn"
            raise argument_error("kernels", owner, requirement, type(self.kernel_source).__name__)
        if isinstance(combination, str) and self.rules:
            check_name(combination, self.rules, "combination", owner)
            combination = self.rules[combination]()
        rule: Any = combination
        known = isinstance(rule, tuple(self.rules.values()))
        other = hasattr(rule, "declare") and not isinstance(rule, type)
        if not (known or (self.any_rule and other)):
            raise argument_error("combination", owner, self.takes, repr(rule))
        self.combination = rule.for_kernels(stack["kernel"].values)
        for each in self.kernel_source.stacks(stack):
            self.combination.check(each)
        # Of kernels in chunks, warnings would take a pass. Widths that are learned will change.
        if (source := self.kernel_source).in_memory:
            warn_of_negligible(stack, owner, scale)
            fixed = source.fixed if isinstance(source, ParametricStack) else stack
            warn_of_near_identity(fixed, owner)
        self.add_kernels(stack)
        return stack

    def _stack_and_source(self, kernels: Any) -> tuple[xr.DataArray, KernelSource]:
        """Check kernels in any form, which must be in memory, and find out where they come from."""
        return read_kernels(kernels, type(self).__name__)

    @override
    def _options(self) -> list[str]:
        rule = type(self.combination)
        values = getattr(self.combination, "__dict__", {})
        return [rule.__name__, *_changed(values, vars(rule))]

    @property
    def learned(self) -> bool:
        """Whether the weights of the kernels are random variables."""
        return self["beta"] not in self.data_vars


class LabelledDeclaration(CompositeDeclaration):
    """Base class of classifiers on several kernels: a `CompositeDeclaration` with classes.

    A constructor calls `read_labels` after `read_kernels`, and declares the codes that it returns
    as the data ``labels`` with dim "obs". Engines read the current codes in `label_codes`.

    Examples
    --------
    >>> class Classifier(kz.models.LabelledDeclaration):
    ...     def __init__(self, kernels, labels, *, classes=None):
    ...         super().__init__()
    ...         stack = self.read_kernels(kernels, kz.combinations.Mean())
    ...         codes = self.read_labels(labels, classes, stack)
    >>> Classifier(kernels(X_train), y_train).coords["class"]
    """

    def read_labels(
        self, labels: Any, classes: Sequence[Hashable] | None, stack: xr.DataArray
    ) -> np.ndarray:
        """Check the labels of the objects, and add the coord "class".

        Parameters
        ----------
        labels : array_like, Series or DataArray (obs,)
            The constructor's argument. Labels with ids are brought into the order of the kernels'.
        classes : sequence or None
            Classes in the order of their codes. None: the distinct labels, sorted, or in the order
            of an ordered Categorical.
        stack : DataArray (kernel, obs, basis)
            What `read_kernels` returned.

        Returns
        -------
        array of int (obs,)
            Codes 0 to C - 1.

        Raises
        ------
        ValueError
            For labels of one class, of other ids or of another number than the objects.
        """
        owner = type(self).__name__
        labels = aligned(labels, ids_along(stack, "obs"), "labels", owner)
        n_objects = stack.sizes["obs"]
        codes, known = check_labels(labels, "labels", owner, classes=classes, n_objects=n_objects)
        self.add_coord("class", known)
        return codes

    @property
    def label_codes(self) -> np.ndarray:
        """Current class codes, int array (obs,); ValueError unless they are in 0..C-1."""
        return check_codes(self["labels"].get_value(), self.n_classes, type(self).__name__)

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return len(self.coords["class"])


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Numbers, flags and priors that differ from their defaults, as text."""
    told = {name: value for name, value in values.items() if isinstance(value, Real | LearnedScale)}
    return [f"{name}={value}" for name, value in told.items() if value != defaults.get(name)]


def _check_as_before(then: np.ndarray, now: np.ndarray, argument: str) -> None:
    """Raise unless a matrix is symmetric and positive semidefinite as far as another one is."""
    for check in (check_square_symmetric, check_psd):
        try:
            check(then, argument, "pm.set_data")
        except ValueError:
            return
        check(now, argument, "pm.set_data")


def _redeclared[M: Declaration](
    cls: type[M],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    data: Mapping[str, Any],
    coords: Mapping[str, Any],
) -> M:
    """Call the constructor again and restore the data that were set since."""
    # The first declaration has issued the warnings.
    with silent():
        model = cls(*args, **kwargs)
    for name, values in data.items():
        dims = model.named_vars_to_dims.get(name, ())
        labels = {dim: coords[dim] for dim in dims if coords[dim] is not None}
        relabelled = any(not np.array_equal(new, model.coords[dim]) for dim, new in labels.items())
        if relabelled or not np.array_equal(values, model[name].get_value(borrow=True)):
            pm.set_data({name: values}, model=model, coords=labels)
    return model


def source_of(model: pm.Model) -> KernelSource:
    """Where the kernels of a model come from; any model of PyMC has its data in memory."""
    return getattr(model, "kernel_source", IN_MEMORY)


def family(model: pm.Model) -> str:
    """Name of the paper's model that `model` is or inherits from, otherwise of its own class."""
    for ancestor in reversed(type(model).__mro__):
        # Bases that several papers share have no constructor.
        below = issubclass(ancestor, Declaration) and ancestor is not Declaration
        if below and "__init__" in vars(ancestor):
            return ancestor.__name__
    return type(model).__name__
