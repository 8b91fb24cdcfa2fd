"""Run a benchmark: ``python -m benchmarks NAME`` from the root of a checkout."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from . import cold, engines, gpu, held_out, mixing, peers
from .record import document

#: By name; each yields Markdown: tables, and lines between them.
BENCHMARKS: dict[str, Callable[[], Iterator[str]]] = {
    "cold": cold.run,
    "engines": engines.run,
    "gpu": gpu.run,
    "heldout": held_out.classifiers,
    "heldout-targets": held_out.regressors,
    "letters": partial(peers.run, peers.LETTERS),
    "mixing": mixing.run,
    "peers": peers.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the benchmarks, and print its tables; with --out, keep them for the site."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the tables in a file")
    options = parser.parse_args(arguments)
    begun = time.perf_counter()
    parts = []
    for part in BENCHMARKS[options.name]():
        parts.append(part)
        # An output that is full or has no reader loses no benchmark.
        with suppress(OSError):
            print(part, end="\n\n", flush=True)
    if options.out is not None:
        text = document(options.name, options.out, parts, time.perf_counter() - begun)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
