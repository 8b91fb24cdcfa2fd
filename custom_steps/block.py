"""Base class of the handwritten Gibbs steps: everything except the conditional draws."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypedDict, override

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.logprob.transforms import LogTransform
from pymc.pytensorf import compile as compile_function
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator, get_value_vars_from_user_vars
from pytensor.graph.traversal import ancestors
from pytensor.tensor import TensorVariable

from ..models.declaration import Declaration
from ..models.distributions.dirichlet import Simplex
from ..models.distributions.positive_definite import PositiveDefinite
from ..models.initial_point import QUICK
from ..numerics.packed_factor import order_of_packed, triangle

Values = dict[str, np.ndarray]
type Names = Sequence[str]
type Map = Callable[[np.ndarray], np.ndarray]


class ValueMap:
    """Maps between PyMC's points (``zeta_log__``) and values of variables on their own scale.

    NumPy computes the usual transforms, in 5 us each; other transforms are PyTensor functions.
    Variables named in `packed` keep their unconstrained form. ValueError if a transform depends on
    another random variable.
    """

    def __init__(
        self, model: pm.Model, rvs: Sequence[TensorVariable], packed: Collection[str] = ()
    ):
        self.value_names = {str(rv.name): str(model.rvs_to_values[rv].name) for rv in rvs}
        self._dtypes = {str(rv.name): np.dtype(rv.dtype) for rv in rvs}
        self._forward: dict[str, Map] = {}
        self._backward: dict[str, Map] = {}
        for rv in rvs:
            transform = model.rvs_to_transforms[rv]
            name = str(rv.name)
            if transform is None or name in packed:
                continue
            if type(transform) in _BY_NUMPY:
                self._forward[name], self._backward[name] = _BY_NUMPY[type(transform)]
            else:
                value = model.rvs_to_values[rv]
                self._forward[name] = _function(model, rv.type(), transform.forward, rv)
                self._backward[name] = _function(model, value.type(), transform.backward, rv)

    def constrain(self, point: Mapping[str, np.ndarray]) -> Values:
        """Values of the variables at a point, as read-only arrays keyed by variable name."""
        values = {name: point[value_name] for name, value_name in self.value_names.items()}
        # NumPy returns scalars for arrays without dimensions.
        values |= {name: np.asarray(back(values[name])) for name, back in self._backward.items()}
        # Views, because the point's own arrays must stay writeable.
        values = {name: value.view() for name, value in values.items()}
        for value in values.values():
            value.flags.writeable = False
        return values

    def unconstrain(self, values: Mapping[str, np.ndarray]) -> PointType:
        """Make new unconstrained arrays for all the variables, by name of the value variable."""
        fresh = {
            name: np.array(values[name], dtype=self._dtypes[name], order="C")
            for name in self.value_names
        }
        fresh |= {name: np.asarray(forth(fresh[name])) for name, forth in self._forward.items()}
        return {self.value_names[name]: value for name, value in fresh.items()}


def _simplex_forward(weights: np.ndarray) -> np.ndarray:
    logs = np.log(weights)
    return logs[..., :-1] - logs.mean(axis=-1, keepdims=True)


def _simplex_backward(value: np.ndarray) -> np.ndarray:
    value = np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
    weights = np.exp(value - value.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _pack(matrices: np.ndarray) -> np.ndarray:
    n = matrices.shape[-1]
    factors = np.linalg.cholesky(matrices).reshape(-1, n, n)
    packed = [triangle(n).pack(factor) for factor in factors]
    return np.array(packed).reshape(*matrices.shape[:-2], -1)


def _unpack(packed: np.ndarray) -> np.ndarray:
    n = order_of_packed(packed.shape[-1])
    vectors = packed.reshape(-1, packed.shape[-1])
    factors = np.array([triangle(n).unpack(vector) for vector in vectors])
    return (factors @ factors.mT).reshape(*packed.shape[:-1], n, n)


# Transforms that NumPy computes in less time than a call of PyTensor takes: (forward, backward).
_BY_NUMPY: dict[type, tuple[Map, Map]] = {
    LogTransform: (np.log, np.exp),
    Simplex: (_simplex_forward, _simplex_backward),
    PositiveDefinite: (_pack, _unpack),
}


def _function(
    model: pm.Model, value: TensorVariable, transform: Callable[..., Any], rv: TensorVariable
) -> Map:
    """Compile a forward or backward transform of one variable."""
    output = transform(value, *rv.owner.inputs)
    needed = sorted(v.name for v in set(model.free_RVs).intersection(ancestors([output])))
    if needed:
        raise ValueError(
            f"A Gibbs step cannot own or read {rv.name!r}: its transform depends on the random "
            f"variable(s) {', '.join(needed)}."
        )
    # There is one call per sweep, so compilation would not pay.
    function = compile_function([value], output, mode=QUICK)
    function.trust_input = True
    return function


@dataclass_state
class GibbsBlockState(StepMethodState):
    """State that a chain must save to resume: variable names, generator, tuning."""

    tune: bool
    tuning: Any


def declared(model: pm.Model) -> list[str]:
    """Names of the model's free variables, without those that were added to a declaration."""
    added = model.amendments() if isinstance(model, Declaration) else ()
    return [str(rv.name) for rv in model.free_RVs if rv.name not in added]


