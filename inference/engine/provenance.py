"""Whether a result belongs to a model: by its data, its priors and its likelihood.

Two results, or a result and a model, are compared by the values of their data, whose last digits
depend on the machine, and by fingerprints (attribute ``declared``) of the graphs that declare
priors and likelihoods. These cover distributions, operations and constants, but not the code of a
user's Python functions.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.backends.arviz import find_observations
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from xarray import DataTree

from ...models.declaration import Declaration, family
from ...models.kernels.stack import label_difference
from ...validation import argument_error

#: Difference up to which numbers count as the same, relative to the largest (they may have been
#: stored in single precision or rescaled) and to their spread.
SAME = 1e-6
SMALL = 1e-3
#: Largest number of elements of a constant that counts as a hyperparameter.
MOST_ELEMENTS = 100

#: Libraries on which results depend.
VERSIONED = ("kernelzoo", "pymc", "pytensor", "arviz", "numpy", "scipy")

type Data = Mapping[str, NDArray]
type Attributes = Mapping[Any, Any]


def data_of(model: pm.Model) -> Data:
    """Observations and constants of a model in its current state, by name."""
    return {**find_observations(model), **constants_of(model)}


def constants_of(model: pm.Model) -> dict[str, NDArray]:
    """Return data other than observations, as PyMC finds them, but read-only and not copied."""
    used = {*ancestors([*model.basic_RVs, *model.deterministics, *model.potentials])}
    unused = {*model.rvs_to_values.values()} - used
    found = {}
    for data in model.data_vars:
        if data not in unused:
            values = np.asarray(data.get_value(borrow=True)).view()
            values.flags.writeable = False
            found[str(data.name)] = values
    return found


def data_in(result: DataTree) -> Data:
    """Observations and constants that a result holds, by name."""
    groups = [result.children.get(name, DataTree()) for name in ("observed_data", "constant_data")]
    return {str(k): values.to_numpy() for group in groups for k, values in group.data_vars.items()}


def differing_data(one: Data, other: Data) -> list[str]:
    """Names of the data that both have, but with different values."""
    return sorted(name for name in one.keys() & other.keys() if not _same(one[name], other[name]))


def differing_terms(one: Attributes, other: Attributes) -> list[str]:
    """Say which priors and terms of the likelihood differ between two results' attributes."""
    compared = all("declared" in attributes for attributes in (one, other))
    # Fingerprints from different versions of the libraries are not comparable.
    if not compared or one.get("versions") != other.get("versions"):
        return []
    mine, theirs = (declared_in(each) for each in (one, other))
    differ = {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]}
    of_one, of_other = (terms_in(each) for each in (one, other))
    terms = sorted(of_one ^ of_other) if of_one and of_other else []
    # If variables have been integrated out, the likelihoods' fingerprints rightly differ, but not
    # the names of the observed variables and potentials.
    if terms or mine.keys() != theirs.keys():
        differ.discard("")
    found = [f"the prior of {name}" if name else "the likelihood" for name in sorted(differ)]
    return [*found, *(f"the term {name!r}" for name in terms)]


def read_attribute[Content](attributes: Attributes, name: str, default: Content) -> Content:
    """Read an attribute written as JSON; ValueError unless it is of the type of the default."""
    if (text := attributes.get(name)) is None:
        return default
    with suppress(ValueError, TypeError):
        if isinstance(content := json.loads(text), type(default)):
            return content
    raise damaged(name, text)


def declared_in(attributes: Attributes) -> dict[str, str]:
    """Fingerprints of a result's variables, by name."""
    return read_attribute(attributes, "declared", {})


def terms_in(attributes: Attributes) -> set[str]:
    """Names of a result's observed variables and potentials."""
    nothing: list[str] = []
    return set(read_attribute(attributes, "terms", nothing))


def read_number(attributes: Attributes, name: str, default: float = np.nan) -> float:
    """Read an attribute that is a number, or raise ValueError."""
    value = attributes.get(name, default)
    with suppress(ValueError, TypeError):
        return float(value)
    raise damaged(name, value)


