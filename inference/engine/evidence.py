"""Log marginal likelihoods in closed form."""

from functools import singledispatch

import pymc as pm

__all__ = ["log_evidence"]


@singledispatch
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
    written = ", ".join(t.__name__ for t in log_evidence.registry if t is not object)
    raise TypeError(
        f"log_evidence has a closed form for {written or 'no model yet'}; this is a "
        f"{type(model).__name__}. fit(model, 'smc') estimates it: result.attrs['log_evidence']."
    )
