"""Every public name has a page and an example that runs; tables of numbers name their source."""

import ast
import doctest
import inspect
import json
import operator
import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from certificates.variants import VARIANTS
from family import assert_z
from kernelzoo.inference.gaussian_process.inla import integrate_gaussian_process

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(DOCS / "extensions"), str(DOCS), *sys.path])
    import api
    import cards
    import check
    import draw_plates
    import draw_references
    import evidence
    import markup
    import papers
    import substitutions

HOWTO = sorted(DOCS.glob("howto/*.md"))
NAMES = {name.qualified: name for name in api.public_names()}
#: Engines whose examples compile, or take many steps.
LONG = re.compile(r"NUTS|nuts|SMC|Pathfinder|ADVI|Laplace|recommend")


class RunsOnly(doctest.OutputChecker):
    """Examples without an expected output need only run."""

    def check_output(self, want, got, optionflags):
        return not want or super().check_output(want, got, optionflags)


def examples(name):
    return doctest.DocTestParser().get_examples(inspect.getdoc(name.value) or "")


@pytest.fixture(scope="module")
def namespace():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import docstring_namespace
    return docstring_namespace


@pytest.fixture
def short_runs(monkeypatch):
    """Let examples that leave the numbers of draws and points to the defaults take few."""
    few = {"draws": 20, "tune": 20, "chains": 2, "cores": 1, "progressbar": False}
    defaults = {**kz.fit.__kwdefaults__, **few}
    monkeypatch.setattr(kz.fit, "__kwdefaults__", defaults)
    pointed = {**integrate_gaussian_process.__kwdefaults__, "max_points": 64}
    monkeypatch.setattr(integrate_gaussian_process, "__kwdefaults__", pointed)
    thinned = {**kz.completion.complete_kernels.__kwdefaults__, "thin": 2}
    monkeypatch.setattr(kz.completion.complete_kernels, "__kwdefaults__", thinned)


def cases():
    for qualified, name in NAMES.items():
        source = "".join(example.source for example in examples(name))
        marks = [pytest.mark.slow] if LONG.search(source) else []
        yield pytest.param(name, id=qualified, marks=marks)


def test_every_public_name_has_a_page():
    written = api.pages()
    for space, module in api.namespaces().items():
        listed = {n.name for n in NAMES.values() if n.space == space}
        inner = {*api.namespaces(), *(f"kz.{n.name}" for n in NAMES.values() if n.space != "kz")}
        assert {name for name in module.__all__ if f"kz.{name}" not in inner} <= listed
    assert {f"api/{qualified}.rst" for qualified in NAMES} <= written.keys()
    assert all(qualified in written["api/index.md"] for qualified in NAMES)


def test_every_public_name_leads_to_pages_that_explain_it():
    written = api.pages()
    for page in (written[f"api/{qualified}.rst"] for qualified in NAMES):
        lead = page.split("\n\n")[1]
        assert lead.startswith("Explained in :doc:`/"), page
        assert all((DOCS / f"{name}.md").exists() for name in re.findall(r"`/(.+?)`", lead)), lead


def test_engines_show_their_settings():
    shown, _ = api.signature_of_engine(None, "class", "kernelzoo.SMC", kz.SMC)
    assert shown == "(kernel='IMH')"
    assert api.signature_of_engine(None, "class", "kernelzoo.LearnedScale", kz.LearnedScale) is None


def test_a_public_name_without_a_task_is_found():
    names = [*NAMES.values()]
    assert sum(len(listed) for _, listed in api.by_task(names)) == len(names)
    with pytest.raises(ValueError, match="no group for new"):
        [*api.by_task([*names, api.Name("kz", "new", kz.fit)])]
    with pytest.raises(ValueError, match=r"fit of docs/api\.toml is not a public name"):
        [*api.by_task([name for name in names if name.name != "fit"])]


