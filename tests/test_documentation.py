"""Every public name has a page and an example that runs; tables of numbers name their source."""

import doctest
import inspect
import re
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import kernelzoo as kz

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
    import api

NAMES = {name.qualified: name for name in api.public_names()}
#: Engines whose examples compile, or take many steps.
LONG = re.compile(r"NUTS|nuts|SMC|Pathfinder|ADVI|Laplace")


class RunsOnly(doctest.OutputChecker):
    """Examples without an expected output need only run."""

    def check_output(self, want, got, optionflags):
        return not want or super().check_output(want, got, optionflags)


def examples(name):
    text = name.page() if name.directive == "autodata" else inspect.getdoc(name.value)
    return doctest.DocTestParser().get_examples(text or "")


@pytest.fixture(scope="module")
def namespace():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import docstring_namespace
    return docstring_namespace


@pytest.fixture
def short_runs(monkeypatch):
    """Let examples that leave the number of draws to the default take few."""
    few = {"draws": 20, "tune": 20, "chains": 2, "cores": 1, "progressbar": False}
    defaults = {**kz.fit.__kwdefaults__, **few}
    monkeypatch.setattr(kz.fit, "__kwdefaults__", defaults)


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
