"""Exact samplers, a file a paper."""
