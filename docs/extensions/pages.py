"""Sphinx extension that writes the generated pages before Sphinx reads any."""

from pathlib import Path

import api
import cards
import gallery
import papers
from sphinx.application import Sphinx

#: Folders of ``docs`` that hold generated pages only.
GENERATED = ("api", "cards", "gallery", "papers")


def write(docs: Path) -> None:
    """Write all generated pages; files that did not change keep their time."""
    wanted: dict[str, str | bytes] = {}
    for room in (api, cards, papers, gallery):
        wanted |= room.pages()
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


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages when the builder is ready."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
