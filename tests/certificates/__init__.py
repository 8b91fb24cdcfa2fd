"""Certificates: what proves each engine on each variant of each model."""
