"""Benchmarks run to their end, on small problems, and fill their tables."""

from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import kernelzoo as kz
from benchmarks import (
    BENCHMARKS,
    batches,
    blocks,
    cluster,
    cold,
    completed_features,
    composite_kernel,
    growing,
    held_out,
    kernel_features,
    letters,
    many_objects,
    memory,
    million,
    missing,
    mixing,
    mutual_kernel,
    reference,
    speed,
)

# Of fixed sizes: minutes long.
WHOLE = {"speed", "scores", "completion"}


def rows(name):
    """Cells of the rows that a benchmark prints, by their first cell."""
    out = StringIO()
    BENCHMARKS[name](Console(file=out, width=250))
    cells = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in out.getvalue().splitlines()
        if line.startswith("│")
    ]
    return {(first, *rest[:1]): rest for first, *rest in cells}


def assert_numbers(cells):
    assert cells
    assert np.isfinite([float(cell.replace(",", "")) for cell in cells]).all()


@pytest.fixture
def in_this_process(monkeypatch):
    """Fits that otherwise have processes of their own."""
    for module in (batches, completed_features, growing, many_objects, memory):
        monkeypatch.setattr(
            module, "ProcessPoolExecutor", lambda n, mp_context: ThreadPoolExecutor(n)
        )


@pytest.mark.slow
def test_a_cluster_stands_beside_processes(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "SPLITS", 2)
    monkeypatch.setattr(cluster, "accuracy", lambda seed: seed / 2)
    found = rows("cluster")
    assert [name for name, *_ in found] == [
        "one process",
        "2 processes",
        "Dask, 2 workers, first time",
        "Dask, 2 workers, second time",
    ]
    assert {cells[-1] for cells in found.values()} == {"yes"}
    for cells in found.values():
        assert_numbers(cells[:-1])


def test_the_papers_times_stand_beside_ours(monkeypatch):
    monkeypatch.setattr(speed, "REPEATS", 1)
    sweep_seconds = speed.sweep_seconds
    monkeypatch.setattr(speed, "sweep_seconds", lambda model: sweep_seconds(model, 20))
    table = rows("paper")
    (ours,) = (cells for (first, _), cells in table.items() if first == "here")
    (theirs,) = (cells for (first, _), cells in table.items() if first == "paper, in Matlab")
    assert_numbers(ours)
    assert theirs == ["41720.0", "120.3", "347"]


def test_iterations_and_sweeps_beside_plain_ones(monkeypatch):
    for name, value in (("SIZES", (8,)), ("SMALL", 8), ("TURNS", 2), ("MOST", 40)):
        monkeypatch.setattr(mutual_kernel, name, value)
    # Has a test of its own, and compilation is slow where memory is traced.
    monkeypatch.setattr(mutual_kernel, "peak", lambda model, engine: 1.0)
    table = rows("mutual")
    for what in ("EM iteration", "Gibbs sweep"):
        assert_numbers(table["8", what][1:])
    assert len([first for first, _ in table if first in ("0.1", "0.001")]) == 2


def test_a_peak_of_memory_holds_the_completed_kernels():
    """Not less than six of them, as it was where making the data had a peak of its own."""
    model = mutual_kernel.declare(120)
    matrix = 8e-6 * 120**2
    assert 6 * matrix < mutual_kernel.peak(model, kz.EM(iterations=2)) < 60 * matrix


def test_peaks_of_memory(monkeypatch, in_this_process):
    monkeypatch.setattr(memory, "SIZES", (10,))
    fits = {name: memory.FITS[name] for name in ("basic, Exact", "simplified, VB")}
    monkeypatch.setattr(memory, "FITS", fits)
    table = rows("memory")
    assert {first for first, _ in table} == set(fits)
    for cells in table.values():
        assert_numbers(cells)


@pytest.mark.filterwarnings("ignore:VB did not converge in 50")
def test_many_objects(monkeypatch, in_this_process):
    sizes = {"OBJECTS": 60, "NEW": 9, "LANDMARKS": 10, "KERNELS": many_objects.KERNELS[:1]}
    for name, value in sizes.items():
        monkeypatch.setattr(many_objects, name, value)
    fits = {
        name: (engine, options, (3,)) for name, (engine, options, _) in many_objects.FITS.items()
    }
    monkeypatch.setattr(many_objects, "FITS", fits)
    table = rows("many")
    assert {first for first, _ in table} == set(fits)
    for cells in table.values():
        assert_numbers([cell for cell in cells if cell])
        assert float(cells[-1]) > 60


