"""Outputs of cells: kept until code changes; pages with a cell that failed are read again."""

import hashlib
import shutil
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

#: Endings of the files of a package on which outputs depend, in the root those of its requirements.
SUFFIXES = (".py", ".toml", ".txt", ".gz")


def fingerprint(root: Path) -> str:
    """Name of the code that cells run: the package, its requirements, and the tests' examples."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["setuptools"]["packages"]
    folders = [root.joinpath(*name.split(".")[1:]) for name in packages]
    contents = hashlib.sha256()
    for folder in (*folders, root / "tests" / "shown"):
        for path in sorted(folder.glob("*")):
            if path.suffix in SUFFIXES:
                contents.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return contents.hexdigest()[:16]


def prepare(app: Sphinx) -> None:
    """Make the cache, which processes side by side cannot, and remove those of other code."""
    from jupyter_cache import get_cache

    kept = Path(app.config.nb_execution_cache_path)
    for folder in kept.parent.glob("*"):
        if folder != kept:
            shutil.rmtree(folder)
    assert get_cache(kept).db is not None


def failed(
    _app: Sphinx, env: BuildEnvironment, _added: set[str], _changed: set[str], _removed: set[str]
) -> list[str]:
    """Pages of the last build with a cell that failed."""
    told = getattr(env, "nb_metadata", {})
    outcomes = {page: data.get("exec_data") for page, data in told.items()}
    return [page for page, outcome in outcomes.items() if outcome and not outcome["succeeded"]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Prepare the cache before pages are read."""
    app.connect("builder-inited", prepare)
    app.connect("env-get-outdated", failed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
