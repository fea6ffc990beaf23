# Each target sets up what it needs and does its job; nothing but Python 3.11 or later, pip and make is assumed.
#   make demo        train a classifier on handwritten digits, and look at its graph (out/graph.html)
#   make test        lint, types and the whole test suite
#   make quick       the part of the suite that takes under a minute
#   make full        the long form: every kernel through MLX's own compiler, many more random cases
#   make bench       timings beside those of NumPy, MLX and whatever else PEERS, an interpreter, has installed (out/)
#   make lint types  ruff; mypy
#   make clean       remove everything the others made
# PYTHON chooses the interpreter, EXTRAS what is installed (EXTRAS=dev leaves MLX out), PYTEST_ARGS goes to pytest.

PYTHON ?= python3
WORKERS ?= 2
LONG := accelerate runtime ops/test_nn.py ops/test_window.py ops/test_attention.py passes/test_attention.py
REPEATS ?= 3
PEERS ?= $(BIN)/python
ifeq ($(shell uname -s),Darwin)
EXTRAS ?= dev
else
EXTRAS ?= cpu,dev
endif

# Paths below are relative to this folder, so that spaces in its name do no harm: `make -f somewhere/Makefile` goes there.
ifneq ($(lastword $(MAKEFILE_LIST)),Makefile)
GOALS := $(or $(MAKECMDGOALS),help)
.PHONY: $(GOALS)
$(GOALS):
	@cd "$$(dirname '$(strip $(MAKEFILE_LIST))')" && $(MAKE) $@
else

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help demo test quick full bench lint types clean
.DELETE_ON_ERROR:

help:
	@sed -n '2,/^$$/s/^# *//p' Makefile

# An ordinary venv where Python can make one; where it cannot (Debian without python3-venv), the machine's pip fills it.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lucidgraph needs Python 3.11 or later, $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=...")'
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/python examples/train_digits.py

test: lint types
	$(PYTEST) $(PYTEST_ARGS)

quick: lint
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m 'not slow and not full' $(foreach part,$(LONG),--ignore tests/$(part)) $(PYTEST_ARGS)

full: lint types
	HYPOTHESIS_PROFILE=full $(PYTEST) -m 'full or not full' $(PYTEST_ARGS)

bench: $(READY)
	$(BIN)/python -m benchmarks.stages
	$(BIN)/python -m benchmarks.limits
	$(BIN)/python -m benchmarks --repeats $(REPEATS) --seconds 0.05 --python $(PEERS)
	$(BIN)/python -m benchmarks.memory --python $(PEERS)
	$(BIN)/python -m benchmarks.first_call --python $(PEERS)
	$(BIN)/python -m benchmarks.growth --largest 1e7 --seconds 0.03

lint: $(READY)
	$(BIN)/python -m ruff check lucidgraph tests docs examples benchmarks

types: $(READY)
	$(BIN)/python -m mypy

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

endif
