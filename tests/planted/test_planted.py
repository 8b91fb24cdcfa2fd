"""Every planted bug still applies to the package, and the runner tells the outcomes apart."""

from collections import Counter

import pytest

from planted import run

BUGS = run.read()


def test_every_bug_still_applies():
    stale = {bug.name: bug.stale(run.ROOT) for bug in BUGS}
    assert not {name: reason for name, reason in stale.items() if reason}


def test_bugs_differ_by_name():
    assert Counter(bug.name for bug in BUGS).most_common(1)[0][1] == 1


ENTRY = """
[[bug]]
name = "{name}"
file = "sums.py"
old = "{old}"
new = "{new}"
tests = "tests/test_sums.py{test}"
bug = "Made up."
"""
CASES = {
    "caught": ("a + b", "a - b", "::test_of_two"),
    "survived": ("a + b", "a - b", "::test_of_zeros"),
    "stale": ("a * b", "a - b", "::test_of_two"),
    "broken": ("a + b", "__import__('time').sleep(60)", "::test_of_two"),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package of one function, with tests and a bug for each outcome."""
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTENSOR_FLAGS"):
        monkeypatch.setenv(name, "")
    root = tmp_path / "package"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "sums.py").write_text("def total(a, b):\n    return a + b\n")
    (root / "tests" / "test_sums.py").write_text(
        "from kernelzoo.sums import total\n"
        "def test_of_two():\n    assert total(1, 2) == 3\n"
        "def test_of_zeros():\n    assert total(0, 0) == 0\n"
    )
    entries = [
        ENTRY.format(name=name, old=old, new=new, test=test)
        for name, (old, new, test) in CASES.items()
    ]
    (root / "arithmetic.toml").write_text("".join(entries))
    return root


def test_outcomes(package, capsys):
    assert run.main(["--limit", "5"], folder=package, root=package) == 1
    *lines, counts = capsys.readouterr().out.splitlines()
    for name, line in zip(CASES, lines, strict=True):
        assert line.split()[:2] == [name, name]
        assert f"1 {name}" in counts
    assert (package / "sums.py").read_text().count("a + b") == 1


def test_choice_of_bugs(package, capsys):
    assert run.main(["caught"], folder=package, root=package) == 0
    assert "tests/test_sums.py::test_of_two" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["geometry"], folder=package, root=package)


def test_tests_that_fail_without_a_bug(package, capsys):
    (package / "sums.py").write_text("def total(a, b):\n    return a + b + 1\n")
    assert run.main(["caught"], folder=package, root=package) == 1
    assert "must pass without a bug: FAILED" in capsys.readouterr().out


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
