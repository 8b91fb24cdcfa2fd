"""Quantities that papers define: log evidence, what the data identify, variance explained."""

import pymc as pm
from xarray import Dataset, DataTree

from ...models.declaration import family
from ...validation import argument_error
from .paper import PAPERS, papers_of

__all__ = ["identified", "log_evidence", "variance_explained"]


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


def identified(result: DataTree, model: pm.Model | None = None) -> Dataset:
    """Quantities (chain, draw, ...) of a result on which its model's engines must agree.

    A saved result can be compared without its model, because its attributes name the model. Without
    a paper's function, or without the draws that the function reads, these are all posterior
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
    name = family(model) if model is not None else result.attrs.get("family", "")
    variant = (
        getattr(model, "variant", "") if model is not None else result.attrs.get("variant", "")
    )
    for paper in PAPERS.values():
        if paper.model.__name__ != name or paper.identified is None:
            continue
        if set(paper.identified_reads) <= set(posterior.data_vars):
            return paper.identified(result, variant)
    return posterior


OWNER = "variance_explained"


def variance_explained(result: DataTree) -> Dataset:
    r"""Part of the variance of a regression's targets that each kernel explains, at each draw.

    With the contributions :math:`f_k = \beta_k K_k \alpha` of the kernels to the responses of the
    training objects, :math:`f = \sum_k f_k` and noise of precision :math:`\gamma`, kernel k
    explains

    .. math:: R^2_k = \frac{\mathrm{Cov}(f_k, f)}{\mathrm{Var}(f) + 1/\gamma},

    where covariance and variance are over the training objects. The kernels add up to the Bayesian
    :math:`R^2` of Gelman et al. (2019).

    Parameters
    ----------
    result : DataTree
        Result of `fit` on a `CompositeKernelRegression`, with draws of alpha.

    Returns
    -------
    Dataset
        ==================  ========================  ==========================================
        explained           chain, draw, kernel       part of the variance, by kernel
        total               chain, draw               their sum, between 0 and 1
        ==================  ========================  ==========================================

        Both have the dim output before kernel if the targets have it. ``az.summary`` gives means
        and intervals.

    Raises
    ------
    ValueError
        For a result of another model, and for one without draws of alpha (``collapsed=True``).

    Notes
    -----
    A kernel's part is negative where it takes back what others contribute, and kernels that say the
    same share what they explain in ways that the data do not determine: intervals show it. Draws of
    VB are too sure of it where they are too sure of the weights.

    Blocks of draws are read one after the other: O(draws K N M) time for each output, memory for a
    block.

    References
    ----------
    A. Gelman, B. Goodrich, J. Gabry and A. Vehtari (2019), R-squared for Bayesian regression
    models, The American Statistician 73, equation 3, with the model's noise variance.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response)
    >>> explained = kz.scores.variance_explained(kz.fit(model, "gibbs", random_seed=1))
    >>> az.summary(explained)
    """
    family = result.attrs.get("family", "") if isinstance(result, DataTree) else ""
    functions = {p.model.__name__: p.variance_explained for p in PAPERS.values()}
    function = functions.get(family)
    if function is None:
        got = f"one of {family}" if family else f"a {type(result).__name__} of no model"
        rule = f"a result of fit on {', '.join(name for name, known in functions.items() if known)}"
        raise argument_error("result", OWNER, rule, got)
    return function(result, OWNER)
