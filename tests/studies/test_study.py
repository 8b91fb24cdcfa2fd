"""Studies survive whatever stops them: kills, torn lines, changed recipes, failures, Ctrl-C."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from family import ALPHA
from studies import study as study_module
from studies.study import (
    FEWEST,
    LEVEL,
    Claim,
    Published,
    Study,
    Task,
    run_study,
    tabulate,
)

SPLITS = 12


def noisy(column, seed, *, level, pause=0.0):
    """Two methods on one split, by its seed alone."""
    time.sleep(pause)
    rng = np.random.default_rng(seed)
    return {"first": level + rng.normal(), "second": level + rng.normal()}


def third(column, seed, *, pause=0.0):
    time.sleep(pause)
    return {"third": float(np.random.default_rng(seed).normal())}


def sometimes_failing(column, seed, *, bad, row="third"):
    if seed in bad:
        raise ArithmeticError(f"no answer for {seed}")
    return {row: 1.0}


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


def units(out, name="toy"):
    """Records of finished units by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in (out / name).glob("*.json")}


def table_file(out):
    return (out / "toy.csv").read_bytes()


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
    assert cell["low"] < cell["difference"] < cell["high"]
    assert cell["margin"] == 2.0
    assert cell["verdict"] == "agrees"
    assert table.loc["left", "third"]["verdict"] == "differs"
    assert table.loc["right", "first"]["verdict"] == "not in the paper"
    assert report.printed()[0][2] == "90.00 ± 1.00"


def test_splits_are_the_columns_not_the_tasks():
    study = a_study()
    seeds = {column: [study.seed_of(column, s) for s in range(50)] for column in ("left", "right")}
    assert len({*seeds["left"], *seeds["right"]}) == 100
    assert replace(study, seed=5).seed_of("left", 0) != seeds["left"][0]
    by_task = [u.seed for u in study.units(50).values() if u.task.column == "left"]
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
    assert written.items() <= units(tmp_path).items()


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
    assert table_file(tmp_path / "killed") == table_file(tmp_path / "undisturbed")
    assert len(units(tmp_path / "killed")) == 3 * SPLITS


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {folders!r}
import test_study
from studies.study import run_study
try:
    run_study(test_study.a_study(pause=0.15), Path({out!r}), cores={cores}, progressbar=False)
except KeyboardInterrupt:
    sys.exit(3)
