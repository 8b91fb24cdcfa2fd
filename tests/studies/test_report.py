"""Verdicts against the test they stand for, and the table on paper."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from family import ALPHA
from studies.report import FEWEST, LEVEL, Cell, Published, Report
from studies.study import Study, Task

RNG = np.random.default_rng(3)
#: Thirty splits of mean 90 and standard deviation 2.
VALUES = tuple(90 + 2 * stats.zscore(RNG.normal(size=30), ddof=1))


def cell(values=VALUES, published=None, **changes):
    empty = Cell("method", "data", values, (), len(values), None, published, None)
    return replace(empty, **changes)


def report(*cells, published_splits=20, **changes):
    task = Task("data", ("method",), dict, {"width": 0.5})
    study = Study("toy", "A toy", "Nothing", (task,), 30, 1, published_splits=published_splits)
    return Report(replace(study, **changes), cells)


def line(published, values=VALUES, **options):
    """The one line of the table of one cell."""
    return report(cell(values, published), **options).table.iloc[0]


def verdict(published, values=VALUES, **options):
    return line(published, values, **options)["verdict"]


# --- verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "paper", "splits", "reason", "expected"),
    [
        (90.0, Published(90.3, 1.0), 8, None, "agrees"),
        (90.0, Published(91.0, 1.0), 8, None, "differs"),
        (90.0, Published(91.0, 1.0), 8, "typo", "paper's cell cannot be reproduced: typo"),
        (90.0, Published(90.3, 1.0), 8, "typo", "agrees"),
        (90.0, Published(91.0, 1.0), FEWEST - 1, None, "too few splits"),
        (90.0, Published(91.0, 1.0), FEWEST, None, "differs"),
        (90.0, None, 8, None, "not in the paper"),
        (90.0, Published(90.001, 0.0), 8, None, "agrees"),
        (90.0, Published(90.1, 0.0), 8, None, "differs"),
        (90.0, Published(90.001), 8, None, "agrees"),
        (90.0, Published(90.1), 8, None, "differs"),
        (90.4, Published(90.0, 0.1, rounding=0.5), 8, None, "agrees"),
        (90.0, Published(90.4, 0.1, rounding=0.5), 8, None, "agrees"),
        (90.0, Published(90.7, 0.1, rounding=0.5), 8, None, "differs"),
        (90.4, Published(90.0, rounding=0.5), 8, None, "agrees"),
        (90.0, Published(90.7, rounding=0.5), 8, None, "differs"),
    ],
)
def test_verdicts_on_the_same_number_in_every_split(ours, paper, splits, reason, expected):
    made = cell((ours,) * splits, paper, irreproducible=reason)
    assert report(made, published_splits=30).table["verdict"][0] == expected


def just(distance):
    """Numbers a hair nearer and farther than `distance` from our mean."""
    return 90 + distance * (1 - 1e-6), 90 - distance * (1 + 1e-6)


def test_verdict_turns_where_the_two_means_differ_beyond_chance():
    """Welch's test at its level: unequal deviations, unequal numbers of splits."""
    ours, theirs = 2**2 / 30, 5**2 / 20
    degrees = (ours + theirs) ** 2 / (ours**2 / 29 + theirs**2 / 19)
    near, far = just(np.sqrt(ours + theirs) * stats.t(degrees).isf(LEVEL / 2))
    assert [verdict(Published(mean, 5.0)) for mean in (near, far)] == ["agrees", "differs"]
    assert line(Published(near, 5.0))["standard_error"] == pytest.approx(np.sqrt(ours + theirs))


@pytest.mark.parametrize("rounding", [0.0, 0.5])
@pytest.mark.parametrize("published_splits", [20, 2])
def test_without_a_printed_spread_our_standard_error_and_the_rounding_decide(
    rounding, published_splits
):
    """Student's test of our mean against the printed number, whatever the paper's splits."""
    options = {"published_splits": published_splits}
    near, far = just(rounding + 2 / 30**0.5 * stats.t(29).isf(LEVEL / 2))
    assert verdict(Published(near, rounding=rounding), **options) == "agrees"
    assert verdict(Published(far, rounding=rounding), **options) == "differs"
    assert line(Published(near), **options)["standard_error"] == pytest.approx(2 / 30**0.5)
    # With a spread the same distance may be the paper's own chance.
    assert verdict(Published(far, 5.0, rounding=rounding), **options) == "agrees"


