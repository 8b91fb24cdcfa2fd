"""What a paper's engines call: one `Paper` per model, one table of them, and the engines' base.

`fit` calls ``engine.run``, and this the function of the model's paper: ``paper.vb.function``,
``paper.gibbs.function``, ... The table `PAPERS` is filled by `add_paper`, ours in
``inference/__init__.py``.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, override

import pymc as pm
from xarray import Dataset, DataTree

from ...models.declaration import Declaration, family
from ...user_warnings import numpy_warnings
from ...validation import argument_error, check_arguments, check_name
from .engine import Engine, Run, setting_of_no_use, why_not_dask
from .outputs import ExactOutput, ModeOutput, PointOutput, VariationalOutput


@dataclass(frozen=True)
class Algorithm[Output]:
    """A paper's algorithm for an engine.

    Parameters
    ----------
    function : callable
        (model, run, *, settings) -> what the engine turns into a result. Its keyword arguments are
        the settings on that model, and their defaults those on the model.
    unless : callable, optional
        Maps a model to the reason why the algorithm does not apply to it, for instance a prior
        without a closed form, or to None.
    in_blocks : bool, default=False
        Whether the function reads kernels in a Dask array.
    """

    function: Callable[..., Output]
    unless: Callable[[Any], str | None] = lambda model: None
    in_blocks: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the function, with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class Paper:
    """A model with its paper's algorithms, and what prediction and comparison call.

    A field that a subclass of the model leaves out is that of the model's paper.

    Parameters
    ----------
    model : type
        The model's class.
    exact, gibbs, vb, em, map : Algorithm, optional
        Functions for the engines. They return an `ExactOutput`, a list of PyMC step methods, a
        `VariationalOutput`, a `PointOutput` and a `ModeOutput`.
    predict : callable, optional
        (model, result, kernels_new, *, keep_draws, ...) -> Dataset, for `predict`; further keyword
        arguments with defaults are options of `predict` on this model.
        ``stack_of_new_objects(model, kernels_new)`` checks and aligns what the user passed. A
        function that loops over the draws takes `progressbar`. One that takes ``random_seed=None``
        gets a seed with `keep_draws`, and then adds draws of the observed variable of new objects,
        under its name in the model. The moments in `result` are pooled over chains.
    identified : callable, optional
        (result, variant) -> Dataset of the quantities (chain, draw, ...) that the data identify,
        for `identified`. `variant` is the model's attribute of this name, "" unless its class
        overrides the property.
    identified_reads : sequence of str, optional
        Variables whose draws `identified` needs; where a result lacks one, all its variables are
        compared instead. Leave out those that only some models of the type have.
    log_evidence : callable, optional
        (model) -> float, for `log_evidence`; raises ValueError, with the reason, for models of the
        type without a closed form.
    scale : str
        Name of the argument that scales the regressors, for `select`.
    path : callable, optional
        (model, scales) -> iterator of VB's functions (draws, rng) -> draws and log densities, one
        for each scale, for `select`.

    Examples
    --------
    >>> kz.inference.PAPERS[kz.MultinomialProbit].vb.settings
    """

    model: type[pm.Model]
    exact: Algorithm[ExactOutput] | None = None
    gibbs: Algorithm[Sequence[Any]] | None = None
    vb: Algorithm[VariationalOutput] | None = None
    em: Algorithm[PointOutput] | None = None
    map: Algorithm[ModeOutput] | None = None
    predict: Callable[..., Dataset] | None = None
    identified: Callable[[DataTree, str], Dataset] | None = None
    identified_reads: Sequence[str] = ()
    log_evidence: Callable[[Any], float] | None = None
    scale: str = ""
    path: Callable[[Any, Sequence[float]], Iterator[Callable[..., Any]]] | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.model, type) and issubclass(self.model, pm.Model)):
            raise argument_error("model", "Paper", "a class of PyMC models", repr(self.model))
        for name in ("exact", "gibbs", "vb", "em", "map"):
            algorithm = getattr(self, name)
            if not isinstance(algorithm, Algorithm | None):
                raise argument_error(name, "Paper", "an Algorithm(function)", repr(algorithm))

    def why_not(self, model: pm.Model) -> str | None:
        """Why no algorithm of the paper applies to a model of its type; None when some may."""
        particular = isinstance(model, Declaration) and issubclass(self.model, Declaration)
        if particular and (amended := ", ".join(map(repr, model.amendments()))):
            return f"not available for {self.model.__name__} with added terms: {amended}"
        return None


#: The paper of each type of model.
PAPERS: dict[type[pm.Model], Paper] = {}


def add_paper(paper: Paper) -> None:
    """Let the engines, prediction and comparison know a paper; it replaces one of the same model.

    Parameters
    ----------
    paper : Paper

    Examples
    --------
    >>> kz.inference.add_paper(kz.inference.PAPERS[kz.MultinomialProbit])
    """
    PAPERS[paper.model] = paper


def papers_of(model_type: type[pm.Model]) -> list[Paper]:
    """Papers of a type of model and of its ancestors, most specific first."""
    return [PAPERS[ancestor] for ancestor in model_type.__mro__ if ancestor in PAPERS]


@dataclass(frozen=True, kw_only=True, repr=False)
class PaperEngine[Output](Engine):
    """An engine that calls a function of the model's paper, or of its nearest ancestor's.

    The fields of a subclass are the settings of all papers. A setting that keeps its field's
    default takes that of the paper's function.
    """

    @staticmethod
    @abstractmethod
    def algorithm_of(paper: Paper) -> Algorithm[Output] | None:
        """Give the paper's algorithm for this engine."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

    @property
    def given(self) -> dict[str, Any]:
        """Settings for the paper's function: those that do not keep their field's default."""
        values = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default}

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return self.given

    def verdicts(self, model: pm.Model) -> list[tuple[Algorithm[Output], str | None]]:
        """Algorithms for the model, most specific first, each with the reason why not, or None."""
        verdicts = []
        for paper in papers_of(type(model)):
            if (algorithm := self.algorithm_of(paper)) is not None:
                reason = paper.why_not(model)
                if reason is None and not algorithm.in_blocks:
                    reason = why_not_dask(model)
                verdicts.append((algorithm, reason or algorithm.unless(model)))
        return verdicts

    def algorithm(self, model: pm.Model) -> Algorithm[Output]:
        """Most specific algorithm that applies to the model, which must exist."""
        return next(each for each, reason in self.verdicts(model) if reason is None)

    @override
    def settings_on(self, model: pm.Model) -> dict[str, Any]:
        return self.algorithm(model).settings | self.settings

    @override
    def why_not(self, model: pm.Model) -> str | None:
        reasons = [reason for _, reason in self.verdicts(model)]
        if not reasons:
            written = [paper for paper in PAPERS.values() if self.algorithm_of(paper)]
            types = ", ".join(paper.model.__name__ for paper in written) or "no model yet"
            return f"not available for {type(model).__name__} (available for {types})"
        return None if None in reasons else reasons[0]

    def implement(self, model: pm.Model, run: Run) -> Output:
        """Call the paper's function for the model; ValueError for settings it does not take."""
        verdicts, owner = self.verdicts(model), f"{self.name} on {type(model).__name__}"
        algorithm = next(each for each, reason in verdicts if reason is None)
        for setting in self.given:
            for passed, reason in verdicts:
                if reason and setting in passed.settings and setting not in algorithm.settings:
                    raise setting_of_no_use(setting, owner, reason)
            check_name(setting, algorithm.settings, "settings", owner)
        check_arguments(algorithm.function, self.given, owner)
        with run.clock.explained(f"for {self.name} to end: it keeps no part of a result here"):
            return algorithm.function(model, run, **self.given)


