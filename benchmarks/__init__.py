"""Timings compared with the necessary BLAS calls, memory, mixing, and held-out scores."""

from . import cold, growing, held_out, letters, memory, mixing, recommendation, reference, speed

BENCHMARKS = {
    "cold": cold.run,
    "growing": growing.run,
    "heldout": held_out.run,
    "letters": letters.run,
    "memory": memory.run,
    "mixing": mixing.run,
    "paper": speed.run_paper,
    "recommend": recommendation.run,
    "reference": reference.run,
    "speed": speed.run,
}