@pytest.mark.slow
def test_missing_blocks(monkeypatch):
    sizes = {"MISSING": (0.0, 0.4), "TRAIN": 9, "TEST": 6, "DRAWS": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(missing, name, value)
    monkeypatch.setattr(missing, "PROBLEMS", {"synthetic": missing.synthetic})
    run = BENCHMARKS["missing"]
    monkeypatch.setitem(BENCHMARKS, "missing", lambda console: run(console, samples=1))
    out = StringIO()
    BENCHMARKS["missing"](Console(file=out, width=250))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    table = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    whole = {method: scores[:-1] for _, share, method, *scores in table if share == "0%"}
    # Nothing missing leaves nothing to complete.
    assert whole["draws"] == whole["EM"] == whole["mean imputation"] == whole["complete cases"]
    lacking = {method: scores[:-1] for _, share, method, *scores in table if share == "40%"}
    assert {"draws", "EM", "mean imputation", "best block"} <= set(lacking)
    assert len({tuple(scores) for scores in lacking.values()}) >= 3
    for scores in (*whole.values(), *lacking.values()):
        assert_numbers(scores)


def test_growing_numbers_of_objects(monkeypatch, in_this_process):
    sizes = {"OBJECTS": (100,), "SLOPE_OBJECTS": (100, 400), "NEW": 50, "LANDMARKS": 10}
    for name, value in (sizes | {"SLOPE_LANDMARKS": 5}).items():
        monkeypatch.setattr(growing, name, value)
    table = rows("growing")
    for classifier in ("VB", "SGDClassifier"):
        cells = table["100", classifier][1:]
        assert_numbers([cell for cell in cells if cell])
        assert float(cells[-2]) > 30
    (larger,) = (cells for (first, _), cells in table.items() if first == "400")
    assert_numbers(larger)


def test_batches_beside_the_complete_ascent(monkeypatch, in_this_process):
    sizes = {"OBJECTS": (400,), "NEW": 100, "FEATURES": 10, "BATCH": 50, "PASSES": (1, 3)}
    for name, value in sizes.items():
        monkeypatch.setattr(batches, name, value)
    out = StringIO()
    batches.run(Console(file=out, width=250))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    table = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    for name, (_, n_classes) in batches.MODELS.items():
        fits = {fit: cells for model, _, fit, *cells in table if model == name}
        assert set(fits) == {"passes: 1", "passes: 3", "complete"}
        for cells in fits.values():
            assert_numbers(cells)
            assert float(cells[2]) > 100 / n_classes
        assert float(fits["complete"][1]) == pytest.approx(float(fits["passes: 3"][1]), abs=0.1)


@pytest.mark.filterwarnings("ignore:complete_features ended")
def test_completed_features(monkeypatch, in_this_process):
    runs = tuple((60, R) for R in (0, None, 4, 20))
    for name, value in {"VIEWS": 3, "FEATURES": 10, "PAIRS": 500, "RUNS": runs}.items():
        monkeypatch.setattr(completed_features, name, value)
    table = {by: cells for (_, by), (_, *cells) in rows("lowrank").items()}
    assert len(table) == len(runs)
    for by, cells in table.items():
        assert_numbers([cell for cell in cells if cell])
        assert bool(cells[1]) == (by != "whole matrices, EM")
        assert bool(cells[2]) == by.startswith("features")
    assert len({cells[0] for cells in table.values()}) == len(runs)


def test_mixing(monkeypatch):
    monkeypatch.setattr(mixing, "TUNE", 20)
    problem = ("small", kz.MultinomialProbit.example, ((kz.Gibbs(), 30), (mixing.PAPER, 30)))
    monkeypatch.setattr(mixing, "PROBLEMS", (problem,))
    table = rows("mixing")
    assert {first for first, _ in table} == {repr(kz.Gibbs()), repr(mixing.PAPER)}
    for _, *seconds, contrast, least, weights, parameters, rhat in table.values():
        assert_numbers([*seconds, contrast, least, weights, rhat])
        assert parameters == "-"


@pytest.mark.filterwarnings("ignore:VB did not converge in 3")
def test_composite_kernels(monkeypatch):
    monkeypatch.setattr(composite_kernel, "ITERATIONS", {12: 3})
    monkeypatch.setattr(composite_kernel, "POINTS", (12,))
    monkeypatch.setattr(composite_kernel, "samplers_table", lambda *args, **draws: "")
    assert {("regression", "12"), ("classification", "12")} == rows("composite").keys()
    model = composite_kernel.problems(12)["regression"]
    for engine in (kz.Gibbs(), kz.Gibbs(collapsed=False)):
        assert np.isfinite(composite_kernel.weights_per_second(model, engine, 20, tune=20)).all()


def test_held_out_scores(monkeypatch):
    problems = {"small": lambda: kz.datasets.cohort(60, separation=2.0)}
    monkeypatch.setattr(held_out, "PROBLEMS", problems)
    monkeypatch.setattr(held_out, "SPLITS", 2)
    short = {
        "VB": (kz.VB(starts=1), {"draws": 50}),
        "Gibbs": (kz.Gibbs(), {"draws": 40, "tune": 40, "chains": 1}),
    }
    monkeypatch.setattr(held_out, "ENGINES", short)
    table = rows("heldout")
    names = {"VB", "Gibbs", *held_out.CLASSIFIERS, held_out.FACTORS}
    assert table.keys() == {("small", name) for name in names}
    for (_, name), (_, *cells) in table.items():
        assert_numbers([cell for cell in cells if cell])
        loss, _, accuracy, *_ = map(float, cells[:4])
        # Bug: probabilities of other objects, or in another order of the classes.
        assert loss < np.log(3), name
        assert accuracy > 0.5, name
    losses = {name: float(cells[1]) for (_, name), cells in table.items()}
    assert min(losses, key=losses.get) == held_out.FACTORS


def test_held_out_says_what_is_left_out(monkeypatch):
    def absent():
        raise FileNotFoundError("put it there")

    monkeypatch.setattr(held_out, "PROBLEMS", {"far away": absent})
    out = StringIO()
    held_out.run(Console(file=out, width=100))
    assert "far away is left out: put it there" in out.getvalue()


@pytest.mark.slow
def test_first_fits_in_processes_of_their_own(monkeypatch):
    monkeypatch.setattr(cold, "MODELS", (kz.WishartCompletion,))
    rows_of = kz.engines(kz.WishartCompletion.example()).rows
    table_of = SimpleNamespace(rows=[row for row in rows_of if row.engine == "EM"])
    monkeypatch.setattr(cold, "engines", lambda model: table_of)
    monkeypatch.setattr(cold, "WINE_ENGINES", ("VB(starts=1)",))
    table = rows("cold")
    wine = ("124 wines, MultinomialProbit", "VB(starts=1)")
    assert table.keys() == {("WishartCompletion", "EM()"), wine}
    for _, pymc, both, first, second in table.values():
        assert_numbers([pymc, both, first, second])
        assert 0 < float(pymc) < float(both)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WHOLE))
