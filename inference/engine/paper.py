"""What the engines call of a paper: one `Paper` per model, and one table of them.

`fit` calls ``engine.run``, and this the function of the model's paper: ``paper.vb.function``,
``paper.gibbs.function``, ... The table `PAPERS` is filled by `add_paper`, ours in
``inference/__init__.py``.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pymc as pm
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...models.combinations.sums import FixedWeights, WeightedSum
from ...models.declaration import Declaration
from ...user_warnings import numpy_warnings
from ...validation import argument_error
from .result import ExactOutput, IntegratedOutput, PointOutput, VariationalOutput, returned_dataset


@dataclass(frozen=True)
class Algorithm[Output]:
    """A paper's algorithm for an engine.

    Parameters
    ----------
    function : callable
        (model, run, *, settings) -> what the engine turns into a result. Its keyword arguments are
        the settings on that model.
    unless : callable, optional
        Maps a model to the reason why the algorithm does not apply to it, or to None.
    """

    function: Callable[..., Output]
    unless: Callable[[Any], str | None] = lambda model: None

    def __post_init__(self) -> None:
        for name, default in self.settings.items():
            if default is inspect.Parameter.empty:
                owner = f"Algorithm({getattr(self.function, '__name__', self.function)})"
                raise argument_error(name, owner, "a setting with a default", "none")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the function, with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


class Fold(NamedTuple):
    """Objects of a fit and objects left out of it, as arrays.

    Parameters
    ----------
    rule : WeightedSum
        Rule of the kernels' weights. Known weights are those of `FixedWeights`, of one kernel: the
        composite one.
    kernels, kernels_new : array (kernel, obs, basis)
        Kernels of both, without the columns that are objects left out.
    responses, responses_new : array (obs,) or (obs, output)
        Codes of classes, or targets.
    """

    rule: WeightedSum
    kernels: NDArray
    kernels_new: NDArray
    responses: NDArray
    responses_new: NDArray

    @property
    def learned(self) -> bool:
        """Whether the weights are random variables."""
        return not isinstance(self.rule, FixedWeights)


@dataclass(frozen=True)
class Paper:
    """A model with its paper's algorithms, and what prediction and comparison call.

    A field that a subclass of the model leaves out is that of the model's paper.

    Parameters
    ----------
    model : type
        The model's class.
    exact, gibbs, inla, vb, em, map : Algorithm, optional
        Functions (model, run, *, settings) for the engines. They return an `ExactOutput`, a list of
        PyMC step methods, an `IntegratedOutput`, a `VariationalOutput`, and for EM and MAP a
        `PointOutput`.
    predict : callable, optional
        (model, result, kernels_new, *, keep_draws, ...) -> Dataset, for `predict`; further keyword
        arguments are options of `predict` on this model. With ``progressbar`` it shows its loop
        over the draws, and with ``random_seed`` it draws the observed variable of new objects. The
        moments in `result` are pooled over chains.
    identified : callable, optional
        (result, model.variant) -> Dataset of the quantities (chain, draw, ...) that the data
        identify, for `identified`.
    identified_reads : sequence of str, optional
        Variables whose draws `identified` needs; a result without them is compared by all its own.
    predicted : callable, optional
        Dataset of `identified` -> Dataset of predictions (chain, draw, ...) of some training
        objects, whose R-hat says whether a result can be read for predictions. None: all that is
        identified has to agree.
    log_evidence : callable, optional
        (model) -> float, for `log_evidence`; raises ValueError for models without a closed form.
    scale : str
        Name of the argument that scales the regressors, for `select`.
    held_out : callable, optional
        (model, fold, scales, run, *, several_starts) -> iterator of the log scores (new,) of the
        `Fold`'s objects that are left out, by VB at one scale after another, for `select`. The
        model gives prior numbers alone. Each fit starts from the last, with `several_starts` as
        VB's own; ``run`` has the seed and the number of draws of the predictions.

    Examples
    --------
    >>> kz.inference.PAPERS[kz.MultinomialProbit].vb.settings
    """

    model: type[pm.Model]
    exact: Algorithm[ExactOutput] | None = None
    gibbs: Algorithm[Sequence[Any]] | None = None
    inla: Algorithm[IntegratedOutput] | None = None
    vb: Algorithm[VariationalOutput] | None = None
    em: Algorithm[PointOutput] | None = None
    map: Algorithm[PointOutput] | None = None
    predict: Callable[..., Dataset] | None = None
    identified: Callable[[DataTree, str], Dataset] | None = None
    identified_reads: Sequence[str] = ()
    predicted: Callable[[Dataset], Dataset] | None = None
    log_evidence: Callable[[Any], float] | None = None
    scale: str = ""
    held_out: Callable[..., Iterator[NDArray]] | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.model, type) and issubclass(self.model, pm.Model)):
            raise argument_error("model", "Paper", "a class of PyMC models", repr(self.model))
        for name in ("exact", "gibbs", "inla", "vb", "em", "map"):
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

    ``dataclasses.replace(PAPERS[Model], vb=...)`` keeps the other fields of that one.

    Parameters
    ----------
    paper : Paper

    Examples
    --------
    >>> kz.inference.add_paper(kz.inference.PAPERS[kz.MultinomialProbit])
    """
    PAPERS[paper.model] = paper


