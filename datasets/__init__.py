"""Data for examples, tests and benchmarks: ``load(name)``, ``names()``, ``table()``.

Small data sets come with the package or with scikit-learn, or are generated. The others are read
from the folder in the environment variable KERNELZOO_DATA or from the user's cache folder; if
neither has the file and OpenML holds the same data, they are downloaded. The checksum of a file is
verified each time.
"""

from .catalogue import load, names, table
from .dataset import Card, Dataset, Split
from .generators import balance_scale, cohort, neal_three_class, twonorm

__all__ = [
    "Card",
    "Dataset",
    "Split",
    "balance_scale",
    "cohort",
    "load",
    "names",
    "neal_three_class",
    "table",
    "twonorm",
]
