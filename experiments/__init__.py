"""The demonstration, and studies that reproduce the papers' tables."""
