"""Searches for a mode: by gradients for any declaration, and a paper's own, a file a paper."""
