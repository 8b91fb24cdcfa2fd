"""Run or resume a table of a paper: ``python -m studies NAME`` from the root of a checkout.

``python -m studies demo`` fits two models with several engines and compares them.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from .demo import run as run_demo
from .reproduce import STUDIES, reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study, or the demonstration."""
    parser = argparse.ArgumentParser(prog="studies", description=__doc__)
    parser.add_argument("name", choices=["demo", *STUDIES], metavar="NAME", help=", ".join(STUDIES))
    parser.add_argument("--splits", type=int, help="in place of the paper's number")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler")
    parser.add_argument("--seed", type=int, default=1, help="of the demonstration")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the output")
    options = parser.parse_args(arguments)
    # Output to a file is not cut to a terminal's width.
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.name == "demo":
        run_demo(options.out, options.seed, console)
        return 0
    with _cluster(options.cluster):
        reproduce(options.name, options.out, console, splits=options.splits, jobs=options.jobs)
    return 0


def _cluster(address: str | None) -> AbstractContextManager[Any]:
    """Context in which the client of a Dask scheduler is active, if there is one."""
    if address is None:
        return nullcontext()
    from distributed import Client

    return Client(address)


if __name__ == "__main__":
    sys.exit(main())
