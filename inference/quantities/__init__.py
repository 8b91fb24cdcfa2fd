"""Predictions and identified quantities from posterior draws, a file a paper."""
