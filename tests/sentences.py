"""Numbers of sentences that sum up a table: each function computes its own from the records."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median, stdev

from scipy.stats import gmean, ttest_rel

from studies.__main__ import STUDIES
from studies.study import tabulate

LEDGERS = Path(__file__).resolve().parents[1] / "docs" / "ledgers"
#: Columns of Kato's figures with classifiers.
LABELLED = ("mfeat", "digits200", "protein fold")


@cache
def report(name):
    study = STUDIES[name]()
    ledger = LEDGERS / f"{study.ledger or name}.jsonl"
    units = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    found = {f"{unit['recipe']}-{unit['split']}-{unit['seed']}": unit for unit in units}
    return tabulate(study, found, study.splits)


def cells(name, of):
    """A field of a study's table by (row, column), where it has splits."""
    table = report(name).table
    done = table[table["splits"] > 0]
    return dict(zip(zip(done["row"], done["column"], strict=True), done[of], strict=True))


def held_out_ratios():
    """Log loss by default over the best other's: mean of all sets, without one, and median."""
    text = (LEDGERS.parent / "measured" / "bench-heldout.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    own, others = {}, defaultdict(list)
    for data, classifier, loss, error, *_ in rows[2:]:
        if classifier == "kernelzoo":
            own[data] = float(loss), float(error)
        elif not classifier.startswith("kernelzoo"):
            others[data].append(float(loss))
    ratios = {data: loss / min(others[data]) for data, (loss, _) in own.items()}
    above = [data for data, ratio in ratios.items() if ratio > 1]
    assert len(own) - len(above) == 10
    assert not any(own[data][0] - min(others[data]) < own[data][1] for data in above)
    rest = [ratio for data, ratio in ratios.items() if data != "nutrimouse"]
    return [gmean([*ratios.values()]), gmean(rest), median(ratios.values())]


def errors_of_coverage():
    """Standard errors of the coverage of weights by VB and by Gibbs; and what limits.md says."""
    errors = cells("girolami2005-coverage", "values")
    values = [errors[f"{engine}: weights", "known truth"] for engine in ("VB", "Gibbs")]
    return [stdev(each) / len(each) ** 0.5 for each in values]


def learned_weights_of_one_scale():
    """Sets on which learned weights beat equal ones: of raw kernels, and of those of one scale."""
    better = []
    for study in ("zhang-mixture-weights", "zhang-mixture-weights-scaled"):
        ours = cells(study, "ours")
        pairs = [
            (ours[row, column], ours["equal weights", column])
            for row, column in ours
            if row == "leave-one-out log score"
        ]
        assert len(pairs) == 6
        better.append(sum(learned > equal for learned, equal in pairs))
    assert better == [6, 3]
    return better


def tests_of_learned_kernels():
    """Table 1 of zhang-mixture: tests in which the learned kernel is better, all, their level."""
    level, better, worse, rows = 0.05, 0, set(), report("zhang-mixture-table1").tested()
    for _, column, row, _, told, p in rows:
        if p and float(p) < level:
            better += told.startswith("+")
            worse |= {(row.partition(":")[0], column)} if told.startswith("-") else set()
    assert worse == {
        ("polynomial", "wine"),
        ("mixture", "wine"),
        ("linear", "soybean_small"),
        ("linear", "iris_uci"),
    }
    assert better + len(worse) + 3 == len(rows)
    return [better, len(rows), level]


def eps_chosen():
    """Alignments of target kernels with the eps that they chose, and those that agree, by table."""
    sets = {
        "zhang-mixture-table1": ("breast_cancer", "soybean_small", "wine", "iris_uci"),
        "zhang-mixture-table3": ("breast_cancer", "sonar"),
    }
    counts = []
    for name, columns in sets.items():
        told = [
            verdict
            for (row, column), verdict in cells(name, "verdict").items()
            if row.endswith("target alignment") and column in columns
        ]
        counts.append((len(told), told.count("agrees")))
    return [sum(each) for each in zip(*counts, strict=True)] + [n for each in counts for n in each]


def seconds_of_tanner_wong():
    """Seconds per split of TW1 and TW2, on the sets where both are run."""
    seconds = defaultdict(list)
    text = (LEDGERS / "zhang2004-table1.jsonl").read_text(encoding="utf-8")
    for unit in map(json.loads, text.splitlines()):
        if "seconds" in unit:
            seconds[*unit["values"], unit["column"]].append(unit["seconds"])
    means = {key: sum(each) / len(each) for key, each in seconds.items()}
    for column in ("ionosphere", "wine"):
        assert means["KNM-TW2", column] < means["KNM-TW1", column]
        assert len(seconds["KNM-TW1", column]) == len(seconds["KNM-TW2", column]) == 8
    return [means[f"KNM-{way}", c] for c in ("ionosphere", "wine") for way in ("TW1", "TW2")]


def gibbs_against_vb():
    """Error of WSum by Gibbs sampling less that by VB, on the same digits, and the p-value."""
    errors = defaultdict(dict)
    for study, row in (("mfeat-gibbs", "WSum"), ("mfeat", "WSum, from equal weights")):
        text = (LEDGERS / f"damoulas2009-{study}.jsonl").read_text(encoding="utf-8")
        for unit in map(json.loads, text.splitlines()):
            if row in unit["values"]:
                errors[study][unit["split"], unit["seed"]] = unit["values"][row]
    assert len(errors["mfeat-gibbs"]) == 14
    pairs = [(error, errors["mfeat"][trial]) for trial, error in errors["mfeat-gibbs"].items()]
    gibbs, vb = map(list, zip(*pairs, strict=True))
    return [sum(gibbs) / 14 - sum(vb) / 14, float(ttest_rel(gibbs, vb).pvalue)]


def gaps_at_half():
    """Kato's Figure 2: EM as printed less the mean, on M and the kernels; M less the kernels."""
    found = cells("kato-figure2", "ours")
    on_M, on_kernels, above = [], [], []
    for column in LABELLED:
        for part in ("small", "large"):
            areas = defaultdict(dict)
            for (row, of), area in found.items():
                method, _, matrix = row.partition(", 50 %: AUC of ")
                if of == column and matrix.endswith(f", {part} part"):
                    areas[method][matrix.partition(",")[0]] = area
            em, mean, zero = (areas[method] for method in ("EM as printed", "mean", "zero"))
            assert all(em[matrix] > max(mean[matrix], zero[matrix]) for matrix in em)
            kernels = em.keys() - {"M"}
            on_M += [em["M"] - mean["M"]] if part == "small" else []
            on_kernels += [em[kernel] - mean[kernel] for kernel in kernels]
            above += [em["M"] - em[kernel] for kernel in kernels]
    return [end(gaps) for gaps in (on_M, on_kernels, above) for end in (min, max)]


def gap_at_eighty():
    """Kato's Figure 3 on mfeat: the mean less EM as printed; and what the note says of the rest."""
    found = cells("kato-figure3", "values")

    def compared(method, other, ratio):
        pair = [found[f"{m}, {ratio} %: AUC of M, small part", "mfeat"] for m in (method, other)]
        test = ttest_rel(*pair)
        return 0.0 if test.pvalue > 0.05 else sum(pair[0]) / 30 - sum(pair[1]) / 30

    up_to = {"EM as printed": 60, "EM": 70}
    for method, last in up_to.items():
        gaps = {ratio: compared(method, "mean", ratio) for ratio in range(10, 90, 10)}
        assert all(gaps[ratio] > 0 for ratio in range(10, last + 10, 10))
        assert max(gaps, key=gaps.get) == last
        assert gaps[last + 10] == 0
        assert all(compared(method, "zero", ratio) > 0 for ratio in gaps)
    return [-compared("EM as printed", "mean", 80)]


def gains_of_learned_weights():
    """Leave-one-out weights less equal ones: least, largest; the most that scaled ones lose."""
    plain, scaled = (cells(f"zhang-mixture-weights{end}", "ours") for end in ("", "-scaled"))
    learned = {c: mean for (row, c), mean in plain.items() if row == "leave-one-out log score"}
    gains = [mean - plain["equal weights", column] for column, mean in learned.items()]
    losses = [mean - scaled["equal weights", column] for column, mean in learned.items()]
    assert len(gains) == 6
    assert sum(loss <= 0 for loss in losses) == 3
    return [min(gains), max(gains), max(losses)]
