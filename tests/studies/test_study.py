"""Studies survive whatever stops them: kills, torn lines, changed recipes, failures, Ctrl-C."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from studies import study as study_module
from studies.report import Published
from studies.study import Study, Task, read_units, run_study, tabulate

SPLITS = 12


def noisy(column, seed, *, level, pause=0.0):
    """Two methods on one split, by its seed alone."""
    time.sleep(pause)
    rng = np.random.default_rng(seed)
    return {"first": level + rng.normal(), "second": level + rng.normal()}


def third(column, seed, *, pause=0.0):
    time.sleep(pause)
    return {"third": float(np.random.default_rng(seed).normal())}


def sometimes_failing(column, seed, *, bad):
    if seed in bad:
        raise ArithmeticError(f"no answer for {seed}")
    return {"third": 1.0}


def a_study(pause=0.0, level=90.0):
    return Study(
        name="toy",
        title="A toy",
        measure="Nothing",
        tasks=(
            Task("left", ("first", "second"), noisy, {"level": level, "pause": pause}),
            Task("right", ("first", "second"), noisy, {"level": 70.0, "pause": pause}),
            Task("left", ("third",), third, {"pause": pause}),
        ),
        splits=SPLITS,
        seed=4,
        published={("first", "left"): Published(90.0, 1.0), ("third", "left"): Published(9.0, 1.0)},
    )


def run(study, out, **options):
    return run_study(study, out, progressbar=False, **options)


def units(out):
    return read_units(out, "toy")


def table_files(out):
    return [(out / f"toy.{ending}").read_bytes() for ending in ("csv", "md")]


def test_table_holds_means_over_splits_beside_the_papers(tmp_path):
    study = a_study()
    report = run(study, tmp_path)
    table = pd.read_csv(tmp_path / "toy.csv").set_index(["column", "row"])
    values = [noisy("left", study.seed_of("left", s), level=90.0)["first"] for s in range(SPLITS)]
    cell = table.loc["left", "first"]
    assert cell["ours"] == pytest.approx(np.mean(values))
    assert cell["sd"] == pytest.approx(np.std(values, ddof=1))
    assert cell["splits"] == SPLITS
    assert cell["difference"] == pytest.approx(np.mean(values) - 90)
    assert cell["standard_error"] == pytest.approx(np.hypot(cell["sd"] / SPLITS**0.5, 1 / 30**0.5))
    assert cell["verdict"] == "agrees"
    assert table.loc["left", "third"]["verdict"] == "differs"
    assert table.loc["right", "first"]["verdict"] == "not in the paper"
    assert "90.00 ± 1.00" in repr(report)
    assert "`{" in (tmp_path / "toy.md").read_text()


def test_splits_are_the_columns_not_the_tasks():
    study = a_study()
    seeds = {column: [study.seed_of(column, s) for s in range(50)] for column in ("left", "right")}
    assert len({*seeds["left"], *seeds["right"]}) == 100
    assert replace(study, seed=5).seed_of("left", 0) != seeds["left"][0]
    by_task = [u.seed for u in study.units(50) if u.task.column == "left"]
    assert sorted(by_task) == sorted(2 * seeds["left"])


def test_finished_units_are_not_repeated(tmp_path):
    study = a_study()
    run(study, tmp_path, splits=3)
    written = units(tmp_path)
    assert len(written) == 9
    run(study, tmp_path, splits=3)
    assert units(tmp_path) == written
    run(study, tmp_path)
    assert len(units(tmp_path)) == 3 * SPLITS
    assert all(unit in units(tmp_path) for unit in written)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, to kill a process many times")
def test_kills_at_random_moments_change_nothing(tmp_path):
    study = a_study(pause=0.01)
    run(study, tmp_path / "undisturbed")
    rng = np.random.default_rng(8)
    fork = multiprocessing.get_context("fork")
    survived, kills = 0, 0
    for _ in range(30):
        process = fork.Process(target=run, args=(study, tmp_path / "killed"))
        process.start()
        time.sleep(rng.uniform(0.02, 0.15))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        now = len(units(tmp_path / "killed"))
        assert now >= survived, "a finished unit was lost"
        survived = now
        if survived > 2 * SPLITS:
            break
    assert kills >= 3
    assert survived < 3 * SPLITS
    run(study, tmp_path / "killed")
    assert table_files(tmp_path / "killed") == table_files(tmp_path / "undisturbed")
    keys = [(u["recipe"], u["split"]) for u in units(tmp_path / "killed")]
    assert len(set(keys)) == len(keys) == 3 * SPLITS


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import test_study
from studies.study import run_study
report = run_study(test_study.a_study(pause=0.15), Path({out!r}), jobs={jobs}, progressbar=False)
sys.exit(3 if report.interrupted else 0)
"""


