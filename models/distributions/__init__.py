"""Distributions that PyMC lacks, or computes at a higher cost."""