"""


@pytest.mark.parametrize(
    ("cores", "stop", "code"),
    [
        pytest.param(2, signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
        (1, signal.SIGINT, 3),
    ],
)
def test_a_stopped_program_leaves_finished_units(tmp_path, cores, stop, code):
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    script = SCRIPT.format(folders=folders, out=str(tmp_path / "out"), cores=cores)
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    while len(units(tmp_path / "out")) < 4 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(stop)
    assert process.wait(timeout=60) == code
    with suppress(ProcessLookupError):  # workers whose parent was killed
        os.killpg(process.pid, signal.SIGKILL)
    left = units(tmp_path / "out")
    assert 4 <= len(left) < 3 * SPLITS
    # The units that the program left are those that any other process would have made.
    units_here = {
        (u.task.column, u.split, u.task.rows): u for u in a_study().units(SPLITS).values()
    }
    for name, record in left.items():
        unit = units_here[record["column"], int(name.split("-")[1]), tuple(record["values"])]
        assert unit.run()["values"] == record["values"]


def test_a_full_disk_leaves_no_part_of_a_unit(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space left"):
        run(a_study(), tmp_path)
    assert not units(tmp_path)


def test_a_changed_recipe_starts_its_task_anew_and_no_other(tmp_path):
    run(a_study(level=90.0), tmp_path)
    changed = run(a_study(level=50.0), tmp_path)
    assert len(units(tmp_path)) == 4 * SPLITS
    run(a_study(level=50.0), tmp_path / "alone")
    assert table_file(tmp_path) == table_file(tmp_path / "alone")
    assert changed.table["ours"][0] < 60
    # The old recipe's units are still there.
    assert tabulate(a_study(level=90.0), units(tmp_path), SPLITS).table["ours"][0] > 80
    assert len({*replace(a_study(), seed=9).units(1), *a_study().units(1)}) == 6


def test_a_failing_unit_is_told_and_stops_no_other(tmp_path):
    study = a_study()
    bad = [study.seed_of("left", split) for split in (0, 5)]
    task = Task("left", ("third",), sometimes_failing, {"bad": bad})
    study = replace(study, tasks=(*study.tasks[:2], task))
    report = run(study, tmp_path)
    line = report.table.iloc[-1]
    assert (line["splits"], line["failed"], line["left"]) == (SPLITS - 2, 2, 0)
    assert line["verdict"] == "differs"
    assert "10 (2 failed)" in report.printed()[-1]
    # Failed units are tried again, and only they.
    assert len(units(tmp_path)) == 3 * SPLITS - 2
    assert run(study, tmp_path).table.iloc[-1]["failed"] == 2


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
    assert "finite number is needed for ('third',)" in report.table["verdict"][0]


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
    with pytest.raises(KeyboardInterrupt):
        run(replace(study, tasks=(task,)), tmp_path)
    splits = sorted(int(name.split("-")[1]) for name in units(tmp_path))
    assert splits == [0, 1, 2, 3]


@pytest.mark.parametrize("arguments", [{"splits": 0}, {"cores": 0}, {"splits": 2.5}])
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
    assert set(report.table["row"]) == {"first"}
    # Nothing is run for rows that are not shown, and what is run is not run again.
    written = units(tmp_path, "shared")
    assert {tuple(unit["values"]) for unit in written.values()} == {("first", "second")}
    table = run(whole, tmp_path).table
    shared = units(tmp_path, "shared")
    assert written.items() <= shared.items()
    assert len(shared) == 3 * SPLITS
    assert set(table["row"]) == {"first", "second", "third"}
    assert (tmp_path / "part.csv").exists()
    assert not (tmp_path / "toy").exists()


# --- verdicts against the test that they stand for, and the table on paper -------------------

RNG = np.random.default_rng(3)
#: Thirty splits of mean 90 and standard deviation 2.
VALUES = tuple(90 + 2 * stats.zscore(RNG.normal(size=30), ddof=1))


def report(*cells, splits=30, published_splits=20, **changes):
    """Table of cells: (values, published, changes of errors, skip, row or reason)."""
    tasks, published, reasons, found = [], {}, {}, {}
    study = Study("toy", "A toy", "Nothing", (), splits, 1, published_splits=published_splits)
    for values, paper, told in cells:
        row = told.get("row", "method")
        task = Task("data", (row,), dict, {"width": 0.5}, told.get("skip"))
        tasks.append(task)
        if paper is not None:
            published[row, "data"] = paper
        if "reason" in told:
            reasons[row, "data"] = told["reason"]
        outcomes = [{"error": error} for error in told.get("errors", ())]
        outcomes += [{"values": {row: value}} for value in values]
        found |= {study.unit(task, i).name: outcome for i, outcome in enumerate(outcomes)}
    made = {"tasks": tuple(tasks), "published": published, "irreproducible": reasons}
    return tabulate(replace(study, **made, **changes), found, max(splits, len(found)))


def cell(values=VALUES, published=None, **told):
    return values, published, told


def line(published, values=VALUES, **options):
    """The one line of the table of one cell."""
    return report(cell(values, published), **options).table.iloc[0]


def verdict(published, values=VALUES, **options):
    return line(published, values, **options)["verdict"]


# --- verdicts --------------------------------------------------------------------------------

UNDECIDED, TOO_FEW = "undecided", "too few splits to tell"


@pytest.mark.parametrize(
    ("low", "high", "margin", "expected"),
    [
        (-1.0, 2.0, 2.0, "agrees"),
        (0.5, 1.9, 2.0, "agrees"),  # a difference beyond chance, but within the margin
        (-2.1, 1.0, 2.0, UNDECIDED),
        (1.5, 2.5, 2.0, UNDECIDED),
        (1.5, 3.5, 2.0, UNDECIDED),
        (-9.0, 9.0, 2.0, UNDECIDED),
        (-np.inf, np.inf, 2.0, UNDECIDED),
        (2.1, 9.0, 2.0, "differs"),
        (-9.0, -2.1, 2.0, "differs"),
        (1.5, 2.5, 3.0, "agrees"),
    ],
)
def test_verdict_is_where_the_interval_lies(low, high, margin, expected):
    assert study_module.verdict(low, high, margin) == expected


@pytest.mark.parametrize(
    ("ours", "paper", "splits", "reason", "expected"),
    [
        (90.0, Published(91.5, 1.0), 8, None, "agrees"),
        (90.0, Published(94.0, 1.0), 8, None, "differs"),
        (90.0, Published(94.0, 1.0), 8, "typo", "paper's cell cannot be reproduced: typo"),
        (90.0, Published(91.5, 1.0), 8, "typo", "agrees"),
        (90.0, Published(91.9, 1.0), 8, "typo", "paper's cell cannot be reproduced: typo"),
        (90.0, Published(94.0, 1.0), 2, "typo", TOO_FEW),
        (90.0, Published(91.5, 1.0), FEWEST - 1, None, TOO_FEW),
        (90.0, Published(91.5, 1.0), FEWEST, None, "agrees"),
        (90.0, None, 8, None, "not in the paper"),
        # The paper's deviation is the margin where it is larger than two points.
        (90.0, Published(93.0, 6.0), 8, None, "agrees"),
        (90.0, Published(93.0, 1.0), 8, None, "differs"),
        # Exact numbers on both sides, and the rounding of the printed one.
        (90.0, Published(92.0), 8, None, "agrees"),
        (90.0, Published(92.01), 8, None, "differs"),
        (90.0, Published(91.4, rounding=0.5), 8, None, "agrees"),
        (90.0, Published(91.6, rounding=0.5), 8, None, UNDECIDED),
        (90.0, Published(92.6, rounding=0.5), 8, None, "differs"),
    ],
)
def test_verdicts_on_the_same_number_in_every_split(ours, paper, splits, reason, expected):
    made = cell((ours,) * splits, paper, **({"reason": reason} if reason else {}))
    found = report(made, splits=splits, published_splits=30)
    assert found.table["verdict"][0] == expected


def test_numbers_that_are_not_in_per_cent_have_a_share_as_margin():
    """A tenth of the printed number, in the columns that the study names."""
    values = (160.0,) * 8
    assert line(Published(170.0), values, relative=("data",))["margin"] == pytest.approx(17.0)
    assert verdict(Published(170.0), values, relative=("data",)) == "agrees"
    assert verdict(Published(170.0), values) == "differs"
    assert verdict(Published(-170.0), values, relative=("data",)) == "differs"
    assert verdict(Published(2.0), (2.15,) * 8, relative=("data",)) == "agrees"


def test_five_wide_splits_prove_no_agreement():
    """Welch's test does not reject equal means here, which says nothing: 78 against 91."""
    values = (62.0, 70.0, 78.0, 86.0, 94.0)
    found = line(Published(91.1, 1.15), values, splits=5, published_splits=30)
    assert found["low"] < -2.0 < 2.0 < found["high"]
    assert found["verdict"] == UNDECIDED


