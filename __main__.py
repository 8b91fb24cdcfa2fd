"""Command line: ``python -m kernelzoo {engines,fit}``."""

import argparse
import os
import sys
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
    compare_engines,
    datasets,
    engines,
    fit,
    gaussian,
    linear,
    polynomial,
    predict,
)
from .datasets.dataset import Dataset
from .inference.engine.recommend import EngineTable
from .models.kernels import precomputed
from .models.kernels.specification import Kernels
from .validation import check_name

# Width of output to a file, so that tables are not cut to a terminal's width.
WIDTH = 160


def list_engines(options: argparse.Namespace, console: Console) -> None:
    """Print which engines apply to which model, on each model's smallest example.

    With a model, also print why other engines do not apply.
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
        table = engines(example)
        left_out = [] if options.settings else ["settings"]
        console.print(EngineTable(table.title, table.frame.drop(columns=left_out)))


def _overview() -> Table:
    """Table of the engines that apply, one row per model, which fits on one screen."""
    table = Table("model", "engines that apply")
    for model in MODELS:
        able = engines(model.example()).frame.query("applies != 'no'").index
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
    # HDF5 does not write to a file that a notebook has open, and the fit would be lost.
    partial = Path(f"{stem}.nc.{os.getpid()}")
    result.to_netcdf(partial)
    partial.replace(f"{stem}.nc")
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


def parser() -> argparse.ArgumentParser:
    """Grammar of the command line."""
    root = argparse.ArgumentParser(
        prog="kernelzoo", description="Bayesian kernel learning on PyMC."
    )
    root.add_argument("--version", action="version", version=__version__)
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("engines", help="which engine applies to which model")
    command.add_argument("model", nargs="?", metavar="MODEL", help="default: every model")
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
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    The code is 0. Invalid input, and files that cannot be read or written, give a message and the
    code 2, Ctrl-C a message and 130.
    """
    options = parser().parse_args(arguments)
    try:
        console = Console(width=None if sys.stdout and sys.stdout.isatty() else WIDTH)
        options.function(options, console)
        return 0
    except (ValueError, OSError) as error:
        message, code = str(error), 2
    except KeyboardInterrupt as interruption:
        message, code = str(interruption) or "interrupted by Ctrl-C", 130
    Console(stderr=True).print(f"kernelzoo: {message}", style="red", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
