# `make demo` and `make test` do everything on a fresh machine: they find a Python >= 3.12, build
# .venv, install the pinned packages of constraints.txt and run. `make help` lists the rest.

# Each candidate is run before it is believed: a pyenv shim is on PATH even where it leads nowhere.
# PYTHON=/path/to/python chooses by hand.
PYTHON     ?=
CANDIDATES ?= python3.12 python3.13 python3.14 python3 \
              $(sort $(wildcard $(HOME)/.pyenv/versions/3.1[234]*/bin/python3))
SUITABLE   := import ensurepip, sys, venv; sys.exit(not (3, 12) <= sys.version_info < (3, 15))

VENV := .venv/bin/python
# -P: the folders of the checkout are no modules of their own, only those of kernelzoo.
PYTEST := $(VENV) -P -m pytest
# `pytest-xdist` processes of a test run: PyMC's compilations dominate and run side by side.
WORKERS ?= 2
# Further arguments of pytest, such as ARGS="tests/models -k probit".
ARGS ?=

# Larger files of data are read from here; tests that need an absent one are skipped.
ifndef KERNELZOO_DATA
ifneq ($(wildcard ../shared/data),)
export KERNELZOO_DATA := $(CURDIR)/../shared/data
endif
endif

# Two processes with a BLAS thread each are faster than two that fight over the cores.
test test-long measure-tests test-slow test-certificates test-planted mutants notebooks docs: export OMP_NUM_THREADS := 1
test test-long measure-tests test-slow test-certificates test-planted mutants notebooks docs: export OPENBLAS_NUM_THREADS := 1
test test-long measure-tests test-slow test-certificates test-planted mutants notebooks: export MPLBACKEND := Agg
# Processes of tests, and of what tests start, share the bytecode of the sources.
test test-long measure-tests test-slow test-certificates notebooks docs: export PYTHONDONTWRITEBYTECODE :=
# First runs compile: a gradient takes a fifth less time like this.
demo test test-long measure-tests test-planted mutants notebooks docs: export NUMBA_OPT := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help interpreter install demo lab test test-long measure-tests test-slow \
        test-certificates test-planted mutants lint types docs notebooks wheel-check traces clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

interpreter: ## print the Python that .venv would be built with (nothing: uv provides one)
	@for candidate in $(if $(PYTHON),"$(PYTHON)",$(CANDIDATES)); do \
	    "$$candidate" -c '$(SUITABLE)' >/dev/null 2>&1 && { echo "$$candidate"; break; }; \
	done; true

$(VENV):
	@python=$$($(MAKE) -s --no-print-directory interpreter); \
	if [ -n "$$python" ]; then \
	    echo "building .venv with $$python"; "$$python" -m venv --clear .venv; \
	elif [ -n "$(PYTHON)" ]; then \
	    echo "PYTHON must be a Python >= 3.12, < 3.15 with venv. Got $(PYTHON)." >&2; exit 1; \
	else \
	    echo "no Python >= 3.12 found: building .venv with uv, which downloads one"; \
	    uv=$$(command -v uv) || { uv=.uv/bin/uv; \
	        python3 -m venv --clear .uv && .uv/bin/python -m pip install -qq uv || exit 1; }; \
	    UV_SYSTEM_CERTS=1 "$$uv" venv --quiet --clear \
	        --managed-python --python "$$(cat .python-version)" .venv && \
	    $(VENV) -m ensurepip >/dev/null; \
	fi

.venv/installed: pyproject.toml constraints.txt | $(VENV)
	@echo "installing the packages of constraints.txt into .venv"
	@$(VENV) -m pip install -qq -c constraints.txt setuptools
	@$(VENV) -m pip install -qq --no-compile -c constraints.txt --no-build-isolation -e '.[all]'
	@# pip would compile on one core, the packages' own tests as well.
	@$(VENV) -m compileall -qq -j 0 -x /tests/ .venv/lib || true
	@touch $@

