"""PyTensor operations with gradients of their own, for NumPy, numba and JAX."""
