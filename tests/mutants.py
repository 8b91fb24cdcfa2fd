"""Mutate files by Cosmic Ray and run their tests: the score, and what no test noticed.

``make mutants FILES="numerics/softmax.py" N=40`` calls it. Each place of a file that an operator
can change gets one mutant. The seed chooses it, and the places of a sample.
"""

import argparse
import os
import random
import re
import shlex
import time
from collections import Counter
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import WorkItem

from planted import run

# Arrays of floats and annotations raise a TypeError with the former, which only raises the score;
# without ``@override`` nothing changes.
OPERATORS_LEFT_OUT = re.compile("Shift|Bit|Decorator")


def tests_of(file: str) -> str:
    """Return the test file of the same name, or the folder of tests that mirrors the file's."""
    path = Path("tests", file)
    test = path.with_name(f"test_{path.name}")
    found = test if test.is_file() else path.parent
    if found == Path("tests") or not found.exists():
        raise SystemExit(f'There is no {test}: name the tests, as in TESTS="tests/test_laws.py".')
    return str(found)


def mutants(file: str, options: argparse.Namespace) -> list[WorkItem]:
    """Return one mutant for each place of a file, or for a sample of the places."""
    places: dict[object, list[WorkItem]] = {}
    with use_db("session.sqlite") as session:
        init([Path(file)], session, {})
        for item in session.work_items:
            mutation = item.mutations[0]
            if not OPERATORS_LEFT_OUT.search(mutation.operator_name):
                places.setdefault((mutation.start_pos, mutation.end_pos), []).append(item)
    rng = random.Random(options.seed)
    chosen = [rng.choice(places[place]) for place in sorted(places)]
    count = options.n or round(options.share * len(chosen))
    chosen = rng.sample(chosen, min(max(count, 1), len(chosen)))
    return sorted(chosen, key=lambda item: item.mutations[0].start_pos)


def try_mutants(file: str, options: argparse.Namespace) -> None:
    """Run the tests of a file with each of its mutants; print the survivors and the score."""
    tests = options.tests or tests_of(file)
    start = time.monotonic()
    status, line = run.run(tests, Path.cwd(), None)
    if status:
        raise SystemExit(f"The tests must pass without a mutant: {line}")
    limit = options.limit or 10 + 3 * (time.monotonic() - start)
    command = shlex.join(run.pytest(tests))
    compiled = run.is_compiled(Path(file))
    counts: Counter[str] = Counter()
    survivors = []
    for item in mutants(file, options):
        if compiled:
            run.compile_anew(Path.cwd())
        result = mutate_and_test(item.mutations, command, limit)
        outcome = "timeout" if result.output == "timeout" else result.test_outcome.value
        counts[outcome] += 1
        mutation = item.mutations[0]
        operator = mutation.operator_name.partition("/")[2]
        print(f"{outcome:12}{file}:{mutation.start_pos[0]}  {operator}", flush=True)
        if outcome == "survived":
            survivors.append(result.diff.partition("\n")[2])
    noticed = counts.total() - counts["survived"]
    print(*survivors, f"{file}: {noticed} of {counts.total()} mutants noticed", sep="\n\n")


def main() -> None:
    """Copy the checkout and try mutants of its files there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", help="files of the package, from the checkout's root")
    parser.add_argument("--tests", help="arguments of pytest (each file's own tests)")
    parser.add_argument("--share", type=float, default=1.0, help="share of the places (1)")
    parser.add_argument("--n", type=int, help="number of places of a file, in place of a share")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of mutants (0)")
    parser.add_argument("--limit", type=float, help="seconds a mutant (10 and thrice the tests')")
    options = parser.parse_args()
    with run.copy_of(run.ROOT) as copy:
        os.chdir(copy)
        for file in options.files:
            try_mutants(file, options)
        os.chdir(run.ROOT)


if __name__ == "__main__":
    main()
