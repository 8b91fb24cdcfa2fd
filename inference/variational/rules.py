"""Rules of combination to which VB applies."""

from collections.abc import Sequence
from typing import Any

from ...models.combinations.sums import Binary
from ..engine.applicability import unknown_combination
from .binary import MOST_KERNELS

__all__ = ["why_not"]


def why_not(model: Any, rules: Sequence[type], others: str = "") -> str | None:
    """Why VB does not apply to a model's rule of combination; None when it does.

    Weights of `rules` have a factor; `others` names further rules in the message.
    """
    rule, n_kernels = model.combination, len(model.coords["kernel"])
    if reason := unknown_combination(model, rules, others):
        return reason
    if isinstance(rule, Binary) and n_kernels > MOST_KERNELS:
        return f"it enumerates the selections of {MOST_KERNELS} kernels at most, not of {n_kernels}"
    return None
