"""Steps of the composite-kernel models."""
