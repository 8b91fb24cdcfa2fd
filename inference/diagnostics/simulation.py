"""Simulated truths and data of a model, from its prior or from its posterior."""

from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import reseed_rngs
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast
from pytensor.tensor.random.type import RandomType

from ...models.declaration import Declaration
from ...validation import argument_error
from ..engine.compilation import compiling_with, python_mode

__all__ = [
    "FromPosterior",
    "FromPrior",
    "Values",
    "augmented",
    "copied",
    "observation",
    "set_observations",
]

type Values = dict[str, NDArray]

OWNER = "calibrate"
REPLICATED = "{}_replicated"


class FromPrior:
    """Truths from the prior, and data given them; the model that is fitted is a copy."""

    def __init__(self, model: pm.Model):
        _check(model)
        if model.potentials:
            raise argument_error(
                "model",
                OWNER,
                "without pm.Potential for method='prior', which cannot draw parameters from a "
                "density; use method='posterior'",
                ", ".join(str(term.name) for term in model.potentials),
            )
        self.model = model = copied(model)
        observed = model.observed_RVs
        needed = {*ancestors(observed)}
        seen = [rv for rv in model.free_RVs if rv in needed or not _depends(rv, observed)]
        self._first = _Function(model, [], [*seen, *observed])
        unseen = [rv for rv in model.free_RVs if rv not in seen]
        self._second = _Function(model, [*seen, *observed], [*unseen, *model.deterministics])

    def draw(self, number: int, seed: int) -> tuple[Values, Values]:
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


class FromPosterior:
    """Truths from independent draws of the posterior (draw, ...), and a second set of data.

    The model that is fitted is a copy in which each observed variable has a twin of the same
    distribution given the same variables, for the replicated data.
    """

    def __init__(self, model: pm.Model, truths: Mapping[str, NDArray]):
        self.model = augmented(model)
        self._truths = truths
        known = [self.model[rv.name] for rv in model.observed_RVs]
        twins = [self.model[REPLICATED.format(rv.name)] for rv in model.observed_RVs]
        self._observed = {str(rv.name): observation(self.model, rv) for rv in known}
        self._data = _Function(self.model, [*self.model.free_RVs, *known], twins)

    def draw(self, number: int, seed: int) -> tuple[Values, Values]:
        """Return the truth of a number, and data given it."""
        truth = {name: values[number] for name, values in self._truths.items()}
        return truth, self._data(truth | self._observed, seed)


def augmented(model: pm.Model) -> pm.Model:
    """Copy of a model whose observed variables have twins for replicated data."""
    _check(model)
    twin_of = copied(model)
    for rv in list(twin_of.observed_RVs):
        node = rv.owner
        # A shared generator would give the twin the random numbers of the original.
        inputs = [
            pytensor.shared(np.random.default_rng()) if isinstance(v.type, RandomType) else v
            for v in node.inputs
        ]
        twin = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(rv)]
        name = REPLICATED.format(rv.name)
        with twin_of:
            data = pm.Data(f"{name}_values", observation(twin_of, rv))
            dims = twin_of.named_vars_to_dims.get(str(rv.name))
            twin_of.register_rv(twin, name, observed=data, dims=dims)
    return twin_of


def copied(model: pm.Model) -> pm.Model:
    """Independent copy of a model, so that the user's keeps its data."""
    copy: pm.Model = cloudpickle.loads(cloudpickle.dumps(model))
    return copy


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


class _Function:
    """Values of variables given those of others, by a seed."""

    def __init__(self, model: pm.Model, given: Sequence[Any], outputs: Sequence[Any]):
        inputs = [rv.type(name=rv.name) for rv in given]
        replaced = graph_replace(list(outputs), dict(zip(given, inputs, strict=True)), strict=False)
        self._given = [str(rv.name) for rv in given]
        self._names = [str(rv.name) for rv in outputs]
        with compiling_with(python_mode()):
            self._function, updates = compile_graph(
                inputs, replaced, random_seed=False, return_updates=True, on_unused_input="ignore"
            )
        self._generators = list(updates)

    def __call__(self, values: Mapping[str, NDArray], seed: int) -> Values:
        reseed_rngs(self._generators, seed)
        found = self._function(*(values[name] for name in self._given))
        return dict(zip(self._names, map(np.array, found), strict=True))


def _depends(variable: Any, on: Sequence[Any]) -> bool:
    return not {*ancestors([variable])}.isdisjoint(on)


def _check(model: pm.Model) -> None:
    """Raise ValueError unless the observed variables can have other values."""
    observed = model.observed_RVs
    if not observed:
        raise argument_error("model", OWNER, "one with observed variables", "none")
    values = {_held(model, rv) for rv in observed}
    used = ancestors([*model.free_RVs, *observed, *model.potentials, *model.deterministics])
    if twice := sorted(str(v.name) for v in values.intersection(used)):
        raise argument_error(
            "model",
            OWNER,
            "one whose observed values are used nowhere else, since simulations replace them",
            f"a model with priors or terms that depend on {', '.join(twice)}",
        )
