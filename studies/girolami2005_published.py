"""Numbers printed by Girolami and Rogers (2005): means and standard errors, per cent.

Only the first row of Table 1's last block, 2-norm, could be read.
"""

from collections.abc import Mapping

__all__ = ["ACCURACIES", "WEIGHT_MEANS"]

#: Table 1, VB.
ACCURACIES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "heart": {
        "Gaussian": (82.81, 0.62),
        "linear": (82.59, 0.78),
        "polynomial": (82.26, 0.68),
        "all three": (83.46, 0.67),
    },
    "sonar": {
        "Gaussian": (80.38, 0.89),
        "linear": (54.89, 1.27),
        "polynomial": (55.16, 1.39),
        "all three": (80.59, 0.80),
    },
    "ionosphere": {
        "Gaussian": (90.38, 0.44),
        "linear": (82.98, 0.73),
        "polynomial": (93.75, 0.42),
        "all three": (93.75, 0.43),
    },
    "2-norm": {"Gaussian": (95.89, 0.74)},
}
#: Table 2, VB: Gaussian, linear, polynomial.
WEIGHT_MEANS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "heart": ((85.9, 6.2), (13.0, 6.2), (0.3, 0.1)),
    "sonar": ((95.5, 2.4), (2.3, 1.1), (2.2, 1.3)),
    "ionosphere": ((32.4, 1.8), (16.5, 0.7), (51.2, 2.3)),
    "2-norm": ((0.8, 0.1), (98.9, 0.1), (0.3, 0.1)),
}
