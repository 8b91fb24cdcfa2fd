"""Engines of `MultinomialProbit`, and its predictions."""

from ...models.multinomial_probit import MultinomialProbit
from ..engine.paper import Algorithm, Paper
from .gibbs import multinomial_probit_steps, unknown_rule
from .predict import identified_quantities, predict_labels
from .vb import fit_multinomial_probit, unsupported

__all__ = ["PROBIT", "fit_multinomial_probit"]

PROBIT = Paper(
    MultinomialProbit,
    gibbs=Algorithm(multinomial_probit_steps, unless=unknown_rule),
    vb=Algorithm(fit_multinomial_probit, unless=unsupported, in_blocks=True),
    predict=predict_labels,
    identified=identified_quantities,
    identified_reads=["W"],
)
