"""The probit's log probability and truncated moments, as the tests ask for them."""

from kernelzoo.numerics.probit import log_probability_and_gradient


def log_probability(f, t):
    """Log P(t | f), shape (N,)."""
    return log_probability_and_gradient(f, t)[0]


def truncated_moments(f, t):
    """Log P(t | f), shape (N,), and E[y] of the normal truncated to the cone of t, (N, C)."""
    log_p, gradient = log_probability_and_gradient(f, t)
    return log_p, f + gradient