def test_undecided_cells_of_unfinished_studies_have_too_few_splits():
    values = (62.0, 70.0, 78.0, 86.0, 94.0)
    assert verdict(Published(91.1, 1.15), values, splits=6, published_splits=30) == TOO_FEW
    assert verdict(Published(91.1, 1.15), (78.0,) * 5, splits=6, published_splits=30) == "differs"
    elsewhere = report(cell(values, Published(91.1, 1.15), skip="no data"), splits=6)
    assert elsewhere.table["verdict"][0] == TOO_FEW


def test_studies_whose_units_failed_are_finished():
    values = (62.0, 70.0, 78.0, 86.0, 94.0)
    for errors, expected in (((), TOO_FEW), (("no answer",), UNDECIDED)):
        made = cell(values, Published(91.1, 1.15), errors=errors)
        table = report(made, splits=6, published_splits=30).table
        assert table["verdict"][0] == expected
        assert table["left"][0] == 1 - len(errors)


def just(distance):
    """Numbers a hair nearer and farther than `distance` from our mean."""
    return 90 + distance * (1 - 1e-6), 90 - distance * (1 + 1e-6)


@pytest.mark.parametrize("rounding", [0.0, 0.5])
def test_interval_is_welchs(rounding):
    """Unequal deviations, unequal numbers of splits; widened by the rounding."""
    ours, theirs = 2**2 / 30, 1.5**2 / 20
    degrees = (ours + theirs) ** 2 / (ours**2 / 29 + theirs**2 / 19)
    reach = rounding + np.sqrt(ours + theirs) * stats.t(degrees).ppf(0.975)
    found = line(Published(91.0, 1.5, rounding))
    np.testing.assert_allclose([found["low"], found["high"]], [-1 - reach, -1 + reach])
    agreeing = [verdict(Published(m, 1.5, rounding)) for m in just(2.0 - reach)]
    assert agreeing == ["agrees", UNDECIDED]
    differing = [verdict(Published(m, 1.5, rounding)) for m in just(2.0 + reach)]
    assert differing == [UNDECIDED, "differs"]


