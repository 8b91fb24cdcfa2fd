"""Comparison of engines, and scores of predictions."""
