"""Quantities that the data identify, for comparing engines."""

import pymc as pm
from xarray import Dataset, DataTree

from ...models.declaration import family
from .paper import PAPERS

__all__ = ["identified"]


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
