"""Draw the plate diagrams of the zoo cards; the site shows ``plates/*.svg``.

``python docs/draw_plates.py`` draws all by Graphviz from PyMC's graphs. The site is built without
Graphviz; a test compares each drawing with its model.
"""

import re
import sys
import warnings
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pymc as pm
from pymc.model_graph import ModelGraph, NodeType, get_node_type

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from certificates.variants import VARIANTS

PLATES = Path(__file__).parent / "plates"
RANDOM = (NodeType.FREE_RV, NodeType.OBSERVED_RV)
SHAPES = {
    NodeType.FREE_RV: {"shape": "ellipse"},
    NodeType.OBSERVED_RV: {"shape": "ellipse", "fillcolor": "lightgrey"},
    NodeType.DATA: {"shape": "box", "style": "rounded,filled", "fillcolor": "lightgrey"},
    NodeType.DETERMINISTIC: {"shape": "box"},
    NodeType.POTENTIAL: {"shape": "octagon", "fillcolor": "lightgrey"},
}


class Structure(NamedTuple):
    """What a drawing shows: distribution of each variable, plates, and arrows ``from->to``."""

    variables: dict[str, str]
    plates: set[str]
    arrows: set[str]


def plate(model: pm.Model, name: str) -> str:
    """Label of a variable's plate; empty for a scalar."""
    return " \N{MULTIPLICATION SIGN} ".join(map(str, model.named_vars_to_dims.get(name, ())))


def structure(model: pm.Model) -> Structure:
    """Structure of a model, without what is only computed from its variables."""
    kinds = {name: get_node_type(name, model) for name in model.named_vars}
    arrows = {(parent, child) for child, parent in ModelGraph(model).edges()}
    computed = {name for name, kind in kinds.items() if kind is NodeType.DETERMINISTIC}
    for _ in computed:
        used = {parent for parent, _ in arrows}
        arrows = {arrow for arrow in arrows if arrow[1] not in computed - used}
    linked = {name for arrow in arrows for name in arrow}
    variables = {
        name: model[name].owner.op._print_name[0] if kind in RANDOM else kind.value
        for name, kind in kinds.items()
        if name in linked
    }
    plates = {plate(model, name) for name in variables} - {""}
    return Structure(variables, plates, {"->".join(arrow) for arrow in arrows})


def draw(model: pm.Model) -> str:
    """Draw a model as SVG.

    The label of a plate is a node: arrows go round nodes, but cross labels as Graphviz places them.
    """
    import graphviz

    variables, plates, arrows = structure(model)
    font = {"fontname": "Helvetica", "fontsize": "12"}
    graph = graphviz.Digraph(
        graph_attr={"outputorder": "edgesfirst", "newrank": "true", "ranksep": "0.35"},
        node_attr=font | {"style": "filled", "fillcolor": "white", "margin": "0.08,0.04"},
        edge_attr={"arrowsize": "0.7"},
    )
    for label in ("", *sorted(plates)):
        with graph.subgraph(name=f"cluster {label}" if label else None) as sub:
            sub.attr(style="rounded")
            for name, kind in variables.items():
                if plate(model, name) == label:
                    shape = SHAPES[get_node_type(name, model)]
                    sub.node(name, f"{name}\n{kind}", **shape)
            if label:
                sub.node(label, shape="plaintext", fontcolor="grey30", height="0.2")
    for arrow in sorted(arrows):
        graph.edge(*arrow.split("->"))
    # The comments name the version of Graphviz.
    return re.sub(r"<!--.*?-->\n", "", graph.pipe("svg", encoding="utf-8"), flags=re.DOTALL)


def drawn(svg: str) -> Structure:
    """Structure that a drawing shows."""
    texts: dict[str, dict[str, list[str]]] = {"node": {}, "edge": {}, "cluster": {}, "graph": {}}
    for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        shown = [each.text or "" for each in group.iterfind("{*}text")]
        texts[group.attrib["class"]][group.findtext("{*}title", "")] = shown
    variables = {lines[0]: lines[1] for lines in texts["node"].values() if len(lines) == 2}
    plates = {lines[0] for lines in texts["node"].values() if len(lines) == 1}
    return Structure(variables, plates, set(texts["edge"]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for variant in VARIANTS:
        (PLATES / f"{variant.slug}.svg").write_text(draw(variant.example()), encoding="utf-8")
