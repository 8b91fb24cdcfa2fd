"""Sphinx configuration of the documentation site; `make docs` builds it."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
# The last are the checkout, for its studies, and its tests, for the variants of the models.
sys.path[:0] = [str(DOCS / "extensions"), str(DOCS.parent), str(DOCS.parent / "tests")]

import cells  # noqa: E402
from substitutions import SUBSTITUTIONS  # noqa: E402

project = "kernelzoo"
author = "the kernelzoo developers"
project_copyright = f"2026, {author}"
version = release = installed_version("kernelzoo")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "cells",
    "markup",
    "pages",
]
exclude_patterns = ["_build", "extensions", "measured", "templates"]
default_role = "py:obj"
html_math_renderer = "mathml"

# Pages with cells of code run when the site is built. A cell that fails is a warning, which fails
# the build once all other pages are written. Outputs are kept until code changes, so that a build
# goes on from one that was stopped. The pages of the notebooks show the outputs that the repository
# keeps; `make notebooks` runs them.
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "cells" / cells.fingerprint(DOCS.parent))
nb_execution_excludepatterns = ["gallery/*"]
nb_execution_show_tb = True
# Seconds. Others may share the processors: this only ends a cell that hangs, with its page named.
nb_execution_timeout = 900
nb_execution_in_temp = True
nb_merge_streams = True
# Log lines and warnings; a cell whose warning matters asks for it.
nb_output_stderr = "remove"
# Progress bars are widgets, which need scripts from elsewhere: they are not shown.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
# Kernels draw into the page; and read no data but those of the package, as a user's would.
for variable in ("MPLBACKEND", "KERNELZOO_DATA"):
    os.environ.pop(variable, None)
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = SUBSTITUTIONS
myst_heading_anchors = 3

autosummary_generate = False
autodoc_typehints = "none"
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"

WIDE = ("choose", "certificates", "equations", "cards/index")
html_theme = "pydata_sphinx_theme"
html_title = "kernelzoo"
html_static_path = ["_static"]
html_css_files = ["kernelzoo.css"]
html_logo = html_favicon = "_static/logo.svg"
html_copy_source = False
html_theme_options = {
    "logo": {"text": "kernelzoo"},
    "navbar_end": ["theme-switcher"],
    "navbar_align": "left",
    "navigation_depth": 2,
    "collapse_navigation": True,
    "show_toc_level": 2,
    # Wide tables take the whole width.
    "secondary_sidebar_items": {"**": ["page-toc"]} | {page: [] for page in WIDE},
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Pages without pages below them need no menu; those of papers and of the gallery are wide.
html_sidebars = {page: list[str]() for page in ("*", "papers/*", "gallery/*", "cards/index")}
