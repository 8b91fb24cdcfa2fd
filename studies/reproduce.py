"""Tables of the papers, by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from kernelzoo.validation import check_name

from .damoulas2009 import table_2 as damoulas2009_table_2
from .damoulas2009_mfeat import table_6 as damoulas2009_table_6
from .damoulas2009_mfeat import table_7 as damoulas2009_table_7
from .damoulas2009_protein import RAW as damoulas2009_raw
from .damoulas2009_protein import tables_8_to_10 as damoulas2009_tables_8_to_10
from .damoulas2009_synthetic import study as damoulas2009_synthetic
from .girolami2005 import figure_3 as girolami2005_figure_3
from .girolami2005 import table_1 as girolami2005_table_1
from .girolami2005 import table_2 as girolami2005_table_2
from .girolami2005_coverage import coverage_study
from .kato_mkmc import figure_2 as kato_figure_2
from .kato_mkmc import figure_3 as kato_figure_3
from .kato_mkmc import figure_4 as kato_figure_4
from .report import Report
from .study import Study, run_study
from .zhang2004 import table_1 as zhang2004_table_1
from .zhang_mixture import table_1 as zhang_mixture_table_1
from .zhang_mixture import table_2 as zhang_mixture_table_2
from .zhang_mixture import table_3 as zhang_mixture_table_3
from .zhang_mixture_weights import learned_weights

__all__ = ["STUDIES", "reproduce"]

#: Functions that make the studies; some look for data files.
STUDIES: dict[str, Callable[[], Study]] = {
    "zhang2004-table1": zhang2004_table_1,
    "zhang-mixture-table1": zhang_mixture_table_1,
    "zhang-mixture-table2": zhang_mixture_table_2,
    "zhang-mixture-table3": zhang_mixture_table_3,
    "zhang-mixture-weights": learned_weights,
    "zhang-mixture-weights-scaled": partial(learned_weights, "scaled"),
    "zhang-mixture-weights-widths": partial(learned_weights, "widths"),
    "girolami2005-table1": girolami2005_table_1,
    "girolami2005-table2": girolami2005_table_2,
    "girolami2005-figure3": girolami2005_figure_3,
    "girolami2005-coverage": coverage_study,
    "damoulas2009-table2": damoulas2009_table_2,
    "damoulas2009-mfeat": damoulas2009_table_7,
    "damoulas2009-mfeat-gibbs": damoulas2009_table_6,
    "damoulas2009-synthetic": damoulas2009_synthetic,
    "damoulas2009-protein": damoulas2009_tables_8_to_10,
    "damoulas2009-protein-raw": partial(damoulas2009_tables_8_to_10, damoulas2009_raw),
    "kato-figure2": kato_figure_2,
    "kato-figure3": kato_figure_3,
    "kato-figure4": kato_figure_4,
}


def reproduce(
    name: str, out: Path, console: Console, *, splits: int | None = None, jobs: int = 1
) -> Report:
    """Run or resume a study, print its table, and write table and figure.

    Parameters
    ----------
    name : str
        One of ``STUDIES``.
    out : Path
        Folder for the units and the table. A study is resumed from the same folder.
    console : Console
        Output for the table.
    splits : int, optional
        Number of splits in place of the study's.
    jobs : int, default=1
        Number of processes.
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