def damaged(name: str, got: object) -> ValueError:
    """Build the error for an attribute of a result that is not as `fit` wrote it."""
    return ValueError(f"The attribute {name!r} of the result is damaged: {got!r}.")


def check_model(model: Any, owner: str) -> None:
    """Raise TypeError unless a model is a pm.Model; ValueError for kernels with old labels."""
    if not isinstance(model, pm.Model):
        raise TypeError(f"The 'model' argument of {owner} must be a pm.Model. Got {type(model)}.")
    if has_new_kernels(model) and model.coords["obs"] != model.coords["basis"]:
        K = model["K"].get_value(borrow=True)
        if K.shape[1] == K.shape[2] and all(np.allclose(matrix, matrix.T) for matrix in K):
            raise ValueError(
                "The new kernels K are Gram matrices, and the labels of their rows and columns "
                'differ: pm.set_data(..., coords={"obs": ids, "basis": ids}).'
            )


def has_new_kernels(model: pm.Model) -> bool:
    """Whether ``pm.set_data`` has set other kernels than those of a declaration."""
    if not isinstance(model, Declaration) or model.kernel_source.not_data:
        return False
    # A model that is not sealed, which `fit` refuses, has no data of its declaration.
    declared = vars(model).get("_data", {}).get("K")
    return declared is not None and model["K"].get_value(borrow=True) is not declared


def check_result(result: Any, argument: str, owner: str) -> None:
    """Raise TypeError unless a result is a DataTree, and ValueError if it has no draws."""
    if not isinstance(result, DataTree):
        raise TypeError(
            f"The '{argument}' argument of {owner} must be a result of fit. Got {type(result)}."
        )
    posterior = result.children.get("posterior")
    if not result.children or (posterior is None and "prior" in result.children):
        got = f"draws of {', '.join(result.children)}" if result.children else "an empty DataTree"
        got = f"its group {result.name!r}" if result.parent else got
        raise argument_error(argument, owner, "a result of fit", got)
    if posterior is not None and 0 in [posterior.sizes.get(dim, 1) for dim in ("chain", "draw")]:
        raise argument_error(argument, owner, "a result with draws", "none in its posterior")


def check_results(results: Any, owner: str) -> None:
    """Raise unless results are a mapping of results by name."""
    named = isinstance(results, Mapping) and all(isinstance(name, str) for name in results)
    if not named or isinstance(results, DataTree):
        rule = 'a mapping of results by name, such as {"VB": vb, "Gibbs": gibbs}'
        raise argument_error("results", owner, rule, type(results).__name__)
    if not results:
        raise argument_error("results", owner, "at least one result", "none")
    for name, tree in results.items():
        check_result(tree, f'results["{name}"]', owner)


def check_fitted(model: pm.Model, result: DataTree, owner: str) -> None:
    """Raise ValueError unless a result is of the model's present data, priors and likelihood."""
    check_model(model, owner)
    check_result(result, "result", owner)
    if (other := result.attrs.get("family", family(model))) != family(model):
        got = f"a result of a {other}"
        raise argument_error("result", owner, f"a result of fit on a {family(model)}", got)
    theirs = data_in(result)
    own = data_of(model)
    _check_order_of_labels(model, result, owner)
    if differ := differing_data(theirs, own):
        got = f"a result with other values of {', '.join(differ)}"
        raise argument_error("result", owner, "a result of fit on the model's data", got)
    rule = "a result of fit under the model's priors and likelihood"
    drawn = declared_in(result.attrs).keys()
    free = {str(rv.name) for rv in model.free_RVs}
    if differ := sorted((drawn & own.keys()) | (free & theirs.keys())):
        got = f"a result in which {', '.join(differ)} is random, or known, and the reverse here"
        raise argument_error("result", owner, rule, got)
    if differ := differing_terms(result.attrs, declaration(model)):
        raise argument_error("result", owner, rule, f"a result that differs in {', '.join(differ)}")