@pytest.mark.parametrize("name", [*cases()])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("short_runs")
def test_example_runs(name, namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = examples(name)
    assert found, f"{name.qualified} has no example"
    test = doctest.DocTest(found, namespace.names(), name.qualified, None, 0, None)
    failures = []
    runner = doctest.DocTestRunner(RunsOnly(), optionflags=doctest.ELLIPSIS)
    runner.run(test, out=failures.append)
    plt.close("all")
    assert not runner.failures, "".join(failures)


def test_checker_sees_wrong_outputs_and_errors():
    assert not RunsOnly().check_output("1\n", "2\n", 0)
    test = doctest.DocTestParser().get_doctest(">>> 1 / 0", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(RunsOnly(), verbose=False).run(test, out=str).failed == 1


def tables(text):
    """Tables of Markdown with numbers in their cells, with the three lines after them."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r"\|[-| :]+\|$", line)]
    for start in starts:
        end = start
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        cells = "\n".join(lines[start + 1 : end])
        numbers = re.search(
            r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])", re.sub(r"`[^`]*`|\(.*?\)", "", cells)
        )
        if numbers:
            yield lines[start - 1], "\n".join(lines[end : end + 4])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=path.relative_to(DOCS).as_posix())
        for path in sorted(DOCS.rglob("*.md"))
        if path.name != "equations.md"
        and path.relative_to(DOCS).parts[0] not in ("_build", "api", "cards", "papers", "gallery")
    ],
)
def test_tables_of_numbers_name_their_source(page):
    for header, after in tables(page.read_text(encoding="utf-8")):
        assert "Source:" in after, header


def test_a_table_without_a_source_is_found():
    table = "| engine | seconds |\n|---|---|\n| VB | 1.5 |\n\nMore text.\n"
    assert [header for header, after in tables(table) if "Source:" not in after]


FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1$", flags=re.MULTILINE | re.DOTALL)
#: Pages that are written by hand.
PAGES = [*sorted(DOCS.glob("*.md")), *HOWTO]


def test_sentences_are_filled_with_numbers():
    """No name is missing or left over; a renamed column of a table leaves no sentence without."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"\{\{\s*(\w+)\s*\}\}", text)}
    assert named == substitutions.SUBSTITUTIONS.keys()
    for name, filled in substitutions.SUBSTITUTIONS.items():
        assert re.fullmatch(r"\d[\d.,]*( to \d+| %)?", filled), name
    # GitHub shows it as it stands.
    assert "{{" not in (ROOT / "README.md").read_text(encoding="utf-8")


def not_run(text):
    """Blocks of Python on a page that do not run when the site is built."""
    executed = "file_format: mystnb" in text.partition("\n# ")[0]
    for _, kind, code in FENCE.findall(text):
        name = kind.split()[0] if kind.split() else "text"
        if name == "{code-cell}":
            runs = executed
        elif name == "text":
            # Commands, and code that cannot run here; the page says why.
            runs = "kz." not in code or "not run" in text
        else:
            # Other directives show files, which the tests run.
            runs = name not in ("python", "{code-block}")
        if not runs:
            yield code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_a_page_runs_when_the_site_is_built(page):
    assert not [*not_run(page.read_text(encoding="utf-8"))]


def test_a_block_that_does_not_run_is_found():
    cell, head = "```{code-cell}\nkz.fit\n```\n", "---\nfile_format: mystnb\n---\n# Page\n"
    assert not [*not_run(head + cell)]
    assert [*not_run("# Page\n" + cell)]
    for kind in ("python", "{code-block} python", ""):
        assert [*not_run(f"{head}```{kind}\nkz.fit\n```\n")]
    assert not [*not_run(f"{head}This is not run, for want of a GPU.\n```text\nkz.fit\n```\n")]


#: As many characters of code fit into the column of the site; notebooks/ruff.toml has the same.
WIDTH = 72


def wide_lines(text, folder=DOCS):
    """Lines of code on a page of a folder that its column cuts off."""
    for _, kind, code in FENCE.findall(text):
        if kind.startswith("{literalinclude}"):
            cut = dict(re.findall(r'^:([\w-]+): "(.*)"$', code, flags=re.MULTILINE))
            code = (folder / kind.split()[1]).read_text(encoding="utf-8")
            code = code[code.index(cut.get("start-at", "")) :]
            code = code[: code.find(cut.get("end-before", "no such line"))]
        elif kind.startswith("{") and kind.strip() != "{code-cell}":
            continue
        yield from (line for line in code.splitlines() if len(line) > WIDTH)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_code_fits_into_the_column(page):
    assert not [*wide_lines(page.read_text(encoding="utf-8"), page.parent)]


def test_code_that_the_column_cuts_off_is_found():
    for kind in ("python", "{code-cell}", ""):
        block = "```{}\n{}\n```\n".format
        assert not [*wide_lines(block(kind, "x" * 72))]
        assert [*wide_lines(block(kind, "x" * 73))]
    assert not [*wide_lines(block("{glossary}", "x" * 73))]


def test_code_of_a_file_that_the_column_cuts_off_is_found(tmp_path):
    (tmp_path / "file.py").write_text(f"{'x' * 73}\nshown\n{'y' * 73}\nhidden\n{'z' * 73}")
    block = '```{literalinclude} file.py\n:start-at: "shown"\n:end-before: "hidden"\n```\n'
    assert [*wide_lines(block, tmp_path)] == ["y" * 73]


def calls_of_nothing(text):
    """Code within lines that names or calls what kernelzoo does not have."""
    for code in re.findall(r"`([^`\n]*\bkz\.[^`\n]*)`", text.replace("\\|", "|")):
        try:
            nodes = list(ast.walk(ast.parse(code)))
        except SyntaxError:  # A name with a file, a sentence, an ellipsis between arguments.
            continue
        named = {}
        for node in nodes:
            path = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if re.fullmatch(r"kz(\.\w+)+", path):
                try:
                    named[path] = operator.attrgetter(path.removeprefix("kz."))(kz)
                except AttributeError:
                    yield code
        for node in nodes:
            called = named.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
            if called is None:
                continue
            keywords = {each.arg: ... for each in node.keywords if each.arg}
            partial = not node.args or "..." in ast.unparse(node)
            signature = inspect.signature(called)
            try:
                (signature.bind_partial if partial else signature.bind)(*node.args, **keywords)
            except TypeError:
                yield code


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_code_within_lines_exists(page):
    assert not [*calls_of_nothing(page.read_text(encoding="utf-8"))]


def test_calls_of_what_does_not_exist_are_found():
    assert not [*calls_of_nothing("`kz.VB(starts=1)`, `kz.fit(model, ...)` and `kz.plots`")]
    for wrong in (
        "kz.fti(model)",
        "kz.VB(start=1)",
        "kz.plots.plot_weight(x)",
        "kz.predict(model)",
    ):
        assert [*calls_of_nothing(f"Call `{wrong}`.")]


def python_of(page):
    text = page.read_text(encoding="utf-8")
    kinds = ("python", "{code-cell}")
    return "".join(code for _, kind, code in FENCE.findall(text) if kind.strip() in kinds)


def needing_more(text):
    """Calls on a page that fail without a program, or that PyMC will remove."""
    if "model_to_graphviz" in text and "model_to_mermaid" not in text:
        yield "model_to_graphviz needs dot: name model_to_mermaid beside it"
    yield from re.findall(r"idata_kwargs=\{[^}]*log_likelihood[^}]*\}", text)


SHOWN = [*PAGES, *sorted((DOCS / "templates").glob("*.md")), ROOT / "README.md"]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_calls_of_pymc_need_no_program_and_will_stay(page):
    assert not [*needing_more(page.read_text(encoding="utf-8"))]


def test_calls_of_pymc_that_need_more_are_found():
    assert [*needing_more("`pm.model_to_graphviz(model)`")]
    assert [*needing_more('`pm.sample(idata_kwargs={"log_likelihood": True})`')]
    assert not [*needing_more("`pm.model_to_graphviz(model)` or `pm.model_to_mermaid(model)`")]


def test_lines_of_the_readme_run_on_a_page():
    """README's Python is that of Start, which runs when the site is built."""
    run = {line.removesuffix(";") for line in python_of(DOCS / "start.md").splitlines()}
    lines = {line.partition("  #")[0] for line in python_of(ROOT / "README.md").splitlines()}
    assert len(lines) > 10
    assert lines <= {line.partition("  #")[0] for line in run}


def test_readme_says_how_many_engines_fit_a_model():
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    tables = (kz.engines(model.example()).frame["applies"] for model in kz.MODELS)
    most = words[max((applies != "no").sum() for applies in tables)]
    assert f"Up to {most} engines" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
def test_readme_shows_what_its_code_gives():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, score, _, table = (code for _, _, code in FENCE.findall(text)[:4])
    names = {}
    exec(compile(code, "README", "exec"), names)
    wine, data = names["wine"], names["data"]
    assert float(score) == pytest.approx(wine.score(data.X_test, data.y_test), abs=0.03)
    assert wine.result_.attrs["converged"] == "yes"
    for name, row in wine.weights_.to_dataframe().iterrows():
        (shown,) = (line.split() for line in table.splitlines() if line.startswith(name))
        assert [float(number) for number in shown[1:3]] == pytest.approx(
            [row["mean"], row["sd"]], abs=0.03
        )


def test_check_of_links_sees_what_is_broken(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there"></a><a href="c.html"></a><a href="https://example.org"></a>'
        '<script src="https://example.org/x.js"></script><a href="b.html#here"></a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    assert sorted(problem.partition(": ")[2] for problem in check.problems(tmp_path)) == [
        "b.html#there has no such place",
        "c.html does not exist",
        "loads https://example.org/x.js",
    ]


PAGE = "---\nfile_format: mystnb\nkernelspec: {{name: python3}}\n---\n# {}\n\n"


def test_a_cell_that_fails_loses_no_page_and_no_output(tmp_path):
    """All pages are written; the next build runs the cells of the failed one alone."""
    for module in ("myst_nb", "ipykernel", "pydata_sphinx_theme"):
        pytest.importorskip(module)
    source, built, runs = (tmp_path / name for name in ("source", "html", "runs"))
    source.mkdir()
    (source / "index.md").write_text("# Index\n\n```{toctree}\ngood\nbad\n```\n")
    counted = f"```{{code-cell}}\nprint(open({str(runs)!r}, 'a').write('run '), 'written')\n```\n"
    (source / "good.md").write_text(PAGE.format("Good") + counted)
    needed = f"```{{code-cell}}\nprint(open({str(tmp_path / 'needed')!r}).read())\n```\n"
    (source / "bad.md").write_text(PAGE.format("Bad") + needed)

    def build(*options):
        settings = {"extensions": "myst_nb,cells", "html_math_renderer": "mathjax"}
        settings["nb_execution_cache_path"] = tmp_path / "cells" / "of this code"
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-j", "2", "-c", DOCS, *options]
        command += [f"-D{name}={value}" for name, value in settings.items()]
        done = subprocess.run([*command, source, built], capture_output=True, text=True)
        assert "4 written" in (built / "good.html").read_text(encoding="utf-8"), done.stderr
        return done

    failed = build()
    assert failed.returncode == 1
    assert "bad.md: WARNING: Executing notebook failed" in failed.stderr
    assert "FileNotFoundError" in failed.stderr
    (tmp_path / "needed").write_text("now it is here")
    for options in ((), ("-E",)):
        done = build(*options)
        assert done.returncode == 0, done.stderr
        assert "now it is here" in (built / "bad.html").read_text(encoding="utf-8")
    assert runs.read_text() == "run "


def test_outputs_are_those_of_the_code(tmp_path):
    """Cells run anew when the package or its requirements change, not for prose."""
    pytest.importorskip("sphinx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
        import cells
    (tmp_path / "below").mkdir()
    packages = '[tool.setuptools]\npackages = ["kernelzoo", "kernelzoo.below"]\n'
    (tmp_path / "pyproject.toml").write_text(packages)
    (tmp_path / "README.md").write_text("prose")
    known = [cells.fingerprint(tmp_path)]
    for name in ("module.py", "below/module.py", "below/data.csv.gz", "constraints.txt"):
        (tmp_path / name).write_text("1")
        known.append(cells.fingerprint(tmp_path))
        (tmp_path / name).write_text("2")
        known.append(cells.fingerprint(tmp_path))
    assert len({*known}) == 9
    (tmp_path / "README.md").write_text("other prose")
    assert cells.fingerprint(tmp_path) == known[-1]


def test_escapes_keep_columns_and_literals():
    assert markup.escaped("a  object, object_   text") == "a  object, object\\_  text"
    told = markup.escaped("``object_`` (model, *, settings)")
    assert told == "``object_`` (model, \\*, settings)"
    assert markup.escaped(">>> object_, x") == ">>> object_, x"


def test_formulas_become_mathml():
    pytest.importorskip("docutils")
    assert "<msub>" in markup.to_mathml(r"\textstyle\sum_s \beta_s", block=True)


@pytest.mark.parametrize(
    ("plain", "typeset"),
    [
        ("sum_s beta_s K_s", r"$\sum_{s}$ $\beta_{s}$ $K_{s}$"),
        ("prod_s K_s^beta_s, by entry", r"$\prod_{s}$ $K_{s}^{\beta_{s}}$, by entry"),
        ("-D22.1^-1 = C'WC", r"-$D_{22.1}^{-1}$ = $C'WC$"),
        ("l, Q_vv", "$l$, $Q_{vv}$"),
        (
            "I-step: appendix A, E.5; M_vh,vh, y* of K_n'",
            "I-step: appendix A, E.5; $M_{vh,vh}$, $y^*$ of $K_{n}'$",
        ),
        ("a sum, 2 x 2, ~ Gamma; kernel's object_", "a sum, 2 x 2, ~ Gamma; kernel's object_"),
    ],
)
def test_symbols_of_tables_are_typeset(plain, typeset):
    found = markup.SYMBOL.sub(lambda symbol: f"${markup.to_tex(symbol)}$", plain)
    assert found == typeset


@pytest.mark.parametrize(
    ("plain", "tex"),
    [
        ("O(n1^3 + draws S)", r"O(n_{1}^{3} + \mathrm{draws} S)"),
        ("O(min(N, 10)^2 C^1.5)", r"O(\mathrm{min}(N, 10)^2 C^{1.5})"),
    ],
)
def test_costs_are_typeset(plain, tex):
    told = markup.FORMULA.sub(markup.to_tex, f"It costs {plain} (once).")
    assert told == f"It costs {tex} (once)."


@pytest.mark.parametrize(
    ("plain", "typeset"),
    [
        (
            "K_beta = sum_s beta_s K_s.",
            r"$K_{\beta}$ = $\sum_{s}$ $\beta_{s}$ $K_{s}$.",
        ),
        ("A density of M^-1.", "A density of $M^{-1}$."),
        ("N(a_y, I), a_0; k(x, l_1)", "N($a_{y}$, I), $a_{0}$; k(x, $l_{1}$)"),
        ("A class_0, W22_1 and a kernel", "A class_0, W22_1 and a kernel"),
        (
            "sigma^2 of I-step A, K_test, object_, n",
            r"$\sigma^{2}$ of I-step A, K_test, object_, n",
        ),
    ],
)
def test_symbols_of_sentences_are_typeset(plain, typeset):
    found = markup.FORMULA.sub(lambda f: f"${markup.to_tex(f)}$", plain)
    assert found == typeset


def test_code_of_equations_leads_to_its_page_or_its_engine():
    nodes = pytest.importorskip("docutils.nodes")
    names = [
        "models.distributions.wishart:Wishart.logp",
        "inference.multinomial_probit.vb_kernels:Normal",
        "numerics.wishart:Spectrum",
        "models.wishart_kernel_mixture:_matched_wishart",
        "inference.kernel_completion.wishart:completion_by_em",
        "inference.kernel_completion.wishart:draw_blocks",
    ]
    codes = [nodes.literal("", text) for text in names]
    container = nodes.paragraph("", "", *codes)
    api.link_code(None, container)
    targets = [child.get("reftarget") for child in container.children]
    assert targets == [
        "kernelzoo.distributions.Wishart",
        "kernelzoo.VB",
        None,
        "kernelzoo.WishartKernelMixture",
        "kernelzoo.EM",
        "kernelzoo.Exact",
    ]


@pytest.mark.parametrize("card", VARIANTS, ids=lambda card: card.slug)
def test_the_plates_of_a_card_are_those_of_its_model(card):
    drawing = (draw_plates.PLATES / f"{card.slug}.svg").read_text(encoding="utf-8")
    shown = draw_plates.drawn(drawing)
    assert shown == draw_plates.structure(card.example()), "draw it anew: docs/draw_plates.py"
    assert shown.arrows


@pytest.mark.parametrize("card", VARIANTS, ids=lambda card: card.slug)
def test_every_card_has_a_converged_reference_of_its_model(card):
    with xr.open_datatree(cards.REFERENCES / f"{card.slug}.nc") as reference:
        model = card.example()
        assert reference.attrs["model"] == type(model).__name__
        assert reference.attrs["variant"] == getattr(model, "variant", "")
        posterior = reference["posterior"].to_dataset()
        assert posterior.sizes["chain"] * posterior.sizes["draw"] == 400
        for name, variable in reference["summary"].data_vars.items():
            mean, sd, size = (variable.sel(statistic=s) for s in ("mean", "sd", "ESS"))
            drawn = (sd > 0).values
            assert (size.values[drawn] > 400).all()
            if "R-hat" in variable["statistic"]:
                assert (variable.sel(statistic="R-hat").values[drawn] <= 1.01).all()
            # The kept draws are a subset of those that the statistics summarise.
            error = sd / np.sqrt(np.minimum(size, 400) / 2)
            far = np.abs(posterior[name].mean(("chain", "draw")) - mean) / error
            assert_z(far.values[drawn])


def test_a_reference_is_drawn_from_its_card():
    (card,) = (card for card in VARIANTS if card.slug == "wishart")
    drawn = draw_references.draw(card, draws=1_000)["summary"]
    with xr.open_datatree(cards.REFERENCES / "wishart.nc") as reference:
        for name, there in reference["summary"].data_vars.items():
            here = drawn[name]
            error = np.hypot(here.sel(statistic="MCSE"), there.sel(statistic="MCSE"))
            assert_z((here - there).sel(statistic="mean") / error)
    text = cards.reference("wishart")
    assert "| `trace_K22` |" in text
    assert "Source: {download}`wishart.nc" in text


def test_a_card_without_a_reference_says_how_to_draw_it(tmp_path, monkeypatch):
    monkeypatch.setattr(cards, "REFERENCES", tmp_path)
    assert "python docs/draw_references.py wishart" in cards.reference("wishart")


def test_every_cell_of_the_certificates_leads_to_its_rows_on_a_card():
    table = evidence.read()
    made = table[table["engine"] != "declaration"].groupby("variant")["engine"].unique()
    page = evidence.page(table, {card.slug: list(made.get(card.slug, ())) for card in VARIANTS})
    links = re.findall(r'href="cards/(.+?)\.html#(.+?)"', page)
    # Rows of variants that are gone would have no link.
    assert len(links) == len(table.groupby(["variant", "engine"]))
    rows = {card.slug: evidence.of_card(table, card.slug) for card in VARIANTS}
    assert all(rows[slug].count(f'<a id="{anchor}"></a>') == 1 for slug, anchor in links)


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["passed", "biased", "failed"], "failed"),
        (["passed", "biased", "weak"], "biased"),
        (["weak", "passed"], "passed"),
        (["weak", "not run"], "weak"),
        (["not run"], "not run"),
    ],
)
def test_the_worst_check_colours_a_cell_of_the_certificates(verdicts, verdict):
    checks = {"variant": "wishart", "engine": "EM", "verdict": verdicts, "bias": np.nan}
    rows = pd.DataFrame(checks | {"check": "bound", "seconds": 1.0, "date": "", "version": ""})
    page = evidence.page(rows, {"wishart": ["EM"]})
    cells = re.findall(r'<td class="(.+?)">(?:<a href=".+?">)?(.+?)<', page)
    assert cells == [("not-run", "not run"), (verdict.replace(" ", "-"), verdict)]


