"""Engines that work on any PyMC model."""
