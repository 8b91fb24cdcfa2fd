"""Steps of `MutualKernelCompletion`."""
