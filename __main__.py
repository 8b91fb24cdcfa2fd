"""Command line: ``python -m kernelzoo {demo,engines,fit,reproduce,calibrate,certify,bench}``."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import (
    MODELS,
    MultinomialProbit,
    __version__,
    calibrate,
    compare_engines,
    datasets,
    describe,
    engines,
    fit,
    gaussian,
    linear,
    polynomial,
    predict,
)
from .benchmarks import BENCHMARKS
from .benchmarks.record import RecordingConsole, write_record
from .certificates import certify
from .datasets.dataset import Dataset
from .experiments import reproduce as studies
from .experiments.demo import run as run_demo
from .inference.engine.cluster import on_cluster
from .models.kernels import precomputed
from .models.kernels.specification import Kernels
from .validation import check_name

# Width of output to a file, so that tables are not cut to a terminal's width.
WIDTH = 160


def demo(options: argparse.Namespace, console: Console) -> None:
    """Fit two models with several engines and compare them."""
    run_demo(options.out, options.seed, console)


def list_engines(options: argparse.Namespace, console: Console) -> None:
    """Print which engines apply to which model, on each model's smallest example.

    With a model, also print why other engines do not apply. With an engine, explain its settings on
    the model.
    """
    models = {model.__name__: model for model in MODELS}
    if options.model is None and not options.settings:
        console.print(_overview())
        console.print(
            "engines MODEL says why engines do not apply; --settings adds their settings."
        )
        return
    names = models if options.model is None else [options.model]
    for name in names:
        example = models[check_name(name, models, "MODEL", "engines")].example()
        if options.engine is None:
            console.print(engines(example).table(without=() if options.settings else ["settings"]))
        else:
            text = str(describe(example, options.engine))
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _overview() -> Table:
    """Table of the engines that apply, one row a model, which fits on one screen."""
    table = Table("model", "engines that apply")
    for model in MODELS:
        able = [row.engine for row in engines(model.example()).rows if row.reason is None]
        table.add_row(model.__name__, ", ".join(able))
    return table


def fit_data(options: argparse.Namespace, console: Console) -> None:
    """Fit a data set and score it on held-out objects.

    The kernels are the data set's Gram matrices and three standard kernels of its features.
    """
    data_set = datasets.load(options.data)
    data = data_set.split(test_size=options.test_size, seed=options.seed)
    kernels = kernels_for(data_set)
    model = MultinomialProbit(kernels(data.X_train), data.y_train)
    result = fit(
        model,
        options.engine,
        draws=options.draws,
        tune=options.tune,
        chains=options.chains,
        random_seed=options.seed,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{options.data}-{result.attrs['engine'].lower()}"
    result.to_netcdf(f"{stem}.nc")
    test_kernels = kernels(data.X_test, data.X_train)
    table = predict(model, result, test_kernels)["probability"].to_pandas()
    table.insert(0, "true", data.y_test)
    table.to_csv(f"{stem}-predictions.csv")
    # Printed last: an output that is full or has no reader raises.
    comparison = compare_engines(
        {result.attrs["engine"]: result},
        model=model,
        kernels_new=test_kernels,
        labels_new=data.y_test,
    )
    console.print(comparison.engines.T.to_string(), markup=False, highlight=False)
    console.print(f"written: {stem}.nc, {stem}-predictions.csv")


def kernels_for(data: Dataset) -> Kernels:
    """Three standard kernels of each view of features, and Gram matrices unchanged."""
    standard = gaussian() | linear() | polynomial(2)
    views = data.views
    # Similarities to objects outside the data set are features.
    grams = {view for view in data.similarities if views[view].shape[0] == views[view].shape[1]}
    if not isinstance(data.X, dict):
        return (precomputed() if grams else standard).normalize("trace")
    bound = (precomputed().on(view) if view in grams else standard.on(view) for view in views)
    return reduce(or_, bound).normalize("trace")


def reproduce(options: argparse.Namespace, console: Console) -> None:
    """Run or resume a paper's table."""
    with on_cluster(options.cluster, options.jobs):
        studies.reproduce(
            options.name, options.out, console, splits=options.splits, jobs=options.jobs
        )


def check_calibration(options: argparse.Namespace, console: Console) -> int:
    """Calibrate an engine on a model's smallest example, save the ranks; 1 if they leave bands."""
    models = {model.__name__: model for model in MODELS}
    name = check_name(options.model, models, "MODEL", "calibrate")
    with on_cluster(options.cluster, options.jobs):
        ranks = calibrate(
            models[name].example(),
            options.engine,
            replicates=options.replicates,
            jobs=options.jobs,
            random_seed=options.seed,
            out=(folder := options.out / f"{name}-{options.engine.lower()}"),
        )
    ranks.to_netcdf(folder / "ranks.nc")
    console.print(f"written: {folder / 'ranks.nc'}")
    return int(not ranks.attrs["calibrated"])


