"""Numbers printed by Damoulas and Girolami (2009): test errors, per cent, mean and sd."""

from collections.abc import Mapping

__all__ = [
    "BOUNDARY_COVARIANCES",
    "COMBINED_CLASSIFIERS",
    "COMBINED_SPACES_GIBBS",
    "COMBINED_SPACES_VB",
    "CROSS_VALIDATED",
    "PROTEIN",
    "SINGLE_SPACES",
    "TIMES",
]

#: Table 2 (section 4.2), VB: means and sds over the ten folds of one cross-validation.
CROSS_VALIDATED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "balance": {"Gaussian": (8.8, 3.6), "linear": (12.2, 4.2), "polynomial": (7.0, 3.3)},
    "crabs": {"Gaussian": (23.5, 11.3), "linear": (13.5, 8.2), "polynomial": (21.5, 9.1)},
    "glass": {"Gaussian": (27.9, 10.1), "linear": (35.8, 11.8), "polynomial": (28.4, 8.9)},
    "iris": {"Gaussian": (2.7, 5.6), "linear": (11.3, 9.9), "polynomial": (4.7, 6.3)},
    "soybean": {"Gaussian": (6.5, 10.5), "linear": (6.0, 9.7), "polynomial": (4.0, 8.4)},
    "vehicle": {"Gaussian": (25.6, 4.0), "linear": (29.6, 3.3), "polynomial": (26.0, 6.1)},
    "wine": {"Gaussian": (4.5, 5.1), "linear": (2.8, 4.7), "polynomial": (1.1, 2.3)},
}

#: Table 4 (section 4.3.1), Gibbs: digits, 50 trials, one feature space.
SINGLE_SPACES: Mapping[str, tuple[float, float]] = {
    "FR": (27.3, 3.3),
    "KL": (11.0, 2.3),
    "PX": (7.3, 2.0),
    "ZM": (25.2, 3.0),
}
#: Table 5, Gibbs: the four classifiers combined.
COMBINED_CLASSIFIERS: Mapping[str, tuple[float, float]] = {
    "Prod": (5.1, 1.7),
    "Sum": (5.3, 2.0),
    "Max": (8.4, 2.3),
    "Maj": (8.45, 2.2),
}
#: Table 6, Gibbs: the four feature spaces combined.
COMBINED_SPACES_GIBBS: Mapping[str, tuple[float, float]] = {
    "Bin": (5.7, 2.0),
    "FixSum": (5.5, 2.0),
    "WSum": (5.8, 2.1),
    "FixProd": (5.2, 1.8),
    "WProd": (5.9, 1.2),
}
#: Table 7, VB: the four feature spaces combined.
COMBINED_SPACES_VB: Mapping[str, tuple[float, float]] = {
    "Bin": (5.53, 1.7),
    "FixSum": (4.85, 1.5),
    "WSum": (6.1, 1.6),
    "FixProd": (5.35, 1.4),
    "WProd": (6.43, 1.8),
}

#: Tables 8, 9 and 10 (section 4.3.2), VB: proteins, five random starts on one division.
PROTEIN: dict[str, tuple[float, float]] = {
    "Comp": (49.8, 0.6),
    "Hydro": (63.4, 0.6),
    "Pol": (65.2, 0.4),
    "Polz": (66.3, 0.4),
    "Str": (60.0, 0.25),
    "Vol": (65.6, 0.3),
    "Prod": (49.8, 0.6),
    "Sum": (47.6, 0.4),
    "Max": (53.7, 1.4),
    "Maj": (54.1, 0.5),
    "Bin": (40.7, 1.2),
    "FixSum": (40.1, 0.3),
    "WSum": (44.4, 0.6),
    "FixProd": (43.8, 0.14),
    "WProd": (43.2, 1.1),
}

#: Equation 13 (section 4.1): variance of the slope, covariance, variance of the intercept.
BOUNDARY_COVARIANCES: Mapping[str, tuple[float, float, float]] = {
    "Gibbs": (0.16, 0.18, 0.22),
    "VB": (0.015, 0.015, 0.018),
}
#: Table 1: seconds of 100,000 Gibbs samples and of 100 VB iterations.
TIMES: Mapping[str, float] = {"Gibbs": 41720.0, "VB": 120.3}
