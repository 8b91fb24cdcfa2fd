"""Moves on vectors, simplices and gamma variables that know no model."""