def paper_with(field: str, model: Any) -> Paper | None:
    """Paper of the model's type, or of its nearest ancestor's, that has a field; None without."""
    papers = (PAPERS[ancestor] for ancestor in type(model).__mro__ if ancestor in PAPERS)
    return next((paper for paper in papers if getattr(paper, field) is not None), None)


def papers_with(field: str) -> list[Paper]:
    """List the papers that have a field."""
    return [paper for paper in PAPERS.values() if getattr(paper, field) is not None]


def models_with(field: str) -> str:
    """Names of the models whose paper has a field, for messages."""
    names = [paper.model.__name__ for paper in papers_with(field)]
    return ", ".join(names) or "no model yet"


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
    paper = paper_with("log_evidence", model)
    if paper is None or paper.log_evidence is None:
        raise TypeError(
            f"log_evidence is not available for {type(model).__name__} (available for "
            f"{models_with('log_evidence')}). fit(model, 'smc').attrs['log_evidence'] estimates it."
        )
    if reason := paper.why_not(model):
        raise ValueError(f"The closed form of log_evidence is {reason}.")
    return paper.log_evidence(model)


@numpy_warnings()
def identified(result: DataTree, model: pm.Model | None = None) -> Dataset:
    """Quantities (chain, draw, ...) of a result on which its model's engines must agree.

    Without a paper's function, or without the draws that it reads, all posterior variables.

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
        paper = _paper_of(result, "identified")
        variant = result.attrs.get("variant", "")
    else:
        paper = paper_with("identified", model)
        variant = getattr(model, "variant", "")
    if paper is None or paper.identified is None or not {*paper.identified_reads} <= {*posterior}:
        return posterior
    return returned_dataset(paper.identified(result, variant), "identified", paper.model)


def predicted(result: DataTree, quantities: Dataset) -> Dataset:
    """Predictions (chain, draw, ...) of training objects, from what `identified` gave.

    Without a paper's function, all these quantities.
    """
    paper = _paper_of(result, "predicted")
    if paper is None or paper.predicted is None:
        return quantities
    return returned_dataset(paper.predicted(quantities), "predicted", paper.model)


def _paper_of(result: DataTree, field: str) -> Paper | None:
    """Paper with a field of the model that a result's attributes name; None without."""
    names = [result.attrs.get(name) for name in ("model", "family")]
    # A class that was defined again, as in a notebook, comes later.
    known = [paper for paper in reversed(PAPERS.values()) if getattr(paper, field) is not None]
    named = (paper for name in names for paper in known if paper.model.__name__ == name)
    return next(named, None)
