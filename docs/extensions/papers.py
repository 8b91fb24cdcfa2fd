"""Pages of the papers: models, notation, equations, open points, and tables beside ours."""

import re
from dataclasses import dataclass
from pathlib import Path

from cards import CARDS, diagram, rst
from docstrings import sections

import kernelzoo as kz
from kernelzoo.models import Declaration
from studies.reproduce import STUDIES
from studies.study import Study, read_units, tabulate

__all__ = ["PAPERS", "Paper", "pages"]

DOCS = Path(__file__).resolve().parents[1]
#: Units of finished studies, joined by `cat NAME/*.json > NAME.jsonl`;
#: a study without one shows the paper's numbers and its command.
LEDGERS = DOCS / "ledgers"


@dataclass(frozen=True)
class Paper:
    """A paper and where it is in the project.

    Attributes
    ----------
    slug, heading : str
        File, and heading in ``docs/equations.md``.
    question : str
        What the paper asks and answers.
    models : tuple of type
    studies : str
        Prefix of the studies' names.
    notebooks : tuple of str
    """

    slug: str
    heading: str
    question: str
    models: tuple[type[Declaration], ...]
    studies: str
    notebooks: tuple[str, ...]

    def page(self, equations: dict[str, str]) -> str:
        """Text of the page."""
        reference, _, rows = equations[self.heading].partition("\n\n")
        links = [f"[{name}](../gallery/{name}.ipynb)" for name in self.notebooks]
        parts = [f"# {self.heading}", reference, self.question]
        parts.append("Read on in the notebook: " + ", ".join(links) + ".")
        for model in self.models:
            parts += _of_model(model)
        parts += ["## Equations", f"Modules are relative to `kernelzoo`.\n\n{rows}"]
        studies = {name: make() for name, make in STUDIES.items() if name.startswith(self.studies)}
        parts += ["## What the paper leaves open", _left_open(studies)]
        parts.append("## Tables and figures")
        parts += [_of_study(name, study) for name, study in studies.items()]
        return "\n\n".join(parts) + "\n"


def _of_model(model: type[Declaration]) -> list[str]:
    told = sections(model)
    summary, _, formulas = told[""].partition("\n\n")
    own = [card for card in CARDS if card.model is model]
    cards = ", ".join(f"[{card.variant or 'defaults'}](../cards/{card.slug}.md)" for card in own)
    return [
        f"## {model.__name__}",
        f"{summary} [Reference](../api/kernelzoo.{model.__name__}.rst); cards: {cards}.",
        rst(formulas),
        f'```{{raw}} html\n<figure class="plates">{diagram(own[0])}</figure>\n```',
        f"### Notation of {model.__name__}",
        rst(told.get("Notes", "")),
    ]


def _left_open(studies: dict[str, Study]) -> str:
    notes = dict.fromkeys(study.notes for study in studies.values() if study.notes)
    reasons = dict.fromkeys(r for study in studies.values() for r in study.irreproducible.values())
    points = [f"- {note}" for note in notes]
    points += [f"- A cell of a table cannot be reproduced: {reason}." for reason in reasons]
    return (
        "Where an equation is wrong as printed, the table above says so. The studies note:\n\n"
        + "\n".join(points)
    )


def _of_study(name: str, study: Study) -> str:
    ledger = LEDGERS / f"{study.ledger or name}.jsonl"
    # A table is run again when its recipe changes, not for each version; it names its versions.
    units = read_units(LEDGERS, ledger.stem)
    report = tabulate(study, units, study.splits, any_version=True)
    lines = report.markdown().splitlines()
    table = [line for line in lines if line.startswith("|")]
    source = f"ledger `docs/ledgers/{ledger.name}`, by kernelzoo {', '.join(_versions(units))}"
    if not ledger.exists():
        # Without a run there is nothing of ours to show.
        table = [_columns(line, 3) for line in table]
        table = table if study.published else []
        source = "numbers as printed in the paper, from `studies/`; ours are not in this build"
    title = study.title if name not in study.title else name
    told = "\n".join(table)
    return (
        f"### {title} ({name})\n\n{study.measure}; {study.splits} splits.\n\n{told}\n\n"
        f"Source: {source}. To make or resume it:\n\n"
        f"```\npython -m studies {name}\n```"
    )


def _versions(units: list[dict[str, str]]) -> list[str]:
    """Versions that made units; the first one did not say so."""
    return sorted({record.get("kernelzoo", "0.1.0") for record in units})


def _columns(row: str, first: int) -> str:
    return "|".join(re.split(r"(?<!\\)\|", row)[: first + 1]) + "|"


PAPERS = (
    Paper(
        "damoulas2009",
        "Damoulas & Girolami (2009)",
        "Objects are described in several ways, each by a kernel. The paper learns one multiclass "
        "classifier on a weighted sum, a product or a selection of the kernels, by Gibbs sampling "
        "and by variational Bayes, and compares this with combining one classifier a description.",
        (kz.MultinomialProbit,),
        "damoulas2009",
        ("damoulas2009", "damoulas2009_spaces"),
    ),
    Paper(
        "girolami2005",
        "Girolami & Rogers (2005)",
        "Which kernels matter for a response? The paper gives the weights of a composite kernel a "
        "Dirichlet prior with learned concentrations, and finds them by variational Bayes in "
        "regression and in classification of two classes.",
        (kz.CompositeKernelRegression, kz.CompositeKernelClassification),
        "girolami2005",
        ("girolami2005",),
    ),
    Paper(
        "zhang2004",
        "Zhang, Yeung & Kwok (2004)",
        "Can a kernel matrix itself be learned? Part of it is known, the block of the training "
        "objects; a Wishart model with an ordinary kernel as its prior completes the rest. The "
        "paper samples by data augmentation; the posterior can also be drawn from directly.",
        (kz.WishartCompletion, kz.DiagonalWishartCompletion),
        "zhang2004",
        ("zhang2004",),
    ),
    Paper(
        "zhang2003",
        "Zhang, Yeung & Kwok (2003)",
        "The same completion with several kernels as its prior: a mixture of Wishart matrices is "
        "matched by one, and EM completes the kernel.",
        (kz.WishartKernelMixture,),
        "zhang-mixture",
        ("zhang_mixture",),
    ),
    Paper(
        "kato2017",
        "Kato & Rivero (2017)",
        "Several kernels describe the same objects, and each lacks some of them. The paper "
        "completes them from one another through a common model matrix. Here its algorithm is the "
        "mode of a declared model, so that entries can be sampled, too.",
        (kz.MutualKernelCompletion,),
        "kato",
        ("kato_mkmc",),
    ),
)

INTRODUCTION = """\
# The papers

Each page has the paper's models with their diagrams, the notation beside the names in the code,
where each equation is,
what the paper leaves open, and its tables beside ours.
"""


def pages() -> dict[str, str]:
    """Write the pages of the papers and their index by their file in ``docs``."""
    text = (DOCS / "equations.md").read_text(encoding="utf-8")
    headed = (part.partition("\n") for part in text.split("\n## ")[1:])
    equations = {heading: rest.strip() for heading, _, rest in headed}
    written = {f"papers/{paper.slug}.md": paper.page(equations) for paper in PAPERS}
    entries = "\n".join(f"- [{p.heading}]({p.slug}.md): {p.question}" for p in PAPERS)
    tree = "\n".join(paper.slug for paper in PAPERS)
    written["papers/index.md"] = (
        f"{INTRODUCTION}\n{entries}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    return written
