"""The demonstration, and studies that reproduce the papers' tables; the wheel leaves them out."""
