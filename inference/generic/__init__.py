"""Engines that work on any PyMC model."""

from . import approximations, smc

__all__ = ["approximations", "smc"]