def make_certificates(options: argparse.Namespace, console: Console) -> int:
    """Check every engine on every model, write a file a cell and their table; 1 if one is red."""
    with on_cluster(options.cluster, options.jobs):
        certificates = certify(
            options.out,
            console,
            cells=options.cells,
            seconds=options.seconds,
            jobs=options.jobs,
            random_seed=options.seed,
            again=options.again,
        )
    verdicts = Counter(certificate.verdict for certificate in certificates.values())
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    console.print(f"{counts}; written: {options.out}, {options.out.with_suffix('.md')}")
    return int(verdicts["red"] > 0)


def bench(options: argparse.Namespace, console: Console) -> None:
    """Run one of the benchmarks; with --json, keep what it prints."""
    run = BENCHMARKS[check_name(options.name, BENCHMARKS, "NAME", "bench")]
    if options.json is None:
        run(console)
        return
    recording, begun = RecordingConsole(width=console.width), time.perf_counter()
    run(recording)
    write_record(options.json, options.name, recording, time.perf_counter() - begun)
    console.print(f"written: {options.json}")


def parser() -> argparse.ArgumentParser:
    """Grammar of the command line."""
    root = argparse.ArgumentParser(
        prog="kernelzoo", description="Bayesian kernel learning on PyMC."
    )
    root.add_argument("--version", action="version", version=__version__)
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser(
        "demo", help="fit two models with several engines and compare them"
    )
    command.add_argument("--out", type=Path, default=Path("results"), help="folder for the output")
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(function=demo)

    command = commands.add_parser("engines", help="which engine applies to which model")
    command.add_argument("model", nargs="?", metavar="MODEL", help="default: every model")
    command.add_argument(
        "engine", nargs="?", metavar="ENGINE", help="explain its settings on that model"
    )
    command.add_argument(
        "--settings", action="store_true", help="show the settings of every engine in the tables"
    )
    command.set_defaults(function=list_engines)

    command = commands.add_parser("fit", help="fit a data set and score it on held-out objects")
    command.add_argument("data", metavar="DATA", help=", ".join(datasets.names()))
    command.add_argument("--engine", default="vb", help="name of an engine (default: vb)")
    command.add_argument("--draws", type=int, default=1000)
    command.add_argument("--tune", type=int, default=1000)
    command.add_argument("--chains", type=int, default=4)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--test-size", type=float, default=0.3)
    command.add_argument("--out", type=Path, default=Path("results"), help="folder for the output")
    command.set_defaults(function=fit_data)

    command = commands.add_parser("reproduce", help="run or resume the table of a paper")
    command.add_argument("name", metavar="TABLE", help=", ".join(studies.STUDIES))
    command.add_argument("--splits", type=int, help="in place of the paper's number")
    _add_workers(command)
    command.add_argument("--out", type=Path, default=Path("results"), help="folder for the output")
    command.set_defaults(function=reproduce)

    command = commands.add_parser("calibrate", help="check an engine on a model's example")
    command.add_argument("model", metavar="MODEL")
    command.add_argument("engine", metavar="ENGINE")
    command.add_argument("--replicates", type=int, default=100)
    _add_workers(command)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--out", type=Path, default=Path("results") / "calibration")
    command.set_defaults(function=check_calibration)

    command = commands.add_parser("certify", help="prove every engine on every model")
    command.add_argument(
        "--cells",
        nargs="+",
        default=[],
        metavar="NAME",
        help="cells, variants, models or engines (default: all)",
    )
    command.add_argument("--seconds", type=float, default=60.0, help="time of a cell")
    _add_workers(command)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--again", action="store_true", help="repeat cells that are done")
    command.add_argument("--out", type=Path, default=Path("results") / "certificates")
    command.set_defaults(function=make_certificates)

    command = commands.add_parser("bench", help="timings, memory, mixing, held-out scores")
    command.add_argument("name", metavar="NAME", help=", ".join(BENCHMARKS))
    command.add_argument("--json", type=Path, metavar="FILE", help="keep the tables in a file")
    command.set_defaults(function=bench)
    return root


def _add_workers(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", type=int, default=1, help="processes")
    command.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="of a Dask scheduler; slurm starts JOBS workers",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    The code is 0, or 1 when `calibrate` or `certify` finds an engine wrong. Invalid input, and
    files that cannot be read or written, give a message and the code 2, Ctrl-C a message and 130.
    """
    options = parser().parse_args(arguments)
    try:
        console = Console(width=None if sys.stdout and sys.stdout.isatty() else WIDTH)
        return options.function(options, console) or 0
    except (ValueError, OSError) as error:
        message, code = str(error), 2
    except KeyboardInterrupt as interruption:
        message, code = str(interruption) or "interrupted by Ctrl-C", 130
    Console(stderr=True).print(f"kernelzoo: {message}", style="red", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
