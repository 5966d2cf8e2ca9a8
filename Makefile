# `make` alone lists the commands.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPLETE := $(VENV)/.complete

FAST := $(addprefix tests/costmodel/,ir estimate measure onnx_io) tests/features tests/test_architecture.py tests/test_layout.py
# What `make coverage` runs and covers: the fast tests and their folders. TESTS=tests COVERED=--cov is everything.
TESTS ?= $(FAST)
COVERED ?= $(addprefix --cov=costmodel/,ir estimate measure onnx_io) --cov=features

.DEFAULT_GOAL := help
.PHONY: help run test check coverage docs hosts lowest lint types format serve ui clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,serve,client,dev]'
	@touch $@

# What only tests and type checks need besides: torch, for the corpora and the graph neural network, and transformers.
$(COMPLETE): $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,gnn,corpus,plots,serve,client,openvino,dev]'
	@touch $@

run: $(INSTALLED)  ## the main job on this host: benchmark, train, predict a model held back (3 minutes of measuring)
	$(BIN)/costmodel tour

test: lint types  ## the whole test suite, with lint and types (10 to 15 minutes on two cores)
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

hosts: $(COMPLETE)  ## the tests as on each host of tests/hosts in turn (10 minutes each)
	@set -e; for host in $(basename $(notdir $(wildcard tests/hosts/*.toml))); do \
		echo "$$host"; $(BIN)/pytest --quiet --host "$$host"; \
	done

lowest:  ## the tests on the oldest versions that pyproject.toml admits
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet uv
	VIRTUAL_ENV=.venv-lowest .venv-lowest/bin/uv pip install --quiet --resolution lowest-direct --editable '.[train,corpus,plots,serve,client,dev,postgres]'
	.venv-lowest/bin/pytest

check: lint types  ## the inner loop: lint, types and the fast tests (a minute)
	$(BIN)/pytest --quiet --numprocesses auto $(FAST)

# A target of its own: on Python 3.11, measuring branches takes half as much processor time again as the tests.
coverage: $(COMPLETE)  ## branch coverage of the fast tests (a minute)
	$(BIN)/pytest --quiet --numprocesses auto $(COVERED) --cov-report=term-missing $(TESTS)

lint: $(INSTALLED)  ## style, and which folder imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(COMPLETE)  ## static types
	$(BIN)/mypy

docs: $(INSTALLED)  ## the documentation as a site, in build/site
	$(BIN)/python docs/reference.py
	$(BIN)/mkdocs build --strict --quiet

format: $(INSTALLED)  ## rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

serve: $(INSTALLED)  ## answer over HTTP on this host, with a page at /
	$(BIN)/costmodel serve

ui: $(INSTALLED)  ## open the training runs in MLflow's own page
	$(BIN)/mlflow ui --backend-store-uri sqlite:///$(CURDIR)/mlruns/mlflow.db

clean:  ## remove what was built and measured here, except versioned data
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	git clean -fdX data mlruns
