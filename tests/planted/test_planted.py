"""Every planted bug still applies to the package, and the runner tells the outcomes apart."""

from collections import Counter

import pytest

from planted import run

run.processes.set_forkserver_preload(run.PYTEST)
BUGS = run.read()


def test_every_bug_still_applies():
    stale = {f"{bug.family}/{bug.name}": bug.stale(run.ROOT) for bug in BUGS}
    assert not {name: reason for name, reason in stale.items() if reason}


def test_bugs_differ_by_name():
    assert Counter((bug.family, bug.name) for bug in BUGS).most_common(1)[0][1] == 1


def test_families_are_large_enough():
    assert min(Counter(bug.family for bug in BUGS).values()) >= 10
    assert len(BUGS) >= 150


ENTRY = """
[[bug]]
name = "{name}"
file = "sums.py"
old = "{old}"
new = "a - b"
tests = "tests/test_sums.py{test}"
bug = "Made up."
"""
CASES = {
    "caught": ("a + b", "::test_of_two"),
    "survived": ("a + b", "::test_of_zeros"),
    "stale": ("a * b", "::test_of_two"),
    "broken": ("a + b", "::test_that_fails_as_it_is"),
}


@pytest.fixture
def package(tmp_path):
    """Make a package of one function, with tests and a bug for each outcome."""
    root = tmp_path / "package"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "sums.py").write_text("def total(a, b):\n    return a + b\n")
    (root / "tests" / "test_sums.py").write_text(
        "from kernelzoo.sums import total\n"
        "def test_of_two():\n    assert total(1, 2) == 3\n"
        "def test_of_zeros():\n    assert total(0, 0) == 0\n"
        "def test_that_fails_as_it_is():\n    assert total(1, 1) == 3\n"
    )
    entries = [ENTRY.format(name=name, old=old, test=test) for name, (old, test) in CASES.items()]
    (root / "arithmetic.toml").write_text("".join(entries))
    return root


def test_outcomes(package, capsys):
    assert run.main(["--jobs", "2"], folder=package, root=package) == 1
    lines = capsys.readouterr().out.splitlines()
    for name in CASES:
        assert any(line.startswith(name) and f"arithmetic/{name}" in line for line in lines)
    assert any("all" in line and line.count("1") >= len(CASES) for line in lines)
    assert (package / "sums.py").read_text().count("a + b") == 1


def test_success_and_selection(package, capsys):
    assert run.main(["--only", "caught"], folder=package, root=package) == 0
    assert "tests/test_sums.py::test_of_two" in capsys.readouterr().out
    assert run.main(["--list", "--family", "arithmetic"], folder=package, root=package) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CASES)
    with pytest.raises(SystemExit):
        run.main(["--family", "geometry"], folder=package, root=package)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"old": "total"}, ""),
        ({"file": "products.py"}, "occurs 0 times in products.py"),
        ({"old": "a"}, "occurs 3 times"),
        ({"new": "a + b"}, "changes nothing"),
        ({"tests": "tests/test_products.py"}, "no file tests/test_products.py"),
        ({"tests": "tests/test_sums.py::test_of_three[1]"}, "no test_of_three in"),
    ],
)
def test_reasons_why_an_entry_is_stale(package, change, reason):
    bug = run.read(package)[0]
    assert reason in run.Bug(**(vars(bug) | change)).stale(package)
    assert bool(reason) == bool(run.Bug(**(vars(bug) | change)).stale(package))


def test_time_limit(package, tmp_path):
    (package / "sums.py").write_text("import time\ntime.sleep(60)\n")
    (tmp_path / "copy").mkdir()
    worker = run.Worker(package, tmp_path / "copy", limit=1.0)
    assert worker.run("tests/test_sums.py") == (None, "no end after 1 s")
    assert worker.seconds == 1.0