def _check_order_of_labels(model: pm.Model, result: DataTree, owner: str) -> None:
    """Raise if the result has a dimension's labels in another order, such as swapped names."""
    known = {dim: list(labels) for dim, labels in model.coords.items() if labels}
    for group in result.children.values():
        indexes = group.to_dataset(inherit=False).indexes
        for dim in known.keys() & indexes.keys():
            given = indexes[dim].tolist()
            own = known[str(dim)]
            if given == own:
                continue
            given, own = (list(map(str, labels)) for labels in (given, own))
            if given != own and sorted(given) == sorted(own):
                rule = f"a result with the model's labels of {dim}, in their order"
                raise argument_error("result", owner, rule, label_difference(given, own))


def declaration(model: pm.Model) -> dict[str, str]:
    """Return what a result's attributes tell of its model's priors and likelihood."""
    likelihood = [*model.observed_RVs, *model.potentials]
    return {
        "declared": json.dumps(term_fingerprints(model)),
        "terms": json.dumps(sorted(str(term.name) for term in likelihood)),
        "versions": json.dumps(versions()),
    }


@cache
def versions() -> dict[str, str]:
    """Versions of the libraries on which results depend."""
    return {name: version(name) for name in VERSIONED}


def _same(one: NDArray, other: NDArray) -> bool:
    one = np.asarray(one)
    other = np.asarray(other)
    if one.shape != other.shape:
        return False
    numbers = all(np.issubdtype(array.dtype, np.number) for array in (one, other))
    # The data that were fitted are the same to the last bit in the session that fitted them.
    return bool(np.array_equal(one, other)) or (numbers and equal_but_for_rounding(one, other))


def equal_but_for_rounding(one: NDArray, other: NDArray, axis: int | None = None) -> bool:
    """Whether arrays of the same shape are equal up to rounding."""
    # Rounding is relative to the largest value along `axis`, and small beside the spread: far from
    # zero, other data are as close, relative to their size, as data of single precision are.
    one = np.asarray(one, dtype=float)
    finite = np.isfinite(one)
    size = np.max(np.abs(one), axis=axis, initial=0.0, where=finite)
    highest = np.max(one, axis=axis, initial=-np.inf, where=finite)
    spread = np.maximum(highest - np.min(one, axis=axis, initial=np.inf, where=finite), 0.0)
    close = np.minimum(SAME * size, SMALL * spread) + 4 * np.finfo(float).eps * size
    return bool(np.allclose(one, other, rtol=0, atol=close, equal_nan=True))


def term_fingerprints(model: pm.Model) -> dict[str, str]:
    """Short fingerprints of the free variables' priors, and by the name "" of the likelihood."""
    priors = {str(variable.name): _fingerprint([variable]) for variable in model.free_RVs}
    return priors | {"": _fingerprint([*model.observed_RVs, *model.potentials])}


def _fingerprint(variables: Sequence[Variable]) -> str:
    """Fingerprint of the operations that lead to variables, with their order and constants."""
    digest = sha256()
    place: dict[Variable, str] = {}
    for number, node in enumerate(toposort(variables)):
        place |= {v: v.name or f"{number}.{i}" for i, v in enumerate(node.outputs)}
        digest.update(str(node.op).encode())
        if (inner := getattr(node.op, "fgraph", None)) is not None:
            digest.update(_fingerprint(inner.outputs).encode())
        for variable in node.inputs:
            if isinstance(variable, Constant):
                digest.update(_content(variable.data))
            else:
                digest.update(place.get(variable, str(variable.name)).encode())
    return digest.hexdigest()[:8]


def _content(constant: object) -> bytes:
    """Bytes of a constant; of data, whose last digits depend on the machine, the shape alone."""
    array = np.asarray(constant)
    if not np.issubdtype(array.dtype, np.number):
        return repr(constant).encode()
    numbers = (
        "" if array.size > MOST_ELEMENTS else " ".join(f"{x:.6g}" for x in array.ravel().tolist())
    )
    return f"{array.shape} {numbers}".encode()
