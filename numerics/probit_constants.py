"""Constants of the probit link that NumPy, numba and JAX share."""

import numpy as np

__all__ = ["LARGEST_SCORE", "LOG_2PI", "SQRT_2PI"]

LOG_2PI = float(np.log(2 * np.pi))
SQRT_2PI = float(np.sqrt(2 * np.pi))
#: Squares of differences of larger scores overflow.
LARGEST_SCORE = 1e150
