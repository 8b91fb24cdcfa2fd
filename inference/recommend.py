"""Tables of engines: which apply to a model, why others do not, and which one is recommended."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape as escape_html
from math import inf, isnan, nan
from timeit import Timer
from typing import Any, Literal, override

import pandas as pd
import pymc as pm
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from ..user_warnings import numpy_warnings, silent
from ..validation import Count, CountOrZero, Positive, check_arguments
from .engine.completions import number_of_fits
from .engine.engine import Engine, Kind, Run, checked_model, coordinates, engines_for, every_engine
from .engine.progress import Clock, OutOfTime, stopped_by_ctrl_c, track
from .engine.provenance import check_model
from .engine.result import ExactOutput, IntegratedOutput, VariationalOutput
from .engine.shared_settings import BlasLimits, settings_kept
from .engine.workers import processes
from .paper_engines import BY_GRADIENTS, INLA, Gibbs, PaperEngine

#: Why an engine is recommended, in the order of preference.
REASONS: dict[Kind | Literal["weighted"], str] = {
    "exact": "It draws independently from the posterior, so there is nothing to diagnose.",
    "weighted": (
        "It weights its draws to the posterior, in the time of an approximation; read intervals "
        "if the result's 'pareto_k' is below 0.7."
    ),
    "mcmc": "It samples the posterior; read its intervals if the result's 'converged' is \"yes\".",
    "vb": "It approximates quickly; read intervals only if the result's 'pareto_k' is below 0.7.",
    "point": "It finds one point and says nothing about uncertainty.",
}

# Seconds for which an algorithm runs.
MOMENT = 1.5
# Draws that are timed, and length of the tuning in which sweeps are.
FEW = 10
TUNING_TIMED = 100


@dataclass(frozen=True, repr=False)
class EngineTable:
    """A titled frame with one row per engine, printed whole in a console and in Jupyter."""

    title: str
    frame: pd.DataFrame

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
    engine serves in practice; the reason says how many.

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
    if engine.largest is None or (size := coordinates(model)) <= engine.largest:
        return None
    return f"the model has {size:,} coordinates; it serves about {engine.largest:,}"


def span(seconds: float) -> str:
    """Seconds in the largest unit of which there are two or more."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


@dataclass(frozen=True, repr=False)
class Recommendation(EngineTable):
    """The recommended engine, for `fit`, with the table of all engines that apply."""

    engine: Engine


