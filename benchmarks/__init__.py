"""Benchmarks that claims of the documentation rest on: times, mixing, held-out scores."""
