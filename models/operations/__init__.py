"""PyTensor operations with analytic gradients, for NumPy, numba and JAX."""
