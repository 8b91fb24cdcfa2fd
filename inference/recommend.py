"""Tables of engines: which apply to a model, why others do not, and which one is recommended."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape as escape_html
from typing import Literal

import pandas as pd
import pymc as pm
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from ..validation import check_name
from .engine.engine import Engine, Kind, applicable, by_preference, every_engine, small_only
from .engine.provenance import check_model

#: Why an engine is recommended, in the order of preference.
REASONS: dict[Kind | Literal["weighted"], str] = {
    "exact": "It draws independently from the posterior, so there is nothing to diagnose.",
    "weighted": (
        "It weights its points to the posterior, in the time of an approximation; read intervals "
        "if the result's 'pareto_k' is below 0.7."
    ),
    "mcmc": "It samples the posterior; read its intervals if the result's 'converged' is \"yes\".",
    "vb": "It approximates quickly; read intervals only if the result's 'pareto_k' is below 0.7.",
    "point": "It finds one point and says nothing about uncertainty.",
}


@dataclass(frozen=True, eq=False, repr=False)
class EngineTable:
    """A titled frame with one row per engine, printed whole in a console and in Jupyter.

    `explained_by` has the object whose docstring explains the settings, by engine.
    """

    title: str
    frame: pd.DataFrame
    explained_by: Mapping[str, object]

    def help(self, engine: str) -> None:
        """Explain the settings of an engine on the model, as Python's `help` does."""
        names = {name.lower(): name for name in self.explained_by}
        name = check_name(str(engine).lower(), names, "engine", "help")
        help(self.explained_by[names[name]])

    def __repr__(self) -> str:
        cells = self._cells()
        table = Table(*(Column(name, overflow="fold") for name in cells), title=self.title)
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
    """Text of a cell: settings as they are written in a call."""
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
        "no"), reason ("" for "yes") and settings (dict). ``.help("gibbs")`` explains the settings
        of an engine on this model.

    Notes
    -----
    "small n" is advice: the engine runs, but the model has more unconstrained coordinates than the
    engine serves in practice; the reason says how many.

    Examples
    --------
    >>> table = kz.engines(model)
    >>> [*table.frame.query("applies != 'no'").index]
    >>> table.help("gibbs")
    """
    check_model(model, "engines")
    rows = []
    explained_by = {}
    for engine in every_engine():
        reason = engine.why_not(model)
        if reason is not None:
            applies = "no"
            settings = engine.settings
        else:
            reason = small_only(model, engine)
            settings = engine.settings_on(model)
            explained_by[engine.name] = engine.explained_by(model)
            applies = "small n" if reason else "yes"
        rows.append((engine.name, engine.kind, applies, reason or "", settings))
    frame = pd.DataFrame(rows, columns=["engine", "kind", "applies", "reason", "settings"])
    title = f"Engines for {type(model).__name__}"
    return EngineTable(title, frame.set_index("engine"), explained_by)


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(EngineTable):
    """The recommended engine, for `fit`, with the table of all engines that apply."""

    engine: Engine


def recommend(model: pm.Model) -> Recommendation:
    """Recommend an engine for a model, and say what each one that applies hides or costs.

    Engines are preferred in this order: independent draws, weighted points of an approximation
    (`INLA`), chains, variational approximations, points; among engines of one kind, the one written
    for the model; and those that serve models of this size before all others.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    Recommendation
        ``.engine`` is for `fit`, which takes it by default. Prints as a table of all engines that
        apply, in order of preference; ``.frame`` has the columns limits and advice.

    Raises
    ------
    TypeError
        For what is no PyMC model.
    ValueError
        For a model to which no engine applies.

    Examples
    --------
    >>> choice = kz.recommend(model)
    >>> result = kz.fit(model, choice.engine)
    """
    chosen = applicable(model, None, "recommend")
    rows = []
    explained_by = {}
    for engine in by_preference(model):
        small = small_only(model, engine)
        explained_by[engine.name] = engine.explained_by(model)
        rows.append((engine.name, engine.limits, f"small n only: {small}" if small else ""))
    frame = pd.DataFrame(rows, columns=["engine", "limits", "advice"])
    reason = REASONS["weighted" if chosen.weighted else chosen.kind]
    title = f"{chosen.name} is recommended for {type(model).__name__}. {reason}"
    return Recommendation(title, frame.set_index("engine"), explained_by, chosen)
