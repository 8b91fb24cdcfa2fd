"""What is declared in pyproject.toml and constraints.txt is what the repository holds."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE_THE_PACKAGE = {
    *("benchmarks", "build", "dist", "docs", "notebooks", "results", "studies", "tests"),
}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
PACKAGES = SETUPTOOLS["packages"]
EXTRAS = PROJECT["project"]["optional-dependencies"]


def package_folders(root: Path) -> list[Path]:
    """Folders below `root` that are packages, `root` first."""
    found = []
    for folder, below, files in os.walk(root):
        below[:] = sorted(b for b in below if b.isidentifier() and b not in OUTSIDE_THE_PACKAGE)
        if "__init__.py" in files:
            found.append(Path(folder))
    return found


def dotted(folder: Path) -> str:
    return ".".join(["kernelzoo", *folder.relative_to(ROOT).parts])


def distribution_name(requirement: str) -> str:
    """Name of a requirement such as `Numpy_x>=2`, spelt as registries compare names."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def constraint_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_listed_packages_are_the_folders_with_an_init():
    assert sorted(PACKAGES) == sorted(dotted(folder) for folder in package_folders(ROOT))


def test_folders_with_modules_are_packages():
    packages = set(package_folders(ROOT))
    outside = {ROOT / name for name in (*OUTSIDE_THE_PACKAGE, ".ci")}
    assert {path.parent for p in packages for path in p.glob("*/*.py")} <= packages | outside


def test_no_module_strays_in_the_root():
    # Every *.py of the root would be installed as a module of kernelzoo.
    assert {path.name for path in ROOT.glob("*.py")} <= {
        "__init__.py",
        "__main__.py",
        "user_warnings.py",
        "validation.py",
    }


def test_every_data_file_of_a_package_is_declared():
    # The root's own files (README and the like) are no data; its marker of types is.
    files = [ROOT / "py.typed"]
    for folder in package_folders(ROOT)[1:]:
        files += [path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"]
    declared = SETUPTOOLS["package-data"]
    undeclared = [
        str(path.relative_to(ROOT))
        for path in files
        if not any(PurePath(path.name).match(p) for p in declared.get(dotted(path.parent), []))
    ]
    assert undeclared == []


def test_package_is_imported_under_its_own_name_only():
    # A second copy, made by a collector of tests or by the working folder, has classes of its own.
    import_module("kernelzoo")
    # A list, as asking a lazy module for its file imports it and so changes the table.
    top = [(name, module) for name, module in sys.modules.items() if "." not in name]
    files = {name: getattr(module, "__file__", None) for name, module in top}
    copies = {name for name, file in files.items() if file == str(ROOT / "__init__.py")}
    assert copies == {"kernelzoo"}


def test_extra_all_is_every_other_extra_but_that_of_mutants():
    (everything,) = EXTRAS["all"]
    named = re.fullmatch(r"kernelzoo\[(.+)\]", everything)[1].split(",")
    assert sorted(named) == sorted(EXTRAS.keys() - {"all", "mutation"})


def test_constraints_hold_names_and_versions_only():
    pin = re.compile(r"[\w.-]+==[\w.]+")
    assert [line for line in constraint_lines() if not pin.fullmatch(line)] == []


def test_every_direct_requirement_is_pinned():
    pinned = {distribution_name(line) for line in constraint_lines()}
    required = PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"]
    required += [name for extra, names in EXTRAS.items() if extra != "all" for name in names]
    assert {distribution_name(name) for name in required} - pinned == set()


#: Extras that add what the package can do; the others are tools of its developers.
OPTIONAL = ("nutpie", "jax", "extras", "zarr", "dask")
#: Requirements that bring modules of other names.
PROVIDERS = {"sklearn": "scikit-learn", "distributed": "dask"}
#: Loaded by xarray and by PyMC, of which the package asks for results and chains in their formats.
LOADED_BY_NAME = {"h5netcdf", "h5py", "nutpie", "numpyro", "zarr"}


def imported(folder: Path) -> set[str]:
    """Top-level modules that the modules of a folder import, wherever in them."""
    names = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"kernelzoo"}


def test_what_the_package_imports_is_what_it_requires():
    modules = set().union(*map(imported, package_folders(ROOT)))
    found = {PROVIDERS.get(module, distribution_name(module)) for module in modules}
    required = [*PROJECT["project"]["dependencies"]]
    required += [name for extra in OPTIONAL for name in EXTRAS[extra]]
    declared = {distribution_name(name) for name in required}
    assert found <= declared
    assert declared - found == LOADED_BY_NAME


def test_every_kind_of_import_is_found(tmp_path):
    lines = "import a.b, os\nfrom c.d import e\nfrom . import f\ndef g():\n    import h as i\n"
    (tmp_path / "module.py").write_text(lines, encoding="utf-8")
    assert imported(tmp_path) == {"a", "c", "h"}


def script(path: Path, text: str) -> str:
    """An executable that stands in for an interpreter."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def chosen_interpreter(*variables: str) -> str:
    """What the Makefile would build .venv with."""
    # Variables of an outer make, PYTHON for example, would be passed on to this one.
    outer = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "CANDIDATES"}
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "-s", "--no-print-directory", "interpreter", *variables]
    answer = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


@pytest.mark.parametrize("lie", ["exit 127", "exit 1", "echo 3.12.1; exit 2"])
def test_make_takes_the_first_interpreter_that_runs(tmp_path, lie):
    shim = script(tmp_path / "python3.12", lie)
    # The stand-in's path, unlike that of the interpreter, is sure to hold no space.
    good = script(tmp_path / "good", f'exec "{sys.executable}" "$@"')
    assert chosen_interpreter(f"CANDIDATES={shim} no-such-python {good}") == good


def test_make_leaves_it_to_uv_when_no_interpreter_will_do(tmp_path):
    old = script(tmp_path / "python3", "exit 1")
    assert chosen_interpreter(f"CANDIDATES={old} no-such-python") == ""


def test_make_tries_no_other_interpreter_than_the_one_asked_for(tmp_path):
    old = script(tmp_path / "python3", "exit 1")
    good = script(tmp_path / "good", f'exec "{sys.executable}" "$@"')
    assert chosen_interpreter(f"PYTHON={old}", f"CANDIDATES={good}") == ""


def test_progress_bars_in_jupyter_find_what_they_need():
    """Without ipywidgets, rich warns in place of each bar."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cell = nbformat.v4.new_code_cell("from rich.progress import track\nfor _ in track([1]): pass")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    outputs = [output.get("data", {}) for output in cell.outputs]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in outputs)
    assert "ipywidgets" not in str(outputs)
