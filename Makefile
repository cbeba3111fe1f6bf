# Every target does all its own set-up: a virtual environment in .venv, then the work.
# `make quickstart` and `make test` are all that a new machine needs.

export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1

PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test lint bench record system install

quickstart: install
	$(BIN)/hgld run pipelines/quickstart.toml --now 2026-01-01

test: install lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m tests.benchmarks

# Measure again what the pages show.
record: install
	PATH=$(CURDIR)/$(BIN):$$PATH python pipelines/record.py run \
	  pipelines/quickstart.toml tests/real/washington.toml
	$(BIN)/python pipelines/record.py pages

# Debian packages that the tests need: a browser that opens the report.
system:
	command -v chromium >/dev/null || { apt-get update -q && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium; }

install: .venv/installed

# torch first and alone: whatever asks for torch later finds the tested build.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch torchvision
	$(BIN)/pip install --quiet --editable ".[offline,ray,dev]"
	touch .venv/installed
