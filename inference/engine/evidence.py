"""Log marginal likelihoods in closed form."""

import pymc as pm

from .paper import PAPERS, papers_of

__all__ = ["log_evidence"]


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

    Examples
    --------
    >>> kz.log_evidence(completion)
    """
    for paper in papers_of(type(model)):
        if paper.log_evidence is not None:
            return paper.log_evidence(model)
    written = ", ".join(p.model.__name__ for p in PAPERS.values() if p.log_evidence)
    raise TypeError(
        f"log_evidence has a closed form for {written or 'no model yet'}; this is a "
        f"{type(model).__name__}. fit(model, 'smc') estimates it: result.attrs['log_evidence']."
    )
