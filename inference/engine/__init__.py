"""What an engine is, and what all engines share."""
