"""Gallery of the notebooks: their pages as executed, and a card with a picture for each."""

import base64
import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
#: The notebook to begin with.
FIRST = "tour"
INTRODUCTION = """\
# Gallery

Notebooks with the outputs that they had when they were last run. `make notebooks` runs them all,
and fails where an assertion in them does.

::::{grid} 1 2 2 3
:gutter: 3
"""


def _picture(notebook: dict[str, Any]) -> bytes | None:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                return base64.b64decode("".join(output["data"]["image/png"]))
    return None


def pages() -> dict[str, str | bytes]:
    """Write notebooks, thumbnails and the index of the gallery, by their file in ``docs``."""
    written: dict[str, str | bytes] = {}
    index, names = [INTRODUCTION], []
    for path in sorted(NOTEBOOKS.glob("*.ipynb"), key=lambda path: (path.stem != FIRST, path)):
        text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
        written[f"gallery/{path.name}"] = text
        names.append(path.stem)
        first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "markdown")
        heading = "".join(first["source"]).partition("\n")[0].removeprefix("# ")
        card = f":::{{grid-item-card}} {heading}\n:link: {path.stem}\n:link-type: doc\n"
        if picture := _picture(notebook):
            written[f"gallery/{path.stem}.png"] = picture
            card += f":img-bottom: {path.stem}.png\n"
        index.append(f"{card}:::\n")
    tree = "\n".join(names)
    index += ["::::\n", f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"]
    return written | {"gallery/index.md": "\n".join(index)}