@pytest.mark.parametrize("published_splits", [20, 2])
def test_without_a_printed_spread_only_our_splits_have_an_error(published_splits):
    """Student's interval of our mean, whatever the paper's splits."""
    found = line(Published(91.0), published_splits=published_splits)
    reach = 2 / 30**0.5 * stats.t(29).ppf(0.975)
    np.testing.assert_allclose([found["low"], found["high"]], [-1 - reach, -1 + reach])


def test_errors_of_both_kinds_are_rare():
    """At the edge of the margin each verdict is wrong with at most the level of its side."""
    rng = np.random.default_rng(1)
    n = 1_000
    pairs = zip(rng.normal(90, 2, (n, 10)), rng.normal(92, 2, (n, 10)), strict=True)
    verdicts = [verdict(Published(b.mean(), 1.9), tuple(a), published_splits=10) for a, b in pairs]
    for wrong in (verdicts.count("agrees"), verdicts.count("differs")):
        assert stats.binomtest(wrong, n, (1 - LEVEL) / 2, "greater").pvalue > ALPHA


@pytest.mark.parametrize("spread", [0.0, np.nan])
@pytest.mark.parametrize(("ours", "expected"), [(582.647, "agrees"), (582.652, "differs")])
def test_a_number_without_splits_is_met_to_its_last_digit(spread, ours, expected):
    made = report(cell((ours,), Published(582.6, spread, 0.05)), splits=1, published_splits=1)
    assert made.table["verdict"].tolist() == [expected]


def test_claims_are_tested_on_pairs_of_splits(tmp_path):
    pairs = ("first", "second"), ("first", "third"), ("second", "third")
    study = replace(a_study(), claims=(Claim("first is higher", pairs),))
    found = run(study, tmp_path)
    # The right column has no row "third".
    pairs_found = [row[1:4] for row in found.tested()]
    assert sorted(pairs_found) == sorted(
        [("left", *pair) for pair in pairs] + [("right", "first", "second")]
    )
    table = found.table.set_index(["row", "column"])["values"]
    one, other = table["second", "left"], table["third", "left"]
    *_, difference, p = next(row for row in found.tested() if row[2:4] == ("second", "third"))
    assert difference.startswith(f"{np.mean(one) - np.mean(other):+.2f}")
    assert float(p) == pytest.approx(stats.ttest_rel(one, other).pvalue, rel=0.06, abs=0)


