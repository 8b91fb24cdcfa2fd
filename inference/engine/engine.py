"""What an engine is, the arguments of one call of `fit`, and why engines do not apply to a model.

An engine's constructor takes the settings of the algorithm, which are dataclass fields checked by
their annotations; `run` takes model, draws, chains and seed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, is_dataclass
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from pytensor.tensor import TensorVariable
from xarray import DataTree

from ...models.declaration import Declaration, source_of
from ...validation import argument_error, check_arguments, check_name
from .progress import Clock, ProgressBar, track
from .provenance import check_model

Kind = Literal["exact", "mcmc", "vb", "point"]

# Steps of a loop that does not say how many are usual.
USUAL_STEPS = 100
# A matrix over this many coordinates takes 0.8 GB.
LARGEST_DIMENSION = 10_000
# Some counts take a compilation. By model: the shapes they were made for, and the count.
_COORDINATES: WeakKeyDictionary[pm.Model, tuple[object, int]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Run:
    """Arguments of one call of `fit`, for the engine."""

    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    cores: int | None = None
    random_seed: int = 0
    progressbar: bool = True
    var_names: tuple[str, ...] | None = None
    moments: tuple[str, ...] | None = None
    store: Path | None = None
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    log_likelihood: bool = False
    #: The only one of the chains to sample; None for all.
    chain: int | None = None

    def rng(self, stream: int = 0) -> np.random.Generator:
        """Make a generator from the seed; different streams are independent."""
        return np.random.default_rng([self.random_seed, stream])

    def kept(self, model: pm.Model) -> list[str]:
        """Names of the variables whose draws the result keeps."""
        if self.var_names is not None:
            return list(self.var_names)
        return [name for name in variables_drawn(model) if name not in getattr(model, "large", ())]

    def streamed(self, model: pm.Model) -> list[str]:
        """Names of the variables whose moments are accumulated draw by draw."""
        return list(getattr(model, "streamed", ()) if self.moments is None else self.moments)

    def track(
        self, total: int | None, description: str, *, usual: int | None = None
    ) -> AbstractContextManager[ProgressBar]:
        """Progress bar whose `advance` raises `OutOfTime` when the time of the fit is over.

        That is a KeyboardInterrupt: a loop that survives Ctrl-C also survives `max_seconds`.
        `usual` is the usual number of steps of an iteration that may take `total`.
        """
        after = self.clock.loop(usual or min(total or USUAL_STEPS, USUAL_STEPS))
        return track(total, description, visible=self.progressbar, after=after)


def variables_drawn(model: pm.Model) -> list[str]:
    """Names of the variables that an engine draws."""
    return [str(variable.name) for variable in (*model.free_RVs, *model.deterministics)]


class Engine(ABC):
    """Inference algorithm with a name, a kind, settings and a method `run`."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    #: What the engine's result hides or costs, in one sentence for `recommend`.
    limits: ClassVar[str]
    #: Largest number of coordinates that the engine serves in practice; None for any number.
    largest: ClassVar[int | None] = None
    #: Whether the engine can write its draws to a store while it makes them.
    stores: ClassVar[bool] = False
    #: Whether the engine is written for models of this package, and not for any PyMC model.
    own: ClassVar[bool] = False
    #: Whether points of an approximation are weighted to the posterior.
    weighted: ClassVar[bool] = False
    registry: ClassVar[dict[str, type["Engine"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            if cls.name.lower() in Engine.registry:
                raise TypeError(f"An engine of the name {cls.name!r} exists.")
            Engine.registry[cls.name.lower()] = cls

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Refuse an unknown setting, with the nearest one."""
        for name in settings:
            check_name(name, signature(cls).parameters, "settings", cls.name)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_arguments(type(self), vars(self))

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the algorithm, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}

    def settings_on(self, model: pm.Model) -> dict[str, Any]:
        """Give the settings in force on a model, defaults included.

        The engine applies to the model. ValueError for settings that do not.
        """
        return self.settings

    def explained_by(self, model: pm.Model) -> object:
        """Object whose docstring explains the settings on a model."""
        return type(self)

    def sampler_arguments(self) -> frozenset[str]:
        """Names of the arguments that `fit` passes on to PyMC's sampler, if the engine uses one."""
        return frozenset()

    def why_no_time_limit(self) -> str | None:
        """Why `max_seconds` of `fit` cannot end the engine; None when it can."""
        return None

    @abstractmethod
    def why_not(self, model: pm.Model) -> str | None:
        """Why the engine does not apply to the model; None when it does."""

    @abstractmethod
    def run(self, model: pm.Model, run: Run) -> DataTree:
        """Return a DataTree with "posterior"; `fit` has checked `why_not`, and stamps it."""


def every_engine() -> list[Engine]:
    """Make every engine with its default settings, by kind and name."""
    kinds = get_args(Kind)
    classes = sorted(Engine.registry.values(), key=lambda cls: (kinds.index(cls.kind), cls.name))
    return [cls() for cls in classes]


def engines_for(model: pm.Model) -> list[Engine]:
    """Make the engines that apply to a model, by kind and name."""
    return [engine for engine in every_engine() if engine.why_not(model) is None]


def small_only(model: pm.Model, engine: Engine) -> str | None:
    """Say that an engine serves fewer coordinates than the model has, or None."""
    if engine.largest is None or (size := coordinates(model)) <= engine.largest:
        return None
    return f"the model has {size:,} coordinates; it serves about {engine.largest:,}"


def by_preference(model: pm.Model) -> list[Engine]:
    """Make the engines that apply to a model, in the order in which they are recommended.

    Those that serve models of this size come before the others; independent draws, then weighted
    points, chains, other approximations and points; engines written for the model before those for
    any.
    """
    kinds = get_args(Kind)

    def place(engine: Engine) -> tuple[bool, float, bool]:
        # Weighted points come between independent draws and chains.
        kind = kinds.index("exact") + 0.5 if engine.weighted else kinds.index(engine.kind)
        return small_only(model, engine) is not None, kind, not engine.own

    return sorted(engines_for(model), key=place)


def as_engine(engine: str | Engine, owner: str = "fit") -> Engine:
    """Make an engine from its name in any case ("vb", "gibbs", "nuts", ...)."""
    if isinstance(engine, Engine):
        return engine
    if isinstance(engine, type):
        raise argument_error("engine", owner, f"an engine: {engine.__name__}()", "its class")
    name = str(engine).lower()
    if name in ("hmc", "mcmc"):
        raise argument_error("engine", owner, "the name of an engine, here 'nuts'", repr(name))
    return Engine.registry[check_name(name, Engine.registry, "engine", owner)]()


def checked_model(model: pm.Model, owner: str) -> pm.Model:
    """Model as given; raise TypeError or ValueError unless it is one with data that fit it."""
    check_model(model, owner)
    if isinstance(model, Declaration):
        model.check_data()
    return model


def applicable(model: pm.Model, engine: str | Engine | None, owner: str) -> Engine:
    """Engine by its name, as given or the recommended one; raise ValueError unless it applies."""
    checked_model(model, owner)
    if engine is None:
        recommended = by_preference(model)
        if not recommended:
            raise ValueError(f"No engine applies to this model. {owner} takes one of your own.")
        return recommended[0]
    engine = as_engine(engine, owner)
    if reason := engine.why_not(model):
        others = ", ".join(other.name for other in engines_for(model))
        raise ValueError(f"{engine.name} does not apply: {reason}. Engines that do: {others}.")
    # Wrong settings are refused before the work begins.
    engine.settings_on(model)
    return engine


def why_no_gradients(model: pm.Model) -> str | None:
    """Why an engine that needs gradients does not apply; None when every variable has one."""
    if reason := why_not_in_memory(model):
        return reason
    names = [rv.name for rv in model.discrete_value_vars]
    return f"it needs gradients; {', '.join(names)} is discrete" if names else None


def why_not_in_memory(model: pm.Model) -> str | None:
    """Why what needs the kernels in memory does not apply to a model; None where they are."""
    if source_of(model).in_memory:
        return None
    return "it needs the kernels in memory; compute() of their DataArray loads them"


def too_large(model: pm.Model) -> str | None:
    """Why an engine with a matrix over all coordinates does not apply; None when it fits."""
    if (size := coordinates(model)) <= LARGEST_DIMENSION:
        return None
    does = f"it does at most {LARGEST_DIMENSION:,}"
    return f"it needs a matrix over the model's {size:,} coordinates; {does}"


def coordinates(model: pm.Model) -> int:
    """Count the unconstrained coordinates of a model."""
    shapes = tuple(data.get_value(borrow=True).shape for data in model.data_vars)
    known, size = _COORDINATES.get(model, (None, 0))
    if known != (shapes, len(model.free_RVs)):
        sizes = [_size_by_dims(model, rv) for rv in model.free_RVs]
        if not all(sizes):
            sizes = [np.size(value) for value in model.initial_point().values()]
        size = sum(sizes)
        _COORDINATES[model] = (shapes, len(model.free_RVs)), size
    return size


def _size_by_dims(model: pm.Model, rv: TensorVariable) -> int:
    """Size of a variable's unconstrained value; 0 where shape and dims do not tell it."""
    shape = model.rvs_to_values[rv].type.shape
    if None not in shape:
        return prod(shape)
    labels = [model.coords.get(dim) or () for dim in model.named_vars_to_dims.get(rv.name, ())]
    reshaped = getattr(model.rvs_to_transforms[rv], "ndim_supp", 0)
    return prod(map(len, labels)) if labels and not reshaped else 0


def unknown_combination(model: Any, rules: Iterable[type], others: str = "") -> str | None:
    """Why an algorithm that knows some rules, and `others`, does not apply to a model, or None."""
    rules = tuple(rules)
    name = type(model.combination).__name__
    if not isinstance(model.combination, rules):
        names = ", ".join(each.__name__ for each in rules)
        return f"it knows the combinations {names}{others}, not {name}"
    if "beta" in {variable.name for variable in model.deterministics}:
        return f"it draws the weights beta themselves; {name} declares them as a Deterministic"
    return None
