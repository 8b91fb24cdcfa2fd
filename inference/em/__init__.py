"""Expectation-maximisation algorithms, a file a paper."""
