"""Kernel functions, their normalisation, and stacks of kernel matrices."""