def test_every_study_belongs_to_a_paper():
    for study in papers.STUDIES:
        owners = [
            p for p in papers.PAPERS.values() if study.startswith(p.get("studies", "no study"))
        ]
        assert len(owners) == 1, study


@pytest.mark.parametrize("prefix", ["zhang2004", "zhang-mixture", "damoulas2009"])
def test_papers_pages_name_the_cells_that_cannot_be_reproduced(prefix):
    studies = {name: make() for name, make in papers.STUDIES.items() if name.startswith(prefix)}
    points = papers._left_open(prefix, studies)
    cells = [
        (study.title.rpartition(", ")[2], row, column, reason)
        for study in studies.values()
        for (row, column), reason in study.irreproducible.items()
    ]
    assert cells
    for title, row, column, reason in cells:
        where = f"{title[:1].upper()}{title[1:]}, {column}, cells"
        named = [point for point in points if where in point and point.endswith(f": {reason}.")]
        assert len(named) == 1
        assert row in named[0]


def test_tables_of_papers_say_the_rule_and_how_many_splits_their_ledgers_hold(
    monkeypatch, tmp_path
):
    page = papers.pages()["papers/girolami2005.md"]
    assert (
        "\n\n## Tables and figures\n\nA cell agrees with the paper's if the 95 % interval" in page
    )
    study = papers.STUDIES["girolami2005-figure3"]()
    records = []
    for split in range(3):
        unit = study.unit(study.tasks[0], split)
        values = dict.fromkeys(unit.task.rows, 1.0)
        recipe = {"recipe": unit.task.recipe, "split": split, "seed": unit.seed}
        records.append(json.dumps(recipe | {"values": values}))
    (tmp_path / f"{study.name}.jsonl").write_text("\n".join(records), encoding="utf-8")
    monkeypatch.setattr(papers, "LEDGERS", tmp_path)
    assert "\n\nPer cent; 3 of 30 splits.\n\n" in papers._of_study(study.name, study)


def test_every_model_has_a_card_and_a_paper():
    assert {card.model for card in VARIANTS} == {*kz.MODELS}
    of_papers = {name for paper in papers.PAPERS.values() for name in paper["models"]}
    assert of_papers == {model.__name__ for model in kz.MODELS}


def test_papers_are_cited_alike():
    """The page for people and the file for tools name the same papers."""
    yaml = pytest.importorskip("yaml")
    page = (DOCS / "citing.md").read_text(encoding="utf-8")
    cited = yaml.safe_load((DOCS.parent / "CITATION.cff").read_text(encoding="utf-8"))
    plain = " ".join(page.replace("{", "").replace("}", "").split())
    for paper in cited["references"]:
        assert f"title = {' '.join(paper['title'].split())}," in plain
        assert f"year = {paper['year']}," in plain
    assert f"version = {{{cited['version']}}}" in page
