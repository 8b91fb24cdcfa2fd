"""Figures of results by matplotlib; each function returns its ``Axes``, or an array of them.

The figure is pyplot's current one: ``plt.savefig("weights.pdf")`` writes it. The functions change
no global setting. ``az.rc_context({"stats.ci_prob": 0.9, "stats.ci_kind": "hdi"})`` sets intervals.
"""

from .importance import plot_importance
from .kernels import plot_kernels
from .predictions import plot_decision_regions, plot_reliability
from .results import plot_bound, plot_engines, plot_weights

__all__ = [
    "plot_bound",
    "plot_decision_regions",
    "plot_engines",
    "plot_importance",
    "plot_kernels",
    "plot_reliability",
    "plot_weights",
]
