"""A model as text or LaTeX with the numbers of its priors, where PyMC prints ``<constant>``."""

from itertools import chain
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.abstract import MeasurableOp
from pytensor.graph.traversal import walk
from pytensor.tensor import reciprocal
from pytensor.tensor.elemwise import DimShuffle

#: Positions of parameters that PyMC turns from rates into scales, by operation.
RATES = {"gamma": 1, "exponential": 0}


def printed(model: pm.Model, formatting: str = "plain", include_params: bool = True) -> str:
    """Print data and variables in rows as PyMC does, with rates of Gamma as they were declared."""
    rows = [(str(data.name), "=", "Data") for data in model.data_vars]
    computed = dict.fromkeys(model.deterministics, "Deterministic")
    computed |= dict.fromkeys(model.potentials, "Potential")
    groups = model.free_RVs, model.deterministics, model.observed_RVs, model.potentials
    for variable in chain(*groups):
        node = variable.owner
        if variable in computed or not hasattr(node.op, "dist_params"):
            kind = computed.get(variable, "Unknown")
            given = [_text(node.clone().outputs[variable.index], model)]
        else:
            kind = node.op._print_name[0]
            rate = RATES.get(node.op.name)
            parameters = enumerate(node.op.dist_params(node))
            given = [_text(each, model, is_scale=i == rate) for i, each in parameters]
        right = f"{kind}({', '.join(given)})" if include_params else kind
        rows.append((str(variable.name), "=" if kind == "Deterministic" else "~", right))
    if formatting == "latex":
        lines = [rf"\text{{{name}}} &{sign}& \text{{{right}}}" for name, sign, right in rows]
        body = r" \\ ".join(lines).replace("_", r"\_").replace("&~&", r"&\sim&")
        return rf"$$\begin{{array}}{{rcl}} {body} \end{{array}}$$"
    width = max((len(name) for name, _, _ in rows), default=0)
    return "\n".join(f"{name:>{width}} {sign} {right}" for name, sign, right in rows)


def _text(expression: Any, model: pm.Model, *, is_scale: bool = False) -> str:
    """Name of a variable, a number or an array, or what an expression depends on."""
    known = {*model.named_vars.values()}
    while (node := expression.owner) and (
        isinstance(node.op, DimShuffle) or (is_scale and node.op == reciprocal)
    ):
        is_scale = is_scale and node.op != reciprocal
        expression = node.inputs[0]
    if expression in known and not is_scale:
        return str(expression.name)

    def ends(x: Any) -> bool:
        return x in known or (x.owner and isinstance(x.owner.op, MeasurableOp))

    found = walk([expression], lambda x: x.owner.inputs if x.owner and not ends(x) else ())
    if names := dict.fromkeys(str(x.name or x.owner.op.name) for x in found if ends(x)):
        return f"f({', '.join(names)})"
    value = np.asarray(expression.eval(mode="FAST_COMPILE"))
    value = 1 / value if is_scale else value
    if value.size and (value == value.flat[0]).all():
        return f"{value.flat[0]:.3g}"
    if value.ndim == 1:
        return f"[{', '.join(f'{x:.3g}' for x in value)}]"
    return f"array {value.shape}"
