"""Tables of the papers, by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from kernelzoo.validation import check_name

from . import (
    damoulas2009,
    damoulas2009_mfeat,
    damoulas2009_protein,
    damoulas2009_synthetic,
    girolami2005,
    girolami2005_coverage,
    kato_mkmc,
    zhang2004,
    zhang_mixture,
    zhang_mixture_weights,
)
from .report import Report
from .study import Study, run_study

__all__ = ["STUDIES", "reproduce"]

#: Functions that make the studies; some look for data files.
STUDIES: dict[str, Callable[[], Study]] = {
    "zhang2004-table1": zhang2004.table_1,
    "zhang-mixture-table1": zhang_mixture.table_1,
    "zhang-mixture-table2": zhang_mixture.table_2,
    "zhang-mixture-table3": zhang_mixture.table_3,
    "zhang-mixture-weights": zhang_mixture_weights.learned_weights,
    "zhang-mixture-weights-scaled": partial(zhang_mixture_weights.learned_weights, "scaled"),
    "zhang-mixture-weights-widths": partial(zhang_mixture_weights.learned_weights, "widths"),
    "girolami2005-table1": girolami2005.table_1,
    "girolami2005-table2": girolami2005.table_2,
    "girolami2005-figure3": girolami2005.figure_3,
    "girolami2005-coverage": girolami2005_coverage.coverage_study,
    "damoulas2009-table2": damoulas2009.table_2,
    "damoulas2009-mfeat": damoulas2009_mfeat.table_7,
    "damoulas2009-mfeat-gibbs": damoulas2009_mfeat.table_6,
    "damoulas2009-synthetic": damoulas2009_synthetic.study,
    "damoulas2009-protein": damoulas2009_protein.tables_8_to_10,
    "damoulas2009-protein-raw": partial(
        damoulas2009_protein.tables_8_to_10, damoulas2009_protein.RAW
    ),
    "kato-figure2": kato_mkmc.figure_2,
    "kato-figure3": kato_mkmc.figure_3,
    "kato-figure4": kato_mkmc.figure_4,
}


def reproduce(
    name: str, out: Path, console: Console, *, splits: int | None = None, jobs: int = 1
) -> Report:
    """Run or resume a study by name, print its table, and write table and figure.

    A study is resumed from the same folder `out`. Other arguments are those of `run_study`.
    """
    study = STUDIES[check_name(name, STUDIES, "NAME", "reproduce")]()
    report = run_study(study, out, splits=splits, jobs=jobs)
    files = [f"{name}.csv", f"{name}.md", f"{study.ledger or name}/"]
    if study.draw is not None:
        files.append(f"{name}.png")
        study.draw(report).savefig(out / files[-1], dpi=120)
    console.print(report)
    if report.interrupted:
        console.print("Stopped: finished splits are kept; the same command resumes the study.")
    console.print(f"written: {', '.join(str(out / file) for file in files)}")
    return report
