"""Which engines apply to a model, and the reasons why others do not."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import TYPE_CHECKING, Any, get_args
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...models.declaration import Declaration, source_of
from ...validation import argument_error, check_name
from .engine import Engine, Kind
from .same_model import check_model

__all__ = [
    "EngineRow",
    "EngineTable",
    "PrintedTable",
    "applicable",
    "as_engine",
    "checked_model",
    "coordinates",
    "dask_kernels",
    "discrete_variables",
    "engines",
    "setting_of_no_use",
    "small_only",
    "too_large",
    "unknown_combination",
]

# A matrix over this many coordinates takes 0.8 GB.
LARGEST_DIMENSION = 10_000

# The count takes a compilation. By model: the shapes it was made for, and the count.
_COORDINATES: WeakKeyDictionary[pm.Model, tuple[object, int]] = WeakKeyDictionary()


def discrete_variables(model: pm.Model) -> str | None:
    """Why an engine that needs gradients does not apply; None when every variable has one."""
    if reason := dask_kernels(model):
        return reason
    names = [rv.name for rv in model.discrete_value_vars]
    return f"it needs gradients; {', '.join(names)} is discrete" if names else None


def dask_kernels(model: pm.Model) -> str | None:
    """Why an engine other than VB does not apply to kernels in a Dask array; None in memory."""
    if source_of(model).in_memory:
        return None
    return "it needs the kernels in memory; compute() of their DataArray loads them"


def too_large(model: pm.Model) -> str | None:
    """Why an engine with a matrix over all coordinates does not apply; None when it fits."""
    size = coordinates(model)
    if size <= LARGEST_DIMENSION:
        return None
    return (
        f"it needs a matrix over the model's {size:,} coordinates; it does at most "
        f"{LARGEST_DIMENSION:,}"
    )


def coordinates(model: pm.Model) -> int:
    """Count the unconstrained coordinates of a model."""
    shapes = tuple(data.get_value(borrow=True).shape for data in model.data_vars)
    known, size = _COORDINATES.get(model, (None, 0))
    if known != (shapes, len(model.free_RVs)):
        size = sum(np.size(value) for value in model.initial_point().values())
        _COORDINATES[model] = (shapes, len(model.free_RVs)), size
    return size


def small_only(model: pm.Model, most: int | None) -> str | None:
    """Advice against an engine that serves fewer coordinates than the model has, or None."""
    if most is None or (size := coordinates(model)) <= most:
        return None
    return f"small n only: the model has {size:,} coordinates; it serves about {most:,}"


def setting_of_no_use(setting: str, owner: str, reason: str) -> ValueError:
    """Make the error for a setting of an algorithm that does not apply to the model."""
    return ValueError(
        f"The setting {setting!r} of {owner} is one of an algorithm that does not apply: {reason}."
    )


def unknown_combination(model: Any, rules: Iterable[type], others: str = "") -> str | None:
    """Why an algorithm that knows some rules of combination does not apply to the model's, or None.

    `others` names, for the message, further rules that it takes.
    """
    rules, name = tuple(rules), type(model.combination).__name__
    if not isinstance(model.combination, rules):
        names = ", ".join(each.__name__ for each in rules)
        return f"it knows the combinations {names}{others}, not {name}"
    if "beta" in {variable.name for variable in model.deterministics}:
        return f"it draws the weights beta themselves; {name} declares them as a Deterministic"
    return None


if TYPE_CHECKING:
    import pandas as pd


class PrintedTable(ABC):
    """Base of the answers that print as a table with a heading, in a console and in Jupyter."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Heading of the printed table."""

    @abstractmethod
    def to_frame(self) -> "pd.DataFrame":
        """Table with one row per engine."""

    def table(self, *, without: Sequence[str] = ()) -> Table:
        """Table for `rich`, without the columns named."""
        frame = self.to_frame().drop(columns=list(without))
        table = Table(title=self.title)
        for column in frame.columns:
            table.add_column(column, overflow="fold")
        for row in frame.itertuples(index=False):
            # Without `escape`, rich would read an extra in square brackets as markup.
            table.add_row(*map(escape, row))
        return table

    def __rich__(self) -> Table:
        return self.table()

    def __repr__(self) -> str:
        console = Console(width=100, force_terminal=False, force_jupyter=False, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    def _repr_html_(self) -> str:
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            return f"<p>{escape_html(self.title)}</p>{self.to_frame().to_html(index=False)}"


@dataclass(frozen=True)
class EngineRow:
    """One engine on one model. `reason` is None if it applies, `advice` if it suits the size."""

    engine: str
    kind: str
    reason: str | None
    settings: dict[str, Any]
    advice: str | None = None


@dataclass(frozen=True, repr=False)
class EngineTable(PrintedTable):
    """Engines for a model, which apply and why others do not; prints as a table."""

    model: str
    rows: tuple[EngineRow, ...]

    @property
    def title(self) -> str:
        """Heading of the printed table."""
        return f"Engines for {self.model}"

    def to_frame(self) -> "pd.DataFrame":
        """Table with one row per engine."""
        import pandas as pd

        return pd.DataFrame(
            [
                (
                    row.engine,
                    row.kind,
                    row.reason or row.advice or "yes",
                    ", ".join(f"{k}={v!r}" for k, v in row.settings.items()),
                )
                for row in self.rows
            ],
            columns=["engine", "kind", "applies", "settings"],
        )


def as_engine(engine: str | Engine, owner: str = "fit") -> Engine:
    """Make an engine from its name in any case ("vb", "gibbs", "nuts", ...) or its class."""
    if isinstance(engine, Engine):
        return engine
    if isinstance(engine, type) and issubclass(engine, Engine):
        return engine()
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


def applicable(model: pm.Model, engine: str | Engine, owner: str) -> Engine:
    """Engine by its name or as given; raise ValueError unless it applies to the model."""
    checked_model(model, owner)
    engine = as_engine(engine, owner)
    if reason := engine.why_not(model):
        others = [row.engine for row in engines(model).rows if row.reason is None]
        raise ValueError(
            f"{engine.name} does not apply: {reason}. Engines that do: {', '.join(others)}."
        )
    return engine


def engines(model: pm.Model) -> EngineTable:
    """List every engine, with "yes" or the reason why it does not apply to the model.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    EngineTable
        Prints as a table; ``.rows`` holds the entries.

    Notes
    -----
    "Small n only" is advice: the engine runs, but the model has more unconstrained coordinates than
    the engine serves in practice. The limits are about 2,000 for NUTS (whose trajectories lengthen
    with the dimension), Pathfinder and Laplace (two gradients per coordinate), 5,000 for ADVI
    (thousands of noisy steps), 10,000 for MAP by gradients, and 50 for SMC (whose particles do not
    cover more).

    Examples
    --------
    >>> kz.engines(model)
    """
    check_model(model, "engines")
    rows = []
    kinds = get_args(Kind)
    for cls in sorted(Engine.registry.values(), key=lambda c: (kinds.index(c.kind), c.name)):
        engine = cls()
        reason = engine.why_not(model)
        settings = engine.settings_on(model) if reason is None else engine.settings
        advice = small_only(model, engine.serves(model)) if reason is None else None
        rows.append(EngineRow(engine.name, engine.kind, reason, settings, advice))
    return EngineTable(type(model).__name__, tuple(rows))