def test_splits_that_failed_leave_no_pairs(tmp_path):
    seeds = [a_study().seed_of("left", split) for split in (3, 5)]
    fails = [
        Task("left", (row,), sometimes_failing, {"bad": [seed], "row": row})
        for row, seed in zip(("third", "fourth"), seeds, strict=True)
    ]
    claim = Claim("first is higher", (("third", "fourth"), ("first", "second")))
    study = replace(a_study(), tasks=(*a_study().tasks[:2], *fails), claims=(claim,))
    assert {row[3] for row in run(study, tmp_path).tested()} == {"second"}


def test_the_rule_in_print_has_the_numbers_of_the_rule():
    said = study_module.RULE
    for number in (f"{LEVEL:.0%}".replace("%", " %"), f"{study_module.POINTS:g} points", "a tenth"):
        assert number in said
    assert (study_module.SHARE, FEWEST) == (0.1, 5)
    assert "fewer than five" in said


def test_a_printed_standard_error_is_made_a_standard_deviation():
    found = line(Published(90.0, 1.0), published_splits=25, spread="se")
    assert found["paper_sd"] == found["margin"] == pytest.approx(5.0)
    assert np.isnan(line(Published(90.0), published_splits=25, spread="se")["paper_sd"])


def test_an_empty_cell_says_why():
    cells = (
        cell((), Published(90.0), skip="the file is absent"),
        cell((), Published(90.0), errors=("ArithmeticError: no", "another"), row="failing"),
        cell((), Published(90.0), row="left"),
    )
    table = report(*cells, splits=3).table
    assert table["verdict"].tolist() == [
        "skipped: the file is absent",
        "failed: ArithmeticError: no",
        "not run",
    ]
    assert table["left"].tolist() == [0, 1, 3]
    assert table[["ours", "sd", "difference", "low", "high"]].isna().all(axis=None)


# --- table -----------------------------------------------------------------------------------


def test_printed_table():
    cells = (
        cell(published=Published(90.5, 1.0), errors=("no",)),
        cell(published=Published(90.5), row="exact"),
        cell(row="ours alone"),
        cell((90.0,), Published(91.0, 1.0), row="one split"),
    )
    assert report(*cells, splits=31).printed() == [
        ("data", "method", "90.50 ± 1.00", "90.00 ± 2.00", "30 (1 failed)",
         "-0.50 (-1.36 to +0.36)", "2.00", "agrees"),
        ("data", "exact", "90.50", "90.00 ± 2.00", "30", "-0.50 (-1.25 to +0.25)", "2.00",
         "agrees"),
        ("data", "ours alone", "", "90.00 ± 2.00", "30", "", "", "not in the paper"),
        ("data", "one split", "91.00 ± 1.00", "90.00", "1", "-1.00", "2.00", TOO_FEW),
    ]  # fmt: skip


def test_number_of_repetitions_is_that_of_the_records():
    few = cell((90.0,) * 5), cell((), row="not run"), cell((90.0,) * 3, row="fewer")
    assert report(*few).repetitions() == "3 to 5 of 30 splits"
    assert report(few[0]).repetitions() == "5 of 30 splits"
    assert report(few[1]).repetitions() == "none of 30 splits"


def test_the_file_holds_all_digits(tmp_path):
    made = run(a_study(), tmp_path)
    table = pd.read_csv(tmp_path / "toy.csv")
    pd.testing.assert_frame_equal(table, made.table.drop(columns="values"), rtol=1e-15)


def test_shown_table_wraps_without_losing_a_verdict():
    reason = "a reason of many words " * 6
    console = Console(width=110, color_system=None, record=True, file=StringIO())
    console.print(report(cell(published=Published(99.0, 1.0), reason=reason)))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 110
    words = "".join(ch for ch in shown if ch.isalpha())
    assert words.count("reason") >= 6
    assert "90.00 ± 2.00" in shown.replace("\n", " ")
    assert "30 of 30 splits. A cell agrees" in " ".join(shown.split())
