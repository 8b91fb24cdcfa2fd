"""Run a benchmark: ``python -m benchmarks NAME`` from the root of a checkout."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from . import BENCHMARKS
from .record import RecordingConsole, write_record


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the benchmarks; with --json, keep what it prints."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the tables in a file")
    options = parser.parse_args(arguments)
    # Output to a file is not cut to a terminal's width.
    console = RecordingConsole(width=None if sys.stdout.isatty() else 160)
    begun = time.perf_counter()
    BENCHMARKS[options.name](console)
    if options.json is not None:
        write_record(options.json, options.name, console, time.perf_counter() - begun)
        Console().print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
