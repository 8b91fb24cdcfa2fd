"""Gibbs samplers: which steps make up one, a file a paper."""
