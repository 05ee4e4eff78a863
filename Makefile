# What a fresh machine needs: Python 3.11 or newer with venv, and make. Everything else goes into .venv.
# make train ARGS="trainer.steps=50 seed=1" passes overrides on; make test ARGS="-m 'not slow' -k renderer" options of pytest.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN    := $(VENV)/bin
# The name of the stamp changes with what is to be installed: nothing is installed twice, and nothing stays out of date.
KEY    := $(shell cat pyproject.toml .ci/constraints.txt | cksum | cut -d' ' -f1)
FOR_USE := $(VENV)/.installed-use-$(KEY)
FOR_DEV := $(VENV)/.installed-dev-$(KEY)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c .ci/constraints.txt

.PHONY: help train test lint docs clean
.DEFAULT_GOAL := help

help:
	@echo 'make train   train SmolLM2-135M on code_sandbox (ARGS="trainer.steps=50" sets keys)'
	@echo 'make test    all tests (ARGS="-m \"not slow\"" for a quick check)'
	@echo 'make lint    ruff, mypy, documented config keys'
	@echo 'make docs    write docs/config.md anew from agentrl/config.py'
	@echo 'make clean   remove caches, builds and .venv; runs/ stays'

train: $(FOR_USE)
	@echo '==> agentrl train env=code_sandbox $(ARGS)'
	@$(BIN)/agentrl train env=code_sandbox $(ARGS)

test: $(FOR_DEV)
	@echo '==> pytest $(ARGS)'
	@$(BIN)/python -m pytest $(ARGS)

lint: $(FOR_DEV)
	@echo '==> ruff check, ruff format --check, mypy on the package with its parts, .ci/check_docs.py'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python .ci/check_types.py
	@$(BIN)/python .ci/check_docs.py

docs: $(FOR_DEV)
	@$(BIN)/python .ci/check_docs.py --write

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find agentrl envs tools trainers rollout configs tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(FOR_USE): | $(BIN)/python
	@test -f $(FOR_DEV) || { \
		echo '==> installing agentrl and what it needs into $(VENV) (torch among it: this takes some minutes)'; \
		$(INSTALL) -e . ; }
	@touch $@

$(FOR_DEV): | $(BIN)/python
	@echo '==> installing agentrl and what its tests need into $(VENV) (torch among it: this takes some minutes)'
	@$(INSTALL) -e '.[dev]'
	@touch $(FOR_USE) $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "agentrl needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@echo '==> creating $(VENV)'
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); echo 'No virtual environment could be made; on Debian: apt-get install python3-venv'; exit 1; }
