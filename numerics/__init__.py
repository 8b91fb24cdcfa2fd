"""Numerics that several rooms share: NumPy, SciPy and numba only."""
