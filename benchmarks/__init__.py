"""Benchmarks that claims of the documentation rest on: times, mixing, held-out scores."""

from . import cold, gpu, growing, held_out, letters, mixing

BENCHMARKS = {
    "cold": cold.run,
    "gpu": gpu.run,
    "growing": growing.run,
    "heldout": held_out.run,
    "letters": letters.run,
    "mixing": mixing.run,
}
