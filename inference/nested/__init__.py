"""Posterior of the weights of kernels, with all else nested inside; knows no paper."""
