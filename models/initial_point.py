"""Where chains begin, by graphs that nothing is compiled for."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pymc as pm
from pymc.initial_point import convert_str_to_rv_dict, make_initial_point_expression
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import FAST_COMPILE
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor import TensorVariable


@node_rewriter([OpFromGraph])
def _without_inner_graph(fgraph: FunctionGraph, node: Apply) -> list[Variable]:
    """Put its inner graph in place of an operation such as softmax."""
    return inline_ofg_node(node)


# PyTensor compiles inner graphs in C, in any mode. At position 4 among its rewrites, those that
# look for softmax have been applied.
NO_INNER_GRAPHS = dfs_rewriter(_without_inner_graph, name=_without_inner_graph.__name__), 4

#: Mode for graphs that are evaluated once or a few times.
QUICK = FAST_COMPILE.register(NO_INNER_GRAPHS)


def compile_initial_point(
    model: pm.Model,
    overrides: Mapping[Any, Any],
    jitter_rvs: Collection[TensorVariable],
    *,
    return_transformed: bool,
) -> Callable[..., dict[str, Any]]:
    """Make a function from a seed to PyMC's initial point, with observed variables at their values.

    PyMC draws observed variables, so that variables that depend on them would start at another
    point at each call.
    """
    data = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    given = dict(zip(model.free_RVs, clone_replace(model.free_RVs, data), strict=True))
    starts = model.rvs_to_initial_values | convert_str_to_rv_dict(model, dict(overrides))
    expressions = make_initial_point_expression(
        free_rvs=list(given.values()),
        rvs_to_transforms={new: model.rvs_to_transforms[rv] for rv, new in given.items()},
        initval_strategies={new: starts[rv] for rv, new in given.items()},
        jitter_rvs={given[rv] for rv in jitter_rvs},
        return_transformed=return_transformed,
    )
    function = compile_graph([], replace_rng_nodes(expressions), mode=QUICK)
    generators = find_rng_nodes(function.maker.fgraph.outputs)
    named = model.rvs_to_values if return_transformed else {rv: rv for rv in model.free_RVs}
    names = [str(named[rv].name) for rv in model.free_RVs]

    def point(seed: Any) -> dict[str, Any]:
        reseed_rngs(generators, seed)
        return dict(zip(names, function(), strict=True))

    return point
