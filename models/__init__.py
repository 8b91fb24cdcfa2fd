"""The papers' models as PyMC models, with their kernels, combinations and distributions."""

from . import combinations as combinations
from . import distributions as distributions
from . import kernels as kernels
from .composite_function import composite_function as composite_function
from .composite_kernel import CompositeKernelClassification as CompositeKernelClassification
from .composite_kernel import CompositeKernelRegression as CompositeKernelRegression
from .declaration import CompositeDeclaration as CompositeDeclaration
from .declaration import Declaration as Declaration
from .declaration import LabelledDeclaration as LabelledDeclaration
from .diagonal_wishart_completion import DiagonalWishartCompletion as DiagonalWishartCompletion
from .gaussian_process import GaussianProcessClassification as GaussianProcessClassification
from .gaussian_process import GaussianProcessRegression as GaussianProcessRegression
from .learned_scale import LearnedScale as LearnedScale
from .multinomial_probit import MultinomialProbit as MultinomialProbit
from .mutual_kernel_completion import CompletionProblem as CompletionProblem
from .mutual_kernel_completion import MutualKernelCompletion as MutualKernelCompletion
from .wishart_completion import WishartCompletion as WishartCompletion
from .wishart_kernel_mixture import WishartKernelMixture as WishartKernelMixture

MODELS = (
    WishartCompletion,
    DiagonalWishartCompletion,
    WishartKernelMixture,
    CompositeKernelRegression,
    CompositeKernelClassification,
    MultinomialProbit,
    GaussianProcessRegression,
    GaussianProcessClassification,
    MutualKernelCompletion,
)