def check_conditional(model: Declaration, owned: Sequence[TensorVariable], owner: str) -> None:
    """Raise ValueError if the model's amendments change the conditional of the owned variables."""
    changing = [
        name
        for name in model.amendments()
        if name not in model.named_vars or not set(owned).isdisjoint(ancestors([model[name]]))
    ]
    if changing:
        names = ", ".join(str(rv.name) for rv in owned)
        raise ValueError(
            f"{owner} draws {names} as {type(model).__name__} declares them; the model was amended "
            f"by {', '.join(changing)}, which changes their conditional distribution. Use NUTS "
            "for the amended model."
        )


def _variables(given: Sequence[TensorVariable | str], model: pm.Model) -> list[TensorVariable]:
    """Variables of a model, given as variables or by name."""
    return [model[each] if isinstance(each, str) else each for each in given]


class Shared(TypedDict, total=False):
    """Keyword arguments that every step takes; `GibbsBlock` documents them."""

    model: pm.Model | None
    rng: RandomGenerator


class GibbsBlock(BlockedStep):
    """One Gibbs move of several variables, given all others, as a PyMC step method.

    A subclass implements `sweep`, and `prepare` if it reads constants from the model. This class
    translates points, never writes into them, and resets the tuning before each chain. Pass it in
    ``pm.sample(step=[...])``, where NUTS takes the variables that no step owns.

    Parameters
    ----------
    vars : sequence of TensorVariable or str, optional
        Free random variables (or their value variables or names) that the step redraws. Default:
        those that `prepare` names.
    reads : sequence of TensorVariable or str, default=()
        Other free random variables (or their names) whose current values `sweep` needs.
    model : pymc.Model, optional
        Default: the model on the context stack.
    rng : seed or Generator, optional
        Used until `setup_chain` sets the chain's generator.

    Raises
    ------
    TypeError
        When the model is of none of the types in `declarations`.
    ValueError
        When `vars` are not those that the step redraws, and when the model was amended so that
        their conditional changes; also at the start of a chain, when data were set in between.

    Attributes
    ----------
    declarations : tuple of type
        Types of model that the step can read.
    tune : bool
        Whether the chain is still tuning.
    tuning : object
        Tuned state of the chain's proposals, made by `initial_tuning`; None without tuning.
    packed : frozenset of str
        Names of variables that `sweep` takes and returns in unconstrained form, such as matrices
        that the step draws as Cholesky factors.
    """

    name = "gibbs_block"
    default_blocked = True
    declarations: ClassVar[tuple[type[pm.Model], ...]] = (pm.Model,)
    packed: frozenset[str] = frozenset()
    _state_class = GibbsBlockState

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        reads: Sequence[TensorVariable | str] = (),
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
    ):
        model = pm.modelcontext(model)
        owner = type(self).__name__
        given = None
        if not isinstance(model, self.declarations):
            names = " or a ".join(cls.__name__ for cls in self.declarations)
            raise TypeError(
                f"{owner} needs a {names} (pm.do, pm.observe and copies return a plain model, "
                f"which it cannot read). Got {type(model).__name__}."
            )
        if vars is not None:
            values = get_value_vars_from_user_vars(_variables(vars, model), model)
            given = [model.values_to_rvs[value].name for value in values]
        owns, needs = self.prepare(model, given)
        if given is not None and set(given) != set(owns):
            raise ValueError(
                f"The 'vars' argument of {owner} must be {', '.join(owns)}. Got {sorted(given)}."
            )
        owned = _variables(owns, model)
        self.vars = [model.rvs_to_values[rv] for rv in owned]
        self._made_of: Any = None
        if isinstance(model, Declaration):
            check_conditional(model, owned, owner)
            # pm.set_data replaces the arrays of a model's data.
            arrays = [(data, data.get_value(borrow=True)) for data in model.data_vars]
            self._made_of = model, owned, arrays
        self.rng = get_random_generator(rng)
        self._output_map = ValueMap(model, owned, self.packed)
        read = _variables([*needs, *reads], model)
        self._input_map = ValueMap(model, [*owned, *read], self.packed)
        self.tune = True
        self.tuning = self.initial_tuning()

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read the model's constants, and choose variables; called once, at construction.

        Parameters
        ----------
        model : pymc.Model
            One of `declarations`.
        given : sequence of str or None
            Names of the variables in `vars`, if given.

        Returns
        -------
        owned, read : sequence of str
            Names of the variables that the step redraws (default: the given or else the declared
            ones), and of others that `sweep` needs.
        """
        return given or declared(model), ()

    @abstractmethod
    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the step's variables.

        Parameters
        ----------
        values : mapping of str to ndarray
            Current values of the owned and read variables by name, read-only, on their own scale
            unless `packed`.
        rng : numpy.random.Generator
            The chain's generator.

        Returns
        -------
        values : mapping of str to ndarray
            New value of every owned variable.
        stats : dict
            Statistics as declared in ``stats_dtypes_shapes``.
        """

    def initial_tuning(self) -> Any:
        """Return the tuning state before a chain's first sweep."""
        return None

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Return a moved point; the given point and its arrays are not modified."""
        owned = self._output_map.value_names.keys()
        named = f"{type(self).__name__} of {', '.join(map(repr, owned))}"
        try:
            values, stats = self.sweep(self._input_map.constrain(point), self.rng)
        except Exception as error:
            error.add_note(f"In the sweep of {named}.")
            raise
        if not isinstance(values, Mapping) or owned - values.keys():
            got = list(values) if isinstance(values, Mapping) else repr(values)
            raise ValueError(
                f"The sweep of {type(self).__name__} must return (values, stats), with a new value "
                f"of each variable of the step: {', '.join(map(repr, owned))}. Got values of {got}."
            )
        if {*stats} != {*self.stats_dtypes_shapes}:
            known = f"those of stats_dtypes_shapes: {[*self.stats_dtypes_shapes]}"
            raise ValueError(f"The statistics of {named} must be {known}. Got {[*stats]}.")
        with np.errstate(invalid="ignore"):
            moved = self._output_map.unconstrain(values)
        for name, (place, value) in zip(owned, moved.items(), strict=True):
            if value.shape != point[place].shape:
                raise ValueError(
                    f"The sweep of {named} must return values in the shapes of its variables: that "
                    f"of {name!r} is {point[place].shape} unconstrained. Got {value.shape}."
                )
            if np.isnan(value).any():
                given = np.asarray(values[name], dtype=float)
                raise ValueError(
                    f"The sweep of {named} must return values in the support of its variables. Got "
                    f"{name!r} from {given.min():.6g} to {given.max():.6g}."
                )
        # A copy keeps the order of the keys, on which the sampler relies.
        return {**point, **moved}, [stats]

    def _check_model(self) -> None:
        """Raise ValueError if the step would sample a declaration as it was when it was made."""
        # A step that was sent to another process was checked on its way there.
        if self._made_of is None:
            return
        owner = type(self).__name__
        (model, owned, arrays) = self._made_of
        check_conditional(model, owned, owner)
        now = ((data.name, data.get_value(borrow=True), old) for data, old in arrays)
        if changed := [x for x, new, old in now if new is not old and not np.array_equal(new, old)]:
            raise ValueError(
                f"{owner} was made before pm.set_data set {', '.join(changed)}, and would sample "
                "given the old data: make a new step."
            )

    @override
    def __getstate__(self) -> dict[str, Any]:
        self._check_model()
        return self.__dict__ | {"_made_of": None}

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain with its own generator and without tuning of a previous chain."""
        self._check_model()
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.tuning = self.initial_tuning()

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never assigned automatically."""
        return Competence.INCOMPATIBLE
