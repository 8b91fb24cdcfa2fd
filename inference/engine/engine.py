"""Base class of the engines, and the arguments of one call of `fit`.

An engine's constructor takes the settings of the algorithm; `run` takes model, draws, chains and
seed. Settings are dataclass fields, checked by their annotations. Engines with one implementation
per paper (`VB`, `Gibbs`, ...) are a `PaperEngine`; the others (`NUTS`, ...) take any PyMC model.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode
from xarray import DataTree

from ...validation import check_arguments, check_name
from .clock import Clock, ProgressBar, track
from .compilation import mode_worth

__all__ = ["Engine", "Kind", "Run", "variables_drawn"]

Kind = Literal["exact", "mcmc", "vb", "point"]

# Steps of a loop that does not say how many are usual.
USUAL = 100


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
    mode: Mode | None = None
    clock: Clock = field(default_factory=Clock)
    log_likelihood: bool = False
    start: DataTree | None = None
    #: The only one of the chains to sample; None for all.
    chain: int | None = None

    @property
    def numbers(self) -> range:
        """Numbers of the chains to sample."""
        return range(self.chains) if self.chain is None else range(self.chain, self.chain + 1)

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
        if self.moments is not None:
            return list(self.moments)
        return list(getattr(model, "streamed", ()))

    def compile_kwargs(self, evaluations: float) -> dict[str, Any]:
        """PyMC's ``compile_kwargs`` for a density with about so many evaluations."""
        return {"mode": self.mode or mode_worth(evaluations)}

    @contextmanager
    def track(
        self,
        total: int | None,
        description: str,
        *,
        usual: int | None = None,
    ) -> Iterator[ProgressBar]:
        """Progress bar whose `advance` raises `OutOfTime` when the time of the fit is over.

        That is a KeyboardInterrupt: a loop that survives Ctrl-C also survives `max_seconds`.
        `usual` is the usual number of steps of an iteration that may take `total`.
        """
        after = self.clock.loop(usual or min(total or USUAL, USUAL))
        with track(total, description, visible=self.progressbar, after=after) as bar:
            yield bar


def variables_drawn(model: pm.Model) -> list[str]:
    """Names of the variables that an engine draws."""
    return [str(variable.name) for variable in (*model.free_RVs, *model.deterministics)]


class Engine(ABC):
    """Inference algorithm with a name, a kind, settings and a method `run`."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    #: What the engine's result hides or costs, in one sentence for `recommend`.
    limits: ClassVar[str]
    #: Whether the engine can write its draws to a store while it makes them.
    stores: ClassVar[bool] = False
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
        """Give the settings in force on a model, defaults included."""
        return self.settings

    def sampler_arguments(self) -> frozenset[str]:
        """Names of the arguments that `fit` passes on to PyMC's sampler, if the engine uses one."""
        return frozenset()

    def why_no_start(self) -> str | None:
        """Why the engine cannot begin at another engine's result; None when it can."""
        return "only Gibbs and NUTS have chains that begin at a point"

    def why_no_time_limit(self) -> str | None:
        """Why `max_seconds` of `fit` cannot end the engine; None when it can."""
        return None

    def serves(self, model: pm.Model) -> int | None:
        """Largest number of coordinates that the engine serves in practice; None for any number."""
        return None

    @abstractmethod
    def why_not(self, model: pm.Model) -> str | None:
        """Why the engine does not apply to the model; None when it does."""

    @abstractmethod
    def run(self, model: pm.Model, run: Run) -> DataTree:
        """Infer the model. `fit` has checked `why_not` before and stamps the result after."""
