"""Numbers of sentences, from the constants and measured tables that have them.

A page writes ``{{ k_hat }}``, and the build fills it in; a name that is not here fails the build.
"""

from io import StringIO

import pandas as pd
from cards import DOCS
from papers import NO_DOWNLOADS, report
from scipy.stats import gmean

from kernelzoo.inference.diagnostics.compare import ERROR_RATE
from kernelzoo.inference.engine import convergence
from studies.__main__ import STUDIES


def table(name: str) -> pd.DataFrame:
    """Read the first table of ``docs/measured/NAME.md``."""
    text = (DOCS / "measured" / f"{name}.md").read_text(encoding="utf-8")
    (first, *_) = (part for part in text.split("\n\n") if part.startswith("| "))
    header, _, *body = (line[2:-2] for line in first.splitlines())
    lines = StringIO("\n".join([header, *body]))
    return pd.read_csv(lines, sep=r"\s*\|\s*", engine="python")


def ours(study: str) -> pd.Series:
    """Our means of a study by (row, column), where it has splits."""
    with NO_DOWNLOADS:
        cells = report(STUDIES[study]()).table
    return cells[cells["splits"] > 0].set_index(["row", "column"])["ours"]


def held_out() -> dict[str, str]:
    """Log loss of the default classifier beside the best of other packages, over the data sets."""
    losses = table("bench-heldout").pivot(index="data", columns="classifier", values="log loss")
    others = losses.loc[:, ~losses.columns.str.startswith("kernelzoo")].min(axis="columns")
    ratios = losses["kernelzoo"] / others
    return {
        "heldout_sets": str(len(ratios)),
        "heldout_lowest": str((ratios <= 1).sum()),
        "heldout_ratio": f"{gmean(ratios):.2f}",
        "heldout_median": f"{ratios.median():.2f}",
    }


def compiling(engine: str) -> str:
    """Seconds of compilation, least to largest over the models: first fit less second."""
    rows = table("bench-cold").set_index("engine").loc[[f"{engine}()"]]
    seconds = rows["first fit"] - rows["second"]
    return f"{seconds.min():.0f} to {seconds.max():.0f}"


def coverage_of_completion() -> str:
    """Per cent of hidden entries in 90 % intervals, least to largest over the kernels."""
    means = ours("kato-figure4")
    shares = means[means.index.get_level_values("row").str.endswith(": coverage")]
    return f"{shares.min():.0f} to {shares.max():.0f}"


def substitutions() -> dict[str, str]:
    """Text of each name."""
    covered = ours("girolami2005-coverage").xs("known truth", level="column")
    return {
        "k_hat": f"{convergence.LARGEST_USABLE}",
        "rhat_bound": f"{convergence.RHAT_BOUND}",
        "least_ess": f"{convergence.LEAST_ESS}",
        "runs_of_states": f"{convergence.RUNS_OF_STATES}",
        "draws_per_divergence": f"{1 / convergence.DIVERGING:,.0f}",
        "least_particles": f"{convergence.LEAST_PARTICLES}",
        "least_acceptance": f"{convergence.LEAST_ACCEPTANCE:.0%}".replace("%", " %"),
        "error_rate": f"{ERROR_RATE:.0%}".replace("%", " %"),
        "compiling_nuts": compiling("NUTS"),
        "compiling_smc": compiling("SMC"),
        "compiling_pathfinder": compiling("Pathfinder"),
        "coverage_of_completion": coverage_of_completion(),
        "coverage_of_weights_vb": f"{covered['VB: weights']:.0f}",
        "coverage_of_weights_gibbs": f"{covered['Gibbs: weights']:.0f}",
        **held_out(),
    }


#: By the name on the pages.
SUBSTITUTIONS = substitutions()