def recommend(
    model: pm.Model,
    *,
    max_seconds: Positive | None = None,
    draws: Count = 1000,
    tune: CountOrZero = 1000,
    chains: Count = 4,
    cores: Count | None = None,
    progressbar: bool = True,
) -> Recommendation:
    """Recommend an engine for a model, by what it can tell and by the time it takes here.

    Engines are preferred in this order: independent draws, weighted draws of an approximation
    (`INLA`), chains, variational approximations, points; among engines of one kind, the one written
    for the model; and those that serve models of this size before all others.

    Parameters
    ----------
    model : pm.Model
    max_seconds : float, optional
        Recommend the first engine in this order that is expected to end in time, or the quickest
        engine if none is. By default time does not count.
    draws, tune, chains, cores : int
        As in `fit`.
    progressbar : bool, default=True
        Show which engine is measured.

    Returns
    -------
    Recommendation
        ``.engine`` is for `fit`. Prints as a table of all engines that apply, in order of
        preference; ``.frame`` has the columns seconds (NaN if not measured), limits and advice.

    Notes
    -----
    Engines written for the model run for a second or two, and their time is extrapolated: for
    variational Bayes and for points to 100 iterations per start. Points are measured only with
    `max_seconds`, and engines for any PyMC model never: their compilation can take half a minute.

    Examples
    --------
    >>> choice = kz.recommend(model, max_seconds=60)
    >>> result = kz.fit(model, choice.engine)
    """
    check_arguments(recommend, locals())
    checked_model(model, "recommend")
    preferred = [*REASONS]
    ordered = sorted(
        engines_for(model),
        key=lambda engine: (
            small_only(model, engine) is not None,
            preferred.index(way_of(engine)),
            not isinstance(engine, PaperEngine),
        ),
    )
    run = Run(draws, tune, chains, cores, progressbar=False)
    rows, chosen = [], None
    with stopped_by_ctrl_c(), track(len(ordered), "recommend", visible=progressbar) as bar:
        for engine in ordered:
            bar.advance(engine=engine.name)
            seconds, failure = nan, None
            if isinstance(engine, PaperEngine) and (engine.kind != "point" or max_seconds):
                try:
                    if engine.algorithm(model) is not BY_GRADIENTS:
                        seconds = seconds_of(model, engine, run)
                except Exception as error:  # any error: the other engines may work
                    failure = f"it could not be measured: {type(error).__name__}: {error}"
            small = small_only(model, engine)
            advice = failure or (f"small n only: {small}" if small else "")
            rows.append((engine.name, seconds, engine.limits, advice))
            in_time = max_seconds is None or seconds <= max_seconds
            if chosen is None and in_time and failure is None:
                chosen = engine
    frame = pd.DataFrame(rows, columns=["engine", "seconds", "limits", "advice"])
    late = ""
    if chosen is None:
        # Of engines that were not measured, the first.
        chosen = ordered[frame["seconds"].fillna(inf).argmin()]
        late = f" No engine is expected to end within {span(max_seconds or 0)}, of those measured."
    reason = f"{REASONS[way_of(chosen)]}{late}"
    title = f"{chosen.name} is recommended for {type(model).__name__}. {reason}"
    return Recommendation(title, frame.set_index("engine"), chosen)


def way_of(engine: Engine) -> Kind | Literal["weighted"]:
    """Key of the reason to recommend an engine: its kind, but for INLA."""
    return "weighted" if isinstance(engine, INLA) else engine.kind


@dataclass
class _Moment(Clock):
    """Clock that ends each loop after a moment, and adds up how long it would have gone on."""

    later: float = 0.0

    @override
    def loop(self, steps: int) -> Callable[[int], None]:
        begun, taken = time.perf_counter(), 0

        def after(done: int) -> None:
            nonlocal taken
            taken += done
            spent = time.perf_counter() - begun
            if spent > MOMENT:
                self.later += spent / taken * max(steps - taken, 0)
                self.end()

        return after


def seconds_of(model: pm.Model, engine: PaperEngine[Any], run: Run) -> float:
    """Run the paper's algorithm for a moment, and extrapolate to all its draws and iterations."""
    clock, begun = _Moment(MOMENT), time.perf_counter()
    output: Any = None
    with (
        BlasLimits(1),
        numpy_warnings(),
        settings_kept(),
        silent(),
    ):
        try:
            output = engine.implement(model, replace(run, clock=clock))
        except (ValueError, OutOfTime):
            # An algorithm that keeps no part of a result has no output to time.
            if not clock.ended:
                raise
        seconds = time.perf_counter() - begun + clock.later
        if isinstance(output, VariationalOutput | ExactOutput | IntegratedOutput):
            few = min(FEW, run.draws)
            seconds += _each(lambda: output.sample(few, run.rng())) * run.draws / few
        elif isinstance(engine, Gibbs):
            point = model.initial_point()
            for step in output:
                # Steps may save work in the first of many sweeps of tuning.
                step.setup_chain(run.rng(), min(run.tune, TUNING_TIMED), run.draws)

            def sweep() -> None:
                nonlocal point
                for step in output:
                    point, _ = step.step(point)

            turns = -(-run.chains // processes(run))
            seconds += _each(sweep) * turns * (run.tune + run.draws)
    return seconds * number_of_fits(model)


def _each(call: Callable[[], object]) -> float:
    """Mean seconds of a call after the first one, which also prepares."""
    call()
    calls, seconds = Timer(call).autorange()
    return seconds / calls
