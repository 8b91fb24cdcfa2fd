"""Figures of results; each function returns an ArviZ ``PlotCollection``.

``.savefig(path)`` writes the figure, ``.viz`` holds the figure, its axes ("plot") and the artists
by name, and ``.data`` holds the plotted numbers. The backend is matplotlib; the functions show
nothing and change no global setting.
"""

from .bound import plot_bound
from .kernels import plot_kernels
from .marginals import plot_engines
from .regions import plot_decision_regions
from .reliability import plot_reliability
from .variance import plot_variance_explained
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
