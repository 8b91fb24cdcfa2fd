"""Command line: ``python -m kernelzoo {engines,fit}``."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path

from rich.console import Console
from rich.table import Table

import kernelzoo as kz

from .validation import check_name

# Width of output to a file, so that tables are not cut to a terminal's width.
WIDTH = 160


def list_engines(options: argparse.Namespace, console: Console) -> None:
    """Print which engines apply to each model's example; for one model, why others do not."""
    if options.model is not None:
        models = {model.__name__: model for model in kz.MODELS}
        whole = kz.engines(models[check_name(options.model, models, "MODEL", "engines")].example())
        shown = replace(whole, frame=whole.frame.drop(columns="settings"))
        console.print(repr(shown), markup=False, highlight=False)
        return
    table = Table("model", "engines that apply")
    for model in kz.MODELS:
        able = kz.engines(model.example()).frame.query("applies != 'no'").index
        table.add_row(model.__name__, ", ".join(able))
    console.print(table)
    console.print("engines MODEL says why engines do not apply.")


def fit_data(options: argparse.Namespace, console: Console) -> None:
    """Fit a data set, score it on held-out objects, and write result and predictions."""
    data_set = kz.datasets.load(options.data)
    data = data_set.split(test_size=options.test_size, seed=options.seed)
    kernels = kernels_for(data_set)
    model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
    sampling = {name: getattr(options, name) for name in ("draws", "tune", "chains")}
    result = kz.fit(model, options.engine, random_seed=options.seed, **sampling)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{options.data}-{result.attrs['engine'].lower()}"
    # HDF5 does not write to a file that a notebook has open, and the fit would be lost.
    partial = Path(f"{stem}.nc.{os.getpid()}")
    result.to_netcdf(partial)
    partial.replace(f"{stem}.nc")
    new = kernels(data.X_test, data.X_train)
    table = kz.predict(model, result, new)["probability"].to_pandas()
    table.insert(0, "true", data.y_test)
    table.to_csv(f"{stem}-predictions.csv")
    # Printed last: an output that is full or has no reader raises.
    comparison = kz.compare_engines(
        {result.attrs["engine"]: result}, model=model, kernels_new=new, labels_new=data.y_test
    )
    console.print(comparison.engines.T.to_string(), markup=False, highlight=False)
    console.print(f"written: {stem}.nc, {stem}-predictions.csv")


def kernels_for(data: kz.datasets.Dataset) -> kz.kernels.Kernels:
    """Three standard kernels of each view of features, and Gram matrices unchanged."""
    standard = kz.gaussian() | kz.linear() | kz.polynomial(2)
    given = kz.kernels.precomputed()
    views = data.views
    # Similarities to objects outside the data set are features.
    grams = {view for view in data.similarities if views[view].shape[0] == views[view].shape[1]}
    if not isinstance(data.X, dict):
        return (given if grams else standard).normalize("trace")
    bound = (given.on(view) if view in grams else standard.on(view) for view in views)
    return reduce(or_, bound).normalize("trace")


def parser() -> argparse.ArgumentParser:
    """Grammar of the command line."""
    root = argparse.ArgumentParser("kernelzoo", description="Bayesian kernel learning on PyMC.")
    root.add_argument("--version", action="version", version=kz.__version__)
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("engines", help="which engine applies to which model")
    command.add_argument("model", nargs="?", metavar="MODEL", help="default: every model")
    command.set_defaults(function=list_engines)

    command = commands.add_parser("fit", help="fit a data set and score it on held-out objects")
    command.add_argument("data", metavar="DATA", help=", ".join(kz.datasets.names()))
    command.add_argument("--engine", default="vb", help="name of an engine (default: vb)")
    for name, default in {"draws": 1000, "tune": 1000, "chains": 4, "seed": 1}.items():
        command.add_argument(f"--{name}", type=int, default=default)
    command.add_argument("--test-size", type=float, default=0.3)
    command.add_argument("--out", type=Path, default=Path("results"), help="folder for the output")
    command.set_defaults(function=fit_data)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 2 for invalid input and files, or 130 after Ctrl-C."""
    options = parser().parse_args(arguments)
    try:
        console = Console(width=None if sys.stdout and sys.stdout.isatty() else WIDTH)
        options.function(options, console)
        return 0
    except (ValueError, OSError) as error:
        message = str(error)
        code = 2
    except KeyboardInterrupt as interruption:
        message = str(interruption) or "interrupted by Ctrl-C"
        code = 130
    Console(stderr=True).print(f"kernelzoo: {message}", style="red", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
