# make setup   virtual environment, browser and @litertjs/core
# make sweep   setup, then sweep the starter catalog
# make test    setup, then all tests
# make bench   measure the sweep itself; leave the machine alone meanwhile (docs/performance.md)
# make lint    style, formatting, types and workflows
# make audit   known vulnerabilities in the dependencies; says so where it cannot be known
# make faults  the tests that inject faults, with real Chromium
# make lock    pin the dependencies of pyproject.toml again (needs uv)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
CATALOG ?= configs/catalogs/starter.toml

.PHONY: setup sweep test lint bench audit faults lock clean

setup: $(VENV)/base
	$(BIN)/litertjs-sweep setup
	@touch $(VENV)/machine

sweep: $(VENV)/machine
	$(BIN)/litertjs-sweep run $(CATALOG)

test: $(VENV)/machine $(VENV)/dev
	$(BIN)/python -m pytest

bench: $(VENV)/machine $(VENV)/dev
	for name in sweep transport compare memory records reuse warmup; do \
	  $(BIN)/python -m benchmarks.bench_$$name || exit 1; \
	done

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --pedantic --strict-collection --quiet .github/workflows

audit: $(VENV)/base
	scripts/audit.sh $(BIN)

faults: $(VENV)/machine $(VENV)/dev
	$(BIN)/python -m pytest tests/faults

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --quiet pyproject.toml -o requirements/base.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --quiet --all-extras pyproject.toml -o requirements/dev.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache

# The files below $(VENV) are stamps: each step runs again only when what it depends on changed.
$(VENV)/base: requirements/base.lock pyproject.toml scripts/venv.sh
	scripts/venv.sh $(VENV)
	$(PIP) --require-hashes -r requirements/base.lock
	$(PIP) --no-deps -e .
	@touch $@

$(VENV)/dev: $(VENV)/base requirements/dev.lock
	$(PIP) --require-hashes -r requirements/dev.lock
	@touch $@

$(VENV)/machine: $(VENV)/base
	$(BIN)/litertjs-sweep setup
	@touch $@
