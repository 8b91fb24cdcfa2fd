"""Table of the engines for a model: which apply, and why others do not."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EngineRow", "EngineTable", "PrintedTable"]


class PrintedTable(ABC):
    """Base of the answers that print as a table with a heading, in a console and in Jupyter."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Heading of the printed table."""

    @abstractmethod
    def to_frame(self) -> "pd.DataFrame":
        """Table with one row an engine."""

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
        """Table with one row an engine."""
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
