"""The demonstration, and the papers' tables as studies."""
