"""Rules that combine kernels with weights: a file a family of rules."""
