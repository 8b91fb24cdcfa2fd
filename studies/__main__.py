"""Run or resume a table of a paper: ``python -m studies NAME`` from the root of a checkout.

``python -m studies demo`` fits two models with several engines and compares them.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from . import (
    damoulas2009,
    damoulas2009_synthetic,
    demo,
    girolami2005,
    girolami2005_coverage,
    kato,
    zhang2004,
    zhang_mixture,
)
from .study import Study, run_study

#: Functions that make the studies; some look for data files.
STUDIES: dict[str, Callable[[], Study]] = {
    "zhang2004-table1": zhang2004.table_1,
    "zhang-mixture-table1": zhang_mixture.table_1,
    "zhang-mixture-table2": zhang_mixture.table_2,
    "zhang-mixture-table3": zhang_mixture.table_3,
    "zhang-mixture-weights": partial(zhang_mixture.learned_weights, "types"),
    "zhang-mixture-weights-scaled": partial(zhang_mixture.learned_weights, "scaled"),
    "zhang-mixture-weights-widths": partial(zhang_mixture.learned_weights, "widths"),
    "girolami2005-table1": girolami2005.table_1,
    "girolami2005-table2": girolami2005.table_2,
    "girolami2005-figure3": girolami2005.figure_3,
    "girolami2005-coverage": girolami2005_coverage.coverage_study,
    "damoulas2009-table2": damoulas2009.table_2,
    "damoulas2009-mfeat": damoulas2009.table_7,
    "damoulas2009-mfeat-gibbs": damoulas2009.table_6,
    "damoulas2009-synthetic": damoulas2009_synthetic.study,
    "damoulas2009-protein": partial(damoulas2009.tables_8_to_10, damoulas2009.SCALED),
    "damoulas2009-protein-raw": partial(damoulas2009.tables_8_to_10, damoulas2009.RAW),
    "damoulas2009-protein-unit": partial(damoulas2009.tables_8_to_10, damoulas2009.UNIT),
    "kato-figure2": kato.figure_2,
    "kato-figure3": kato.figure_3,
    "kato-figure4": kato.figure_4,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or resume a study, print its table and write it; or run the demonstration."""
    parser = argparse.ArgumentParser(prog="studies", description=__doc__)
    parser.add_argument("name", choices=["demo", *STUDIES], metavar="NAME", help=", ".join(STUDIES))
    parser.add_argument("--splits", type=int, help="in place of the paper's number")
    parser.add_argument("--cores", type=int, default=1, help="processes")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the output")
    options = parser.parse_args(arguments)
    # Output to a file is not cut to a terminal's width.
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.name == "demo":
        demo.run(options.out, console)
        return 0
    if options.cluster is not None:
        from distributed import Client

        Client(options.cluster)  # becomes the active client, which `run_study` uses
    study = STUDIES[options.name]()
    try:
        report = run_study(study, options.out, splits=options.splits, cores=options.cores)
    except KeyboardInterrupt:
        console.print("Stopped: finished splits are kept; the same command resumes the study.")
        return 130
    console.print(report)
    units = options.out / (study.ledger or study.name)
    console.print(f"written: {options.out / study.name}.csv, {units}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