install: .venv/installed ## build .venv and install the project and its tools into it

demo: .venv/installed ## fit two models with several engines, compare, draw: results/
	$(VENV) -m studies demo

lab: .venv/installed ## open Jupyter on the tour: three blocks of data, from DataFrames to an answer
	$(VENV) -m jupyterlab notebooks/tour.ipynb

test: .venv/installed ## the tests of up to 0.6 CPU seconds
	$(PYTEST) -m "not slow and not long" -n $(WORKERS) --dist worksteal $(ARGS)

test-long: .venv/installed ## the tests of more than 0.6 CPU seconds, listed in tests/long.txt
	$(PYTEST) -m "long and not slow" -n $(WORKERS) --dist worksteal $(ARGS)

measure-tests: .venv/installed ## run both and write tests/long.txt anew
	$(PYTEST) -m "not slow" --measure-tests $(ARGS)

test-slow: .venv/installed ## simulation-based calibration and long chains
	$(PYTEST) -m slow -n $(WORKERS) --dist loadfile $(ARGS)

test-certificates: .venv/installed ## prove every engine on every model (hours): docs/certificates.csv
	$(PYTEST) tests/certificates/prove.py --write-certificates -n $(WORKERS) --dist loadgroup $(ARGS)

test-planted: .venv/installed ## plant known bugs one by one: the tests must fail (ARGS="NAME NAME")
	$(VENV) -P tests/planted/run.py $(ARGS)

# FILES="numerics/softmax.py" of the package; TESTS="arguments of pytest", SHARE=0.1 or N=40 of their
# places, LIMIT=60 seconds a mutant, SEED=1 for others.
mutants: .venv/installed ## what the tests of FILES do not notice, by Cosmic Ray (N=40: of 40 places)
	@$(VENV) -m pip install -qq -c constraints.txt --no-build-isolation -e '.[mutation]'
	$(VENV) tests/mutants.py $(FILES) $(if $(TESTS),--tests '$(TESTS)') $(if $(SHARE),--share $(SHARE)) \
	    $(if $(N),--n $(N)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(SEED),--seed $(SEED))

lint: .venv/installed ## ruff: rules and format; the laws of the rooms
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	.venv/bin/lint-imports --no-logo --no-cache

# mypy takes a package's name from its folder; the links give the checkout the name of the package,
# whatever its folder is called, and show what lies beside it without the package's own folders.
types: .venv/installed ## mypy on the package, and on what lies beside it
	@mkdir -p .venv/types/beside && ln -sfn ../.. .venv/types/kernelzoo
	@ln -sfn ../../../studies ../../../benchmarks .venv/types/beside
	cd .venv/types && ../bin/python -m mypy --config-file kernelzoo/pyproject.toml -p kernelzoo \
	    --exclude '/(benchmarks|studies)/'
	cd .venv/types && MYPYPATH=kernelzoo/docs/extensions:kernelzoo/docs:kernelzoo/tests:beside ../bin/python -m mypy \
	    --config-file kernelzoo/pyproject.toml -m pages -m substitutions -m markup -m check \
	    -m draw_references -p studies -p benchmarks

docs: .venv/installed ## build the documentation into docs/_build/html; changed code is run; warnings are errors
	$(VENV) -m sphinx -q -W --keep-going -j $(WORKERS) -b html docs docs/_build/html
	$(VENV) docs/check.py docs/_build/html

notebooks: .venv/installed ## execute every notebook; its assertions can fail
	$(VENV) .ci/notebooks.py

wheel-check: .venv/installed ## install a wheel in a clean environment elsewhere and import it all
	bash .ci/wheel

traces: ## no machine's paths or registries' hosts in the files of the repository
	bash .ci/traces

clean: ## remove all that make has built (results/ stays)
	rm -rf docs/_build docs/api docs/cards docs/gallery docs/papers
	rm -rf .venv .uv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
