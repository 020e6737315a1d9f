# make demo   train the embedded default and show what it learned
# make test   lint, types and every test that CI runs
# make bench  speed beside the peers (needs the bench extra)
PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

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
	touch $@

.venv/.benched: .venv/.installed
	$(INSTALL) --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