@pytest.mark.parametrize(
    ("jobs", "stop", "code"), [(2, signal.SIGKILL, -signal.SIGKILL), (1, signal.SIGINT, 3)]
)
def test_a_stopped_program_leaves_finished_units(tmp_path, jobs, stop, code):
    script = SCRIPT.format(folder=os.path.dirname(__file__), out=str(tmp_path / "out"), jobs=jobs)
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    while len(units(tmp_path / "out")) < 4 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(stop)
    assert process.wait(timeout=60) == code
    with suppress(ProcessLookupError):  # workers whose parent was killed
        os.killpg(process.pid, signal.SIGKILL)
    left = units(tmp_path / "out")
    assert 4 <= len(left) < 3 * SPLITS
    assert not any("error" in unit for unit in left)
    # The units that the program left are those that any other process would have made.
    here = {u.key: u.run()["values"] for u in a_study().units(SPLITS)}
    values = {(u["column"], u["split"], *u["values"]): u["values"] for u in left}
    expected = {
        (u.task.column, u.split, *u.task.rows): here[u.key] for u in a_study().units(SPLITS)
    }
    assert values == {key: expected[key] for key in values}


def test_units_of_a_joined_file_are_not_run_again(tmp_path):
    run(a_study(), tmp_path, splits=3)
    (joined := tmp_path / "joined").mkdir()
    files = sorted((tmp_path / "toy").glob("*.json"))
    (joined / "toy.jsonl").write_bytes(b"".join(file.read_bytes() for file in files[:5]))
    run(a_study(), joined, splits=3)
    assert len(list((joined / "toy").iterdir())) == 4
    assert table_files(joined) == table_files(tmp_path)


@pytest.mark.parametrize(
    "line", ['{"recipe": "a", "sp', "split,accuracy", '{"recipe": "a"}', "[1]"]
)
def test_a_line_that_is_no_unit_is_shown(tmp_path, line):
    (tmp_path / "toy.jsonl").write_text(line + "\n")
    with pytest.raises(
        ValueError, match=r"toy\.jsonl has a line that is no finished unit: "
    ) as told:
        run(a_study(), tmp_path)
    assert repr(line) in str(told.value)


