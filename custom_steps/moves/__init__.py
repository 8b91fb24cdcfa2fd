"""Moves on vectors, simplices and gamma variables, independent of any model."""
