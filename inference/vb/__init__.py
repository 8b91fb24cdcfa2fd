"""Variational Bayes written by hand: one file a paper, and the factors that papers share."""
