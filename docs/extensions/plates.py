"""Plate diagrams of PyMC models as SVG, without Graphviz."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import count

import pymc as pm
from pymc.model_graph import ModelGraph, NodeType

__all__ = ["plate_diagram"]

ROW, GAP, MARGIN, HEIGHT, LETTER = 92, 26, 14, 40, 8.2
#: Class of a node's shape, by its type; `kernelzoo.css` fills them.
CLASSES = {
    NodeType.DATA: "data",
    NodeType.OBSERVED_RV: "observed",
    NodeType.DETERMINISTIC: "computed",
}


@dataclass(frozen=True)
class Node:
    """A variable: its level counts arrows from the top."""

    name: str
    kind: str
    level: int

    @property
    def width(self) -> float:
        """Width in pixels."""
        return LETTER * len(self.name) + 28


@dataclass(frozen=True)
class Plate:
    """Variables with the same dimensions, in rows by their levels."""

    label: str
    nodes: tuple[Node, ...]

    @property
    def top(self) -> int:
        """First row."""
        return min(node.level for node in self.nodes)

    @property
    def bottom(self) -> int:
        """Last row."""
        return max(node.level for node in self.nodes)

    def row(self, level: int) -> list[Node]:
        """Nodes side by side."""
        return [node for node in self.nodes if node.level == level]

    @property
    def width(self) -> float:
        """Width in pixels."""
        rows = [self.row(level) for level in range(self.top, self.bottom + 1)]
        needed = (sum(node.width for node in row) + GAP * (len(row) - 1) for row in rows)
        return max(*needed, LETTER * len(self.label)) + 2 * GAP

    @property
    def is_drawn(self) -> bool:
        """Whether the variables have dimensions."""
        return bool(self.label)


def _levels(edges: Iterable[tuple[str, str]], names: list[str]) -> dict[str, int]:
    """Longest path from the top; variables without parents stand just above their first child."""
    parents: dict[str, set[str]] = {name: set() for name in names}
    for child, parent in edges:
        parents[child].add(parent)
    levels: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in levels:
            levels[name] = 1 + max(map(level, parents[name]), default=-1)
        return levels[name]

    for name in names:
        level(name)
    for name in names:
        below = [levels[child] for child in names if name in parents[child]]
        if not parents[name] and below:
            levels[name] = min(below) - 1
    return levels


def _columns(plates: list[Plate]) -> list[list[Plate]]:
    """Plates from left to right; those that share no row may stand below one another."""
    columns: list[list[Plate]] = []
    for plate in sorted(plates, key=lambda plate: (plate.top, plate.label)):
        for column in columns:
            if column[-1].bottom < plate.top:
                column.append(plate)
                break
        else:
            columns.append([plate])
    return columns


def plate_diagram(model: pm.Model, title: str) -> str:
    """Draw variables as ellipses, data as boxes, and dimensions as plates.

    Parameters
    ----------
    model : pm.Model
    title : str
        What a screen reader says.

    Returns
    -------
    str
        An ``svg`` element whose colours follow the page's.
    """
    graph = ModelGraph(model)
    drawn = graph.get_plates()
    edges = list(graph.edges())
    levels = _levels(edges, [str(v.var.name) for plate in drawn for v in plate.variables])
    plates = [
        Plate(
            " by ".join(
                f"{name} ({length})"
                for name, length in zip(plate.dim_info.names, plate.dim_info.lengths, strict=True)
            ),
            tuple(
                Node(str(v.var.name), CLASSES.get(v.node_type, "free"), levels[str(v.var.name)])
                for v in plate.variables
            ),
        )
        for plate in drawn
    ]
    left, shapes, places = float(MARGIN), [], {}
    for column in _columns(plates):
        width = max(plate.width for plate in column)
        for plate in column:
            if plate.is_drawn:
                top = plate.top * ROW + 18
                height = (plate.bottom - plate.top) * ROW + ROW - 12
                shapes.append(
                    f'<rect class="plate" x="{left:.0f}" y="{top}" width="{width:.0f}" '
                    f'height="{height}" rx="8"/><text class="dims" x="{left + width - 8:.0f}" '
                    f'y="{top + height - 7}" text-anchor="end">{escape(plate.label)}</text>'
                )
            for level in range(plate.top, plate.bottom + 1):
                row = plate.row(level)
                x = left + (width - sum(n.width for n in row) - GAP * (len(row) - 1)) / 2
                for node in row:
                    places[node.name] = (x + node.width / 2, level * ROW + 48.0, node)
                    x += node.width + GAP
        left += width + GAP
    arrows = [_arrow(places[parent], places[child]) for child, parent in edges]
    shapes += arrows + [_shape(*place) for place in places.values()]
    bottom = (max(levels.values()) + 1) * ROW + MARGIN
    number = next(_NUMBERS)
    arrowhead = (
        f'<defs><marker id="tip{number}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>'
    )
    body = "\n".join(shapes).replace("#tip", f"#tip{number}")
    return (
        f'<svg class="plates" role="img" aria-label="{escape(title)}" width="{left:.0f}" '
        f'style="min-width: {0.6 * left:.0f}px" viewBox="0 0 {left:.0f} {bottom}">'
        f"{arrowhead}\n{body}\n</svg>"
    )


_NUMBERS = count()


def _arrow(start: tuple[float, float, Node], end: tuple[float, float, Node]) -> str:
    (x0, y0, _), (x1, y1, _) = start, end
    half = HEIGHT / 2
    down = 1 if y1 > y0 else -1
    y0, y1 = y0 + down * half, y1 - down * (half + 1)
    bend = (y1 - y0) / 2
    return (
        f'<path class="arrow" marker-end="url(#tip)" d="M{x0:.0f} {y0:.0f}'
        f'C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"/>'
    )


def _shape(x: float, y: float, node: Node) -> str:
    half_width, half = node.width / 2, HEIGHT / 2
    if node.kind in ("data", "computed"):
        rounding = 6 if node.kind == "data" else 0
        shape = (
            f'<rect class="{node.kind}" x="{x - half_width:.0f}" y="{y - half:.0f}" '
            f'width="{node.width:.0f}" height="{HEIGHT}" rx="{rounding}"/>'
        )
    else:
        shape = (
            f'<ellipse class="{node.kind}" cx="{x:.0f}" cy="{y:.0f}" rx="{half_width:.0f}" '
            f'ry="{half:.0f}"/>'
        )
    label = f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{escape(node.name)}</text>'
    return shape + label
