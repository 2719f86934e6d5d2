# Everything starts from nothing: the virtual environment is made from the lock file on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The demo and the tests start hundreds of processes: they shall not each compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo pictures pages test lint bench lock clean help

help:            ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned dependencies (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

install: $(STAMP) ## make the virtual environment, with everything in it

demo: $(STAMP)   ## nine real processes, a kill -9, and Spark's verdict
	@$(BIN)/antiphon demo

test: lint       ## lint and the whole test suite
	@$(BIN)/python -m pytest

lint: $(STAMP)   ## ruff, mypy --strict, and the arrows between the rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: $(STAMP)  ## the simulator's and the cluster's speed
	@$(BIN)/python benchmarks/simulator.py
	@$(BIN)/python benchmarks/throughput.py

pictures: $(STAMP) ## draw the docs' pictures again; REPORT=antiphon-demo/report.html photographs that too
	@$(BIN)/python docs/pictures/make.py $(REPORT)

pages: $(STAMP)  ## write into the pages what their commands print now, where that has changed (PAGE=docs/tutorial.md)
	@$(BIN)/python tests/docs/update.py $(PAGE)

lock: $(STAMP)   ## resolve the dependencies again and write requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --upgrade --no-annotate --no-header --extra dev -o requirements.lock pyproject.toml

clean:           ## remove what these commands made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