def log_evidence(model: pm.Model) -> float:
    """Log of the marginal likelihood of a model's observed data, all variables integrated out.

    Parameters
    ----------
    model : pm.Model
        A model whose evidence has a closed form.

    Returns
    -------
    float

    Raises
    ------
    TypeError
        When no closed form is known for the model. ``fit(model, "smc")`` estimates the log evidence
        (``result.attrs["log_evidence"]``); the bound of ``VB`` lies below it.
    ValueError
        When terms were added to the declaration.

    Examples
    --------
    >>> kz.log_evidence(completion)
    """
    for paper in papers_of(type(model)):
        if paper.log_evidence is not None:
            if reason := paper.why_not(model):
                raise ValueError(f"The closed form of log_evidence is {reason}.")
            return paper.log_evidence(model)
    written = ", ".join(p.model.__name__ for p in PAPERS.values() if p.log_evidence)
    raise TypeError(
        f"log_evidence has a closed form for {written or 'no model yet'}; this is a "
        f"{type(model).__name__}. fit(model, 'smc') estimates it: result.attrs['log_evidence']."
    )


@numpy_warnings()
def identified(result: DataTree, model: pm.Model | None = None) -> Dataset:
    """Quantities (chain, draw, ...) of a result on which its model's engines must agree.

    Without a paper's function, or without the draws that it reads, these are all posterior
    variables.

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    model : pm.Model, optional
        Model of a result whose attributes do not name it yet.
    """
    if "posterior" not in result.children:
        return Dataset()
    posterior = result["posterior"].to_dataset()
    if model is None:
        name, variant = result.attrs.get("family", ""), result.attrs.get("variant", "")
    else:
        name, variant = family(model), getattr(model, "variant", "")
    for paper in PAPERS.values():
        if paper.model.__name__ != name or paper.identified is None:
            continue
        if set(paper.identified_reads) <= set(posterior.data_vars):
            return paper.identified(result, variant)
    return posterior
