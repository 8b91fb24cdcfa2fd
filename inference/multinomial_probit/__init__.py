"""Engines of `MultinomialProbit`, and its predictions."""

from functools import partial

from ...models.multinomial_probit import MultinomialProbit
from ..engine.paper import Algorithm, Paper
from ..engine.predict import predict_classes
from .gibbs import multinomial_probit_steps, unknown_rule
from .predict import identified_quantities, probabilities_of
from .vb import fit_multinomial_probit, path_of_scales, unsupported

__all__ = ["PROBIT", "fit_multinomial_probit"]

PROBIT = Paper(
    MultinomialProbit,
    gibbs=Algorithm(multinomial_probit_steps, unless=unknown_rule),
    vb=Algorithm(fit_multinomial_probit, unless=unsupported, in_blocks=True),
    predict=partial(predict_classes, probabilities_of),
    identified=identified_quantities,
    identified_reads=["W"],
    scale="upsilon",
    path=path_of_scales,
)