def test_recipes_that_are_the_papers_differ_at_the_level():
    """Over many pairs of samples of one law; without rounding the share is the level."""
    rng = np.random.default_rng(1)
    n = 2_000
    samples = rng.normal(90, 2, size=(n, 10))
    alone = [verdict(Published(90.0), tuple(x)) for x in samples[: n // 2]]
    pairs = zip(samples[: n // 2], samples[n // 2 :], strict=True)
    paired = [
        verdict(Published(b.mean(), b.std(ddof=1)), tuple(a), published_splits=10) for a, b in pairs
    ]
    for verdicts in (alone, paired):
        differ = verdicts.count("differs")
        assert stats.binomtest(differ, len(verdicts), LEVEL).pvalue > ALPHA


@pytest.mark.parametrize("published", [Published(582.6, 0.0, 0.05), Published(582.6, None, 0.05)])
@pytest.mark.parametrize(("ours", "expected"), [(582.647, "agrees"), (582.652, "differs")])
def test_a_number_without_splits_is_met_to_its_last_digit(published, ours, expected):
    made = report(cell((ours,), published), published_splits=1)
    assert made.table["verdict"].tolist() == [expected]
    assert "printed number" in made.rule()


def test_a_printed_standard_error_is_made_a_standard_deviation():
    found = line(Published(90.0, 1.0), published_splits=25, spread="se")
    assert found["paper_sd"] == pytest.approx(5.0)
    assert found["standard_error"] == pytest.approx(np.hypot(2 / 30**0.5, 1.0))
    assert np.isnan(line(Published(90.0), published_splits=25, spread="se")["paper_sd"])


def test_an_empty_cell_says_why():
    cells = (
        cell((), Published(90.0), skip="the file is absent", errors=("no",)),
        cell((), Published(90.0), errors=("ArithmeticError: no", "another"), wanted=3),
        cell((), Published(90.0), wanted=3),
    )
    table = report(*cells).table
    assert table["verdict"].tolist() == [
        "skipped: the file is absent",
        "failed: ArithmeticError: no",
        "not run",
    ]
    assert table["left"].tolist()[1:] == [1, 3]
    assert table[["ours", "sd", "difference", "standard_error"]].isna().all(axis=None)


# --- table -----------------------------------------------------------------------------------


def rows_of(markdown):
    lines = [entry for entry in markdown.splitlines() if entry.startswith("| data ")]
    return [[part.strip() for part in entry.strip("|").split(" | ")] for entry in lines]


def test_printed_table():
    cells = (
        cell(published=Published(90.5, 1.0), errors=("no",)),
        cell(published=Published(90.5), row="exact"),
        cell(row="ours alone"),
        cell((90.0,), Published(91.0, 1.0), row="one split"),
    )
    assert rows_of(report(*cells).markdown())[1:] == [
        ["data", "method", "90.50 ± 1.00", "90.00 ± 2.00", "30 (1 failed)", "-0.50", "0.43",
         "agrees"],
        ["data", "exact", "90.50", "90.00 ± 2.00", "30", "-0.50", "0.37", "agrees"],
        ["data", "ours alone", "", "90.00 ± 2.00", "30", "", "", "not in the paper"],
        ["data", "one split", "91.00 ± 1.00", "90.00", "1", "-1.00", "", "too few splits"],
    ]  # fmt: skip


def test_rule_says_what_stands_behind_the_numbers():
    with_spread = report(cell(published=Published(90.0, 1.0)), cell())
    assert "20 splits and prints a standard deviation" in with_spread.rule()
    by_error = report(cell(published=Published(90.0, 1.0)), spread="se")
    assert "prints a standard error" in by_error.rule()
    assert "counts as exact" not in with_spread.rule()
    assert "counts as exact" in report(cell(published=Published(90.0))).rule()


def test_files_hold_all_digits_and_the_settings(tmp_path):
    made = report(cell(published=Published(90.5, 1.0)), notes="A remark.")
    made.write(tmp_path / "folder")
    table = pd.read_csv(tmp_path / "folder" / "toy.csv")
    pd.testing.assert_frame_equal(table, made.table, rtol=1e-15)
    text = (tmp_path / "folder" / "toy.md").read_text(encoding="utf-8")
    assert "A remark." in text
    settings = next(entry for entry in text.splitlines() if entry.startswith("- data, method: "))
    assert json.loads(settings.split("`")[1]) == {"width": 0.5}


def test_entries_cannot_break_the_table():
    made = cell((), errors=("ValueError: a | b\nand more",))
    (row,) = [x for x in report(made).markdown().splitlines() if "a " in x and "failed" in x]
    assert r"a \| b and more" in row
    assert row.replace(r"\|", "").count("|") == 9


def test_shown_table_wraps_without_losing_a_verdict():
    reason = "a reason of many words " * 6
    shown = repr(report(cell(published=Published(99.0, 1.0), irreproducible=reason)))
    assert max(map(len, shown.splitlines())) <= 110
    words = "".join(ch for ch in shown if ch.isalpha())
    assert words.count("reason") >= 6
    assert "90.00 ± 2.00" in shown.replace("\n", " ")
