"""Tanner-Wong steps of the models that complete one kernel matrix."""