def test_a_full_disk_names_the_file_and_what_is_kept(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be written \(No space left.*toy"):
        run(a_study(), tmp_path)


def test_a_changed_recipe_starts_its_task_anew_and_no_other(tmp_path):
    run(a_study(level=90.0), tmp_path)
    changed = run(a_study(level=50.0), tmp_path)
    assert len(units(tmp_path)) == 4 * SPLITS
    run(a_study(level=50.0), tmp_path / "alone")
    assert table_files(tmp_path) == table_files(tmp_path / "alone")
    assert changed.table["ours"][0] < 60
    # The old recipe's units are still there.
    assert tabulate(a_study(level=90.0), units(tmp_path), SPLITS).cells[0].mean > 80
    assert len({u.key for u in replace(a_study(), seed=9).units(1) + a_study().units(1)}) == 6


def test_a_failing_unit_is_told_and_stops_no_other(tmp_path):
    study = a_study()
    bad = [study.seed_of("left", split) for split in (0, 5)]
    task = Task("left", ("third",), sometimes_failing, {"bad": bad})
    study = replace(study, tasks=(*study.tasks[:2], task))
    report = run(study, tmp_path)
    line = report.table.iloc[-1]
    assert (line["splits"], line["failed"], line["left"]) == (SPLITS - 2, 2, 0)
    errors = tuple(f"ArithmeticError: no answer for {seed}" for seed in bad)
    assert report.cells[-1].errors == errors
    assert "10 (2 failed)" in (tmp_path / "toy.md").read_text()
    # Failed units are tried again, and only they.
    assert len(units(tmp_path)) == 3 * SPLITS - 2
    assert run(study, tmp_path).cells[-1].errors == errors


def test_a_cell_without_any_number_says_why(tmp_path):
    study = a_study()
    seeds = [study.seed_of("left", split) for split in range(SPLITS)]
    failing = Task("left", ("third",), sometimes_failing, {"bad": seeds})
    skipped = Task("right", ("third",), third, skip="the file is absent")
    table = run(replace(study, tasks=(failing, skipped)), tmp_path).table
    assert table["verdict"][0] == f"failed: ArithmeticError: no answer for {seeds[0]}"
    assert table["verdict"][1] == "skipped: the file is absent"


def wrong_rows(column, seed):
    return {"first": 1.0}


def not_a_number(column, seed):
    return {"third": float("nan")}


@pytest.mark.parametrize("function", [wrong_rows, not_a_number])
def test_numbers_that_are_not_those_asked_for_are_failures(tmp_path, function):
    study = replace(a_study(), tasks=(Task("left", ("third",), function),))
    report = run(study, tmp_path, splits=1)
    assert "finite number for each of third" in report.cells[0].errors[0]


def interrupted_at(column, seed, *, bad, swallow):
    """Ctrl-C in the middle of a unit; some engines make the best of it, as here."""
    if seed == bad:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            if not swallow:
                raise
    return {"third": 2.0}


@pytest.mark.parametrize("swallow", [True, False])
def test_ctrl_c_leaves_finished_units_and_no_half_ones(tmp_path, swallow):
    study = a_study()
    bad = study.seed_of("left", 4)
    task = Task("left", ("third",), interrupted_at, {"bad": bad, "swallow": swallow})
    report = run(replace(study, tasks=(task,)), tmp_path)
    assert report.interrupted
    assert sorted(unit["split"] for unit in units(tmp_path)) == [0, 1, 2, 3]
    assert report.table["left"][0] == SPLITS - 4


@pytest.mark.parametrize("arguments", [{"splits": 0}, {"jobs": 0}, {"splits": 2.5}])
def test_bad_numbers_are_refused(tmp_path, arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"'{name}' argument of run_study"):
        run(a_study(), tmp_path, **arguments)


def test_a_task_can_have_fewer_splits(tmp_path):
    study = a_study()
    fewer = replace(study.tasks[1], splits=4)
    study = replace(study, tasks=(study.tasks[0], fewer, study.tasks[2]))
    table = run(study, tmp_path).table.set_index(["column", "row"])
    assert table.loc[("right", "first"), ["splits", "left"]].tolist() == [4, 0]
    assert table.loc[("left", "first"), ["splits", "left"]].tolist() == [SPLITS, 0]
    # Its units are those it would have had: more of them later go on from these.
    assert len(units(tmp_path)) == 2 * SPLITS + 4
    run(
        replace(study, tasks=(study.tasks[0], replace(fewer, splits=None), study.tasks[2])),
        tmp_path,
    )
    assert len(units(tmp_path)) == 3 * SPLITS


def test_studies_that_share_a_ledger_share_their_units(tmp_path):
    whole = replace(a_study(), ledger="shared")
    part = replace(whole, name="part", shown=frozenset({"first"}))
    report = run(part, tmp_path)
    assert {cell.row for cell in report.cells} == {"first"}
    assert "third" not in report.markdown()
    # Nothing is run for rows that are not shown, and what is run is not run again.
    assert {tuple(unit["values"]) for unit in read_units(tmp_path, "shared")} == {
        ("first", "second")
    }
    written = read_units(tmp_path, "shared")
    table = run(whole, tmp_path).table
    shared = read_units(tmp_path, "shared")
    assert all(unit in shared for unit in written)
    assert len(shared) == 3 * SPLITS
    assert set(table["row"]) == {"first", "second", "third"}
    assert (tmp_path / "part.csv").exists()
    assert not (tmp_path / "toy").exists()


def test_units_of_another_version_are_run_again_and_can_be_tabulated(tmp_path, monkeypatch):
    study = a_study()
    run(study, tmp_path)
    monkeypatch.setattr(study_module, "versions", lambda: {"kernelzoo": "999"})
    ledger = units(tmp_path)
    assert not any(cell.values for cell in tabulate(study, ledger, SPLITS).cells)
    shown = tabulate(study, ledger, SPLITS, any_version=True)
    assert all(len(cell.values) == SPLITS for cell in shown.cells)
    run(study, tmp_path)
    assert len(units(tmp_path)) == 2 * len(study.units(SPLITS))
