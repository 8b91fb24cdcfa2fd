"""Tables of engines: which apply to a model, and why others do not."""

from dataclasses import dataclass
from html import escape as escape_html
from math import isnan

import pandas as pd
import pymc as pm
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .engine import Engine, coordinates, every_engine
from .provenance import check_model


@dataclass(frozen=True, repr=False)
class EngineTable:
    """A titled frame with one row per engine, printed whole in a console and in Jupyter."""

    title: str
    frame: pd.DataFrame

    def __repr__(self) -> str:
        table, cells = Table(title=self.title), self._cells()
        for column in cells.columns:
            table.add_column(column, overflow="fold")
        for row in cells.itertuples(index=False):
            # Without `escape`, rich would read an extra in square brackets as markup.
            table.add_row(*map(escape, row))
        console = Console(width=100, force_terminal=False, force_jupyter=False, color_system=None)
        with console.capture() as capture:
            console.print(table)
        return capture.get().rstrip()

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            html = self._cells().to_html(index=False)
        return f"<p>{escape_html(self.title)}</p>{html}"

    def _cells(self) -> pd.DataFrame:
        return self.frame.reset_index().map(_cell)


def _cell(value: object) -> str:
    """Text of a cell: seconds in a readable unit, settings as they are written in a call."""
    if isinstance(value, float):
        return "not measured" if isnan(value) else span(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={setting!r}" for name, setting in value.items())
    return str(value)


def engines(model: pm.Model) -> EngineTable:
    """List every engine, whether it applies to the model, and why not.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    EngineTable
        Prints as a table; ``.frame`` has, by engine, the columns kind, applies ("yes", "small n" or
        "no"), reason ("" for "yes") and settings (dict).

    Notes
    -----
    "small n" is advice: the engine runs, but the model has more unconstrained coordinates than the
    engine serves in practice, about 2,000 for NUTS, Pathfinder and Laplace, 5,000 for ADVI, 10,000
    for MAP by gradients, and 50 for SMC.

    Examples
    --------
    >>> table = kz.engines(model)
    >>> [*table.frame.query("applies != 'no'").index]
    """
    check_model(model, "engines")
    rows = []
    for engine in every_engine():
        reason = engine.why_not(model)
        if reason is not None:
            applies, settings = "no", engine.settings
        else:
            reason, settings = small_only(model, engine), engine.settings_on(model)
            applies = "small n" if reason else "yes"
        rows.append((engine.name, engine.kind, applies, reason or "", settings))
    frame = pd.DataFrame(rows, columns=["engine", "kind", "applies", "reason", "settings"])
    return EngineTable(f"Engines for {type(model).__name__}", frame.set_index("engine"))


def small_only(model: pm.Model, engine: Engine) -> str | None:
    """Say that an engine serves fewer coordinates than the model has, or None."""
    most = engine.serves(model)
    if most is None or (size := coordinates(model)) <= most:
        return None
    return f"the model has {size:,} coordinates; it serves about {most:,}"


def span(seconds: float) -> str:
    """Seconds in the largest unit of which there are two or more."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
