"""Factors and coordinate ascent that several VB fits share."""
