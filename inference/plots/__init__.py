"""Figures of results; each function returns an ArviZ ``PlotCollection``.

``.savefig(path)`` writes the figure, ``.viz`` holds the figure, its axes ("plot") and the artists
by name, and ``.data`` holds the plotted numbers. The backend is matplotlib; the functions show
nothing and change no global setting. ``.viz["figure"].item().set_size_inches(width, height)``
changes the size, ``az.rc_context({"stats.ci_prob": 0.9, "stats.ci_kind": "eti"})`` the intervals.
"""

from .bound import plot_bound
from .intervals import plot_engines, plot_variance_explained
from .kernels import plot_kernels
from .regions import plot_decision_regions
from .reliability import plot_reliability
from .weights import plot_weights

__all__ = [
    "plot_bound",
    "plot_decision_regions",
    "plot_engines",
    "plot_kernels",
    "plot_reliability",
    "plot_variance_explained",
    "plot_weights",
]
