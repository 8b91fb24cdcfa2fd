"""Simulated truths and data of a model, from its prior."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import reseed_rngs
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast

from ...models.declaration import Declaration
from ...validation import argument_error
from ..engine.evaluation import compiling_with, python_mode

type Values = dict[str, NDArray]

OWNER = "calibrate"


class FromPrior:
    """Truths from the prior, and data given them; the model that is fitted is a copy."""

    def __init__(self, model: pm.Model):
        _check(model)
        if model.potentials:
            rule = "without pm.Potential: parameters cannot be drawn from its density"
            got = ", ".join(str(term.name) for term in model.potentials)
            raise argument_error("model", OWNER, rule, got)
        # A copy, so that the user's model keeps its data.
        self.model = model = cloudpickle.loads(cloudpickle.dumps(model))
        observed = model.observed_RVs
        needed = {*ancestors(observed)}
        seen = [
            rv for rv in model.free_RVs if rv in needed or {*ancestors([rv])}.isdisjoint(observed)
        ]
        self._first = _compiled(model, [], [*seen, *observed])
        unseen = [rv for rv in model.free_RVs if rv not in seen]
        self._second = _compiled(model, [*seen, *observed], [*unseen, *model.deterministics])

    def draw(self, seed: int) -> tuple[Values, Values]:
        """Draw a truth and its data, which depend on the seed alone."""
        first, second = map(int, np.random.SeedSequence(seed).generate_state(2))
        values = self._first({}, first)
        data = {str(rv.name): values[str(rv.name)] for rv in self.model.observed_RVs}
        if isinstance(self.model, Declaration):
            data = {name: self.model.as_data(name, value) for name, value in data.items()}
        # Variables that depend on the data, such as missing blocks, follow from those fitted.
        values |= data
        values |= self._second(values, second)
        return {name: values[name] for name in values if name not in data}, data


def set_observations(model: pm.Model, data: Mapping[str, NDArray]) -> None:
    """Give observed variables new values."""
    for name, value in data.items():
        rv = model[name]
        held = _held(model, rv)
        if held in model.data_vars:
            pm.set_data({str(held.name): value}, model=model)
            continue
        new = pt.as_tensor_variable(np.asarray(value, dtype=rv.dtype), name=held.name)
        del model.values_to_rvs[held]
        model.rvs_to_values[rv], model.values_to_rvs[new] = new, rv
        rv.tag.observations = new


def observation(model: pm.Model, rv: Any) -> NDArray:
    """Present value of an observed variable."""
    held = _held(model, rv)
    value = held.data if isinstance(held, Constant) else held.get_value()
    return np.asarray(value, dtype=rv.dtype)


def _held(model: pm.Model, rv: Any) -> Any:
    """Find the data or the constant that holds the value of an observed variable."""
    value = model.rvs_to_values[rv]
    held = value
    # PyMC casts whole numbers of pm.Data.
    while held.owner and isinstance(getattr(held.owner.op, "scalar_op", None), Cast):
        (held,) = held.owner.inputs
    if held in model.data_vars or isinstance(value, Constant):
        return held
    required = "one whose observed values are arrays or pm.Data, which simulations can replace"
    raise argument_error("model", OWNER, required, f"another term as the values of {rv.name}")


def _compiled(
    model: pm.Model, given: Sequence[Any], outputs: Sequence[Any]
) -> Callable[[Mapping[str, NDArray], int], Values]:
    """Make a function of values by name and a seed: draws of variables given those of others."""
    inputs = [rv.type(name=rv.name) for rv in given]
    replaced = graph_replace(list(outputs), dict(zip(given, inputs, strict=True)), strict=False)
    with compiling_with(python_mode()):
        function, updates = compile_graph(
            inputs, replaced, random_seed=False, return_updates=True, on_unused_input="ignore"
        )
    names, generators = [str(rv.name) for rv in outputs], list(updates)

    def draw(values: Mapping[str, NDArray], seed: int) -> Values:
        reseed_rngs(generators, seed)
        found = function(*(values[str(rv.name)] for rv in given))
        return dict(zip(names, map(np.array, found), strict=True))

    return draw


def _check(model: pm.Model) -> None:
    """Raise ValueError unless the observed variables can have other values."""
    observed = model.observed_RVs
    if not observed:
        raise argument_error("model", OWNER, "one with observed variables", "none")
    values = {_held(model, rv) for rv in observed}
    used = ancestors([*model.free_RVs, *observed, *model.potentials, *model.deterministics])
    if twice := sorted(str(v.name) for v in values.intersection(used)):
        rule = "one whose observed values are used nowhere else, since simulations replace them"
        got = f"a model with priors or terms that depend on {', '.join(twice)}"
        raise argument_error("model", OWNER, rule, got)