def test_whole_benchmarks(name):
    assert rows(name)


def test_none_is_forgotten():
    here = {
        "batches",
        "blocks",
        "cluster",
        "cold",
        "features",
        "growing",
        "letters",
        "million",
        "lowrank",
        "missing",
        "paper",
        "mutual",
        "memory",
        "many",
        "mixing",
        "composite",
        "heldout",
        "recommend",
        "reference",
    }
    assert BENCHMARKS.keys() == here | WHOLE


def test_features_stand_beside_the_kernel(monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    data = SimpleNamespace(X=rng.normal(size=(80, 6)) + labels[:, None], y=labels)
    monkeypatch.setattr(kernel_features, "load", lambda name: data)
    few = {name: kernel_features.FEATURES[name] for name in ("nystroem, leverage", "random")}
    small = {"TRAIN": 40, "TEST": 40, "NUMBERS": (4, 16), "FEATURES": few, "DRAWS": 2}
    for name, value in (
        small | {"ENGINE": kz.VB(tolerance=0.01, remaining=np.inf, starts=1)}
    ).items():
        monkeypatch.setattr(kernel_features, name, value)
    table = rows("features")
    assert len(table) == 10
    error = {key: float(cells[1]) for key, cells in table.items() if cells[1]}
    assert error["all landmarks", "40"] < 1e-6
    for name in kernel_features.FEATURES:
        assert error[name, "16"] < error[name, "4"]
    assert ("kernels themselves", "40") in table
    weight = kernel_features.COLUMNS.index("weight of upper half") - 1
    for cells in table.values():
        assert 0 < float(cells[weight].partition(" ")[0]) < 1


@pytest.mark.slow
def test_kernels_in_blocks_on_a_cluster_and_on_disk(monkeypatch):
    pytest.importorskip("distributed")
    pytest.importorskip("zarr")
    monkeypatch.setattr(blocks, "in_own_process", lambda function, *args: function(*args))
    monkeypatch.setattr(blocks, "WORKERS", (2,))
    monkeypatch.setattr(blocks.os, "sched_setaffinity", lambda *_: None)
    small = {"OBJECTS": 400, "LANDMARKS": 5, "ITERATIONS": 4, "BLOCK": 150, "NEW": 50}
    many = {"MANY": 500, "MANY_LANDMARKS": 5, "MANY_BLOCK": 200}
    for name, value in (small | many).items():
        monkeypatch.setattr(blocks, name, value)
    out = StringIO()
    blocks.run(Console(file=out, width=250))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    table = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    of_one, of_two, on_disk = table
    assert of_one[0] == "in memory, one thread"
    assert float(of_one[2]) == 1
    assert max(map(float, of_two[3:])) < 1e-8
    assert_numbers(on_disk)
    assert float(on_disk[-1]) > 30


@pytest.mark.slow
def test_letters_beside_scikit_learn(monkeypatch):
    X, X_new, y, y_new = letters.letters()
    assert (len(X), len(X_new), len(set(y))) == (16000, 4000, 26)
    few = np.isin(y, ["A", "B", "C"]).nonzero()[0][:150]
    few_new = np.isin(y_new, ["A", "B", "C"]).nonzero()[0][:60]
    data = X[few], X_new[few_new], y[few], y_new[few_new]
    monkeypatch.setattr(letters, "letters", lambda: data)
    monkeypatch.setattr(letters, "LANDMARKS", (5, 10))
    classifiers = letters.CLASSIFIERS | {
        "VB, 300 columns": letters.ours((0.1,), 10),
        "VB, 1000 columns": letters.ours((0.1,), 20),
        "VB, two widths, 300 columns": letters.ours((0.03, 0.1), 10),
        "VB, 300 columns, prior chosen": letters.with_prior_chosen(10),
        "VB, 1000 columns, prior chosen": letters.with_prior_chosen(20),
    }
    monkeypatch.setattr(letters, "CLASSIFIERS", classifiers)
    table = rows("letters")
    assert len(table) == 8
    for (name, _), (seconds, right, loss, note) in table.items():
        assert float(seconds) >= 0
        assert float(right) > 80
        assert (loss == "") == (name == "SVM")
        assert ("iterations" in note) == name.startswith("VB")
        assert ("upsilon" in note) == name.endswith("chosen")


@pytest.mark.slow
def test_a_million_objects_or_a_few_hundred(monkeypatch):
    pytest.importorskip("zarr")
    monkeypatch.setattr(million, "in_own_process", lambda function, *args: function(*args))
    small = {"OBJECTS": (200, 800), "TRAIN": 200, "NEW": 300, "FEATURES": 10, "DRAWS": 2}
    # Fewer iterations would take no longer than the clock's noise.
    for name, value in (small | {"SHORT": 1, "LONG": 100}).items():
        monkeypatch.setattr(million, name, value)
    out = StringIO()
    million.run(Console(file=out, width=250))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    *iterations, predicted = (
        [cell.strip() for cell in line.strip("│").split("│")] for line in lines
    )
    assert [name for name, *_ in iterations] == list(million.MODELS)
    for _, *cells in iterations:
        assert_numbers(cells)
    assert_numbers(predicted)
    assert float(predicted[-1]) > 50


def test_weights_beside_the_samplers(monkeypatch):
    few = {"draws": 10, "tune": 10, "chains": 2, "cores": 1}
    # The gradient of NUTS would be compiled for a quarter of a minute.
    samplers = {"Gibbs": (reference.SAMPLERS["Gibbs"][0], few)}
    for name, value in {"OBJECTS": 60, "FEATURES": 3, "SAMPLERS": samplers}.items():
        monkeypatch.setattr(reference, name, value)
    table = rows("reference")
    assert [name for name, _ in table] == ["VB", "Gibbs"]
    for (name, _), cells in table.items():
        seconds, mean, error, sd, draws, effective, rhat, largest, device = cells
        assert_numbers([seconds, mean, error, sd, draws, effective, rhat or "1", largest or "1"])
        assert (rhat == "") == (name == "VB")
        assert int(draws) == (500 if name == "VB" else 20)
        assert 0 < float(mean) < 1
        assert device == "processor"
