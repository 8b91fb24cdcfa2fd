"""Engines with one implementation per paper, which dispatch on the type of the model.

An engine's fields are the settings of all its implementations. The keyword arguments of a
registered function are the settings on that model, and their defaults those on the model.
"""

import inspect
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import singledispatch
from typing import Any, ClassVar, override

import pymc as pm

from ...models.declaration import Declaration
from ...validation import check_arguments, check_name
from .applicability import setting_of_no_use
from .cost import Cost, Stopwatch, peak_of_memory, timed
from .deadline import OutOfTime
from .engine import Engine, Run
from .outputs import ExactOutput, VariationalOutput

__all__ = ["Handwritten", "Implementation"]


# Usual number of steps of a loop, if nothing else is known.
USUAL = 100
# Number of draws that are timed.
FEW = 10


@singledispatch
def seconds_of_draws(output: Any, run: Run) -> float:
    """Seconds that an output's draws take; 0 for a point, which has no draws."""
    return 0.0


@seconds_of_draws.register
def _(output: VariationalOutput | ExactOutput, run: Run) -> float:
    few = min(FEW, run.draws)
    seconds, _ = timed(lambda: output.sample(few, run.rng()))
    return seconds * run.draws / few


@dataclass(frozen=True)
class Implementation:
    """A function that implements a handwritten engine for a type of model."""

    model_type: type[pm.Model]
    function: Callable[..., Any]
    unless: Callable[[Any], str | None]
    in_blocks: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the function, with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def why_not(self, model: pm.Model) -> str | None:
        """Why the function does not apply to a model of its type; None when it does."""
        particular = isinstance(model, Declaration) and issubclass(self.model_type, Declaration)
        if particular and (amended := ", ".join(map(repr, model.amendments()))):
            return f"not available for {self.model_type.__name__} with added terms: {amended}"
        if particular and model.blocks is not None and not self.in_blocks:
            return "it needs the kernels in memory; compute() of their DataArray loads them"
        return self.unless(model)


@dataclass(frozen=True, kw_only=True, repr=False)
class Handwritten(Engine):
    """An engine with one implementation per type of model.

    A model gets the applicable implementation of its own type or else of its nearest ancestor. A
    setting that keeps its field's default takes the implementation's default.
    """

    _implementations: ClassVar[dict[type[pm.Model], Implementation]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Handwritten in cls.__bases__:
            cls._implementations = {}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

    @classmethod
    def register[F: Callable[..., Any]](
        cls,
        model_type: type[pm.Model],
        *,
        unless: Callable[[Any], str | None] = lambda model: None,
        in_blocks: bool = False,
    ) -> Callable[[F], F]:
        """Register the function that implements this engine for `model_type`.

        The function takes (model, run) and the settings as keywords. `unless` returns why the
        function does not apply to a model of the type, for instance a prior without a closed form,
        or None. `in_blocks` says whether it reads kernels that stay in blocks (`StackInBlocks`).
        """

        def decorate(function: F) -> F:
            cls._implementations[model_type] = Implementation(
                model_type, function, unless, in_blocks
            )
            return function

        return decorate

    @property
    def given(self) -> dict[str, Any]:
        """Settings for the implementation: those that do not keep their field's default."""
        values = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default}

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return self.given

    def candidates(self, model: pm.Model) -> list[Implementation]:
        """List the implementations for the model's type and its ancestors, most specific first."""
        known = self._implementations
        return [known[ancestor] for ancestor in type(model).__mro__ if ancestor in known]

    def implementation(self, model: pm.Model) -> Implementation:
        """Most specific implementation that applies to the model, which must exist."""
        return next(each for each in self.candidates(model) if each.why_not(model) is None)

    @override
    def settings_on(self, model: pm.Model) -> dict[str, Any]:
        return self.implementation(model).settings | self.settings

    @override
    def why_not(self, model: pm.Model) -> str | None:
        reasons = [each.why_not(model) for each in self.candidates(model)]
        if not reasons:
            types = ", ".join(t.__name__ for t in self._implementations) or "no model yet"
            return f"not available for {type(model).__name__} (available for {types})"
        return None if None in reasons else reasons[0]

    def implement(self, model: pm.Model, run: Run) -> Any:
        """Call the implementation for the model with this engine's settings."""
        with run.clock.explained(f"for {self.name} to end: it keeps no part of a result here"):
            return self._called(model, run)

    @override
    def calibrate(self, model: pm.Model, run: Run) -> Cost:
        with peak_of_memory() as peak:
            self._watched(model, run, Stopwatch(first_only=True))
        start = time.perf_counter()
        watch = Stopwatch()
        output = self._watched(model, run, watch)
        spent = time.perf_counter() - start
        likely, most = watch.more(usual=USUAL)
        drawing = 0.0 if output is None else seconds_of_draws(output, run)
        measured = watch.measured or f"the whole of {self.name}"
        return Cost(spent + likely + drawing, spent + most + drawing, peak[0], measured)

    def _called(self, model: pm.Model, run: Run) -> Any:
        return self._checked(model).function(model, run, **self.given)

    def _watched(self, model: pm.Model, run: Run, watch: Stopwatch) -> Any:
        """Call the implementation with a stopwatch that ends its loops.

        None from an implementation that keeps no part of a result.
        """
        with warnings.catch_warnings(), suppress(OutOfTime):
            warnings.simplefilter("ignore")
            return self._called(model, replace(run, clock=watch, progressbar=False))
        return None

    def _checked(self, model: pm.Model) -> Implementation:
        """Choose the implementation for the model; raise ValueError for unknown settings."""
        implementation = self.implementation(model)
        owner = f"{self.name} on {type(model).__name__}"
        for setting in self.given:
            for passed in self.candidates(model):
                reason = passed.why_not(model)
                if reason and setting in passed.settings and setting not in implementation.settings:
                    raise setting_of_no_use(setting, owner, reason)
            check_name(setting, implementation.settings, "settings", owner)
        check_arguments(implementation.function, self.given, owner)
        return implementation
