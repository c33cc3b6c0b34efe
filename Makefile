VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
comma := ,

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all lint format options bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNTIME)  ## the whole story on real data: train, register, calibrate, serve, ask
	@$(PYTHON) -m scrib_mlflow demo

test: lint  ## all checks and the quick tests; sets everything up on a fresh machine
	@echo "== pytest: the quick tests"
	@$(PYTHON) -m pytest

test-all: lint  ## the same with the slow tests
	@echo "== pytest: all tests, also the slow ones"
	@$(PYTHON) -m pytest -m ""

lint: $(INSTALLED)  ## style, formatting, types and layers
	@echo "== ruff check: style and likely mistakes"
	@$(PYTHON) -m ruff check
	@echo "== ruff format: formatting"
	@$(PYTHON) -m ruff format --check
	@echo "== mypy: types"
	@$(PYTHON) -m mypy
	@echo "== lint-imports: layers"
	@$(VENV)/bin/lint-imports --no-logo

format: $(INSTALLED)  ## format the code and repair what ruff can repair
	@echo "== ruff: repair and format"
	@$(PYTHON) -m ruff check --fix-only
	@$(PYTHON) -m ruff format

options: $(INSTALLED)  ## write MLproject and the reference's option tables anew
	@$(PYTHON) -m docs.write_options

bench: $(INSTALLED)  ## print the figures of docs/benchmarks.md, a few minutes
	@echo "== benchmarks"
	@$(PYTHON) -m benchmarks --quick

clean:  ## delete caches, compiled kernels and builds; .venv stays
	@echo "== delete caches and builds"
	@find . \( -path ./$(VENV) -o -path ./.git \) -prune -o \
		\( -name __pycache__ -o -name '*.egg-info' \) -type d -exec rm -rf {} +
	@rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .numba_cache .pytest_cache .ruff_cache

# uv installs in seconds what pip installs in minutes; where uv is not to be had, pip does it.
define install
	@echo "== install $(1) into $(VENV)"
	@{ $(PYTHON) -m pip install -qq uv \
		&& $(PYTHON) -m uv pip install --quiet --python $(PYTHON) -e '$(2)'; } \
		|| { echo "== uv did not do it: pip instead"; $(PYTHON) -m pip install -qq -e '$(2)'; }
	@touch $@
endef

$(RUNTIME): pyproject.toml | $(PYTHON)
	$(call install,scrib_mlflow,.)

$(INSTALLED): pyproject.toml | $(PYTHON)
	$(call install,scrib_mlflow and its development tools,.[dev$(comma)flavours$(comma)spark])

$(PYTHON):
	@echo "== create $(VENV)"
	@python3 -m venv $(VENV)
