"""Sphinx extension that writes the generated pages before Sphinx reads any."""

import base64
import json
from pathlib import Path

import api
import cards
import papers
from markup import TEMPLATES
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

#: Folders of ``docs`` that hold generated pages only.
GENERATED = ("api", "cards", "gallery", "papers")
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def gallery() -> dict[str, str | bytes]:
    """Write notebooks, thumbnails and the index of the gallery, by their file in ``docs``."""
    written: dict[str, str | bytes] = {}
    paths = sorted(NOTEBOOKS.glob("*.ipynb"), key=lambda path: (path.stem != "tour", path))
    headings, pictures = {}, {}
    for path in paths:
        written[f"gallery/{path.name}"] = text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
        first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "markdown")
        headings[path.stem] = "".join(first["source"]).partition("\n")[0].removeprefix("# ")
        outputs = (o.get("data", {}) for cell in notebook["cells"] for o in cell.get("outputs", ()))
        drawn = (data["image/png"] for data in outputs if "image/png" in data)
        if picture := "".join(next(drawn, "")):
            pictures[path.stem] = written[f"gallery/{path.stem}.png"] = base64.b64decode(picture)
    index = TEMPLATES.get_template("gallery.md").render(headings=headings, pictures=pictures)
    return written | {"gallery/index.md": index}


def write(docs: Path) -> None:
    """Write all generated pages; files that did not change keep their time."""
    wanted = gallery() | api.pages() | cards.pages() | papers.pages()
    for folder in GENERATED:
        for path in (docs / folder).rglob("*"):
            if path.is_file() and path.relative_to(docs).as_posix() not in wanted:
                path.unlink()
    for name, text in wanted.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = text if isinstance(text, bytes) else text.encode()
        if not path.exists() or path.read_bytes() != new:
            path.write_bytes(new)


def deal(_app: Sphinx, _environment: BuildEnvironment, pages: list[str]) -> None:
    """Deal pages out to the processes that read them: neighbours run for as long."""
    pages[:] = pages[::2] + pages[1::2]


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages when the builder is ready."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    app.connect("env-before-read-docs", deal)
    app.connect("doctree-read", api.link_code)
    app.connect("autodoc-process-signature", api.signature_of_engine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
