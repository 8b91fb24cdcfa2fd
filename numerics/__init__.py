"""Numerics shared by several subpackages: NumPy, SciPy and numba only."""
