"""Reasons why an engine does not apply to a model, shared by the engines that have them."""

from collections.abc import Callable
from typing import Any

import pymc as pm

from ..models.combination import Combination

__all__ = ["combination_other_than", "discrete_variables"]


def discrete_variables(model: pm.Model) -> str | None:
    """Why an engine that needs gradients does not apply; None when every variable has one."""
    names = [rv.name for rv in model.discrete_value_vars]
    return f"it needs gradients; {', '.join(names)} is discrete" if names else None


def combination_other_than(*known: type[Combination]) -> Callable[[Any], str | None]:
    """Make the reason for models whose kernels are combined by a rule other than those known."""

    def reason(model: Any) -> str | None:
        if isinstance(model.combination, known):
            return None
        names = ", ".join(rule.__name__ for rule in known)
        return f"it knows the combinations {names}; this is {type(model.combination).__name__}"

    return reason
