# Everything this repository can do. The tools live in .venv, which each command makes when it is missing or old.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?=# the Python to make .venv with; empty: the first suitable one that is found
TARGET ?=# the server for make conformance; empty: the planners in this process
ARGS   ?=# more arguments for the command behind a target: make test ARGS="-k router -x"

READY      := $(VENV)/.ready
PYPROJECTS := pyproject.toml protos/python/pyproject.toml clients/python/pyproject.toml
PIP        := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet

MAKEFLAGS     += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format generate lock conformance mutants faults bench serve up image-test clean \
  licences sbom
unexport PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER

help: ## list these commands
	@echo "usage: make COMMAND [ARGS=...]"; echo
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1 # \2/p' $(MAKEFILE_LIST) | awk -F ' # ' '{ printf "%-13s%s\n", $$1, $$2 }'

setup: $(READY) ## make .venv with all that the other commands need
	@echo "ready: $(BIN)/plannerd, $(BIN)/python"

demo: $(READY) ## start a server, run some agents against it and show its decisions
	@$(BIN)/python -m demo $(ARGS)

test: $(READY) ## run all tests
	@$(BIN)/python -m pytest $(ARGS)

format: $(READY) ## rewrite Python and protos in the one style
	@$(BIN)/python -m ruff check --fix-only --quiet
	@$(BIN)/python -m ruff format
	@$(BIN)/buf format --write

generate: $(READY) ## make the generated code again, from protos/
	@$(BIN)/python scripts/generate

conformance: $(READY) ## run the cases of the contract; TARGET=HOST:PORT runs them against any server
	@$(BIN)/python -m tests.conformance run $(if $(TARGET),--target $(TARGET)) $(ARGS)

mutants: $(READY) ## break each rule of the planners on purpose and see that the cases notice
	@$(BIN)/python scripts/mutants $(ARGS)

faults: $(READY) ## kill servers and clients and break connections while 500 invocations run; ARGS=--help
	@$(BIN)/python -m tests.faults $(ARGS)

bench: $(READY) ## measure speed
	@$(BIN)/python -m benchmarks $(ARGS)

serve: $(READY) ## run the server on this machine
	@$(BIN)/plannerd serve $(ARGS)

up: $(READY) ## start plannerd, a shared store and a collector on this machine; ARGS=--help
	@$(BIN)/python scripts/up $(ARGS)

image-test: $(READY) ## build the image and run it hardened; needs root, buildah and podman
	@$(BIN)/python scripts/image-test $(ARGS)

clean: ## remove .venv, caches and builds
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- lint: every check is a target of its own, and `make -k lint` goes on after one that fails

CHECKS := ruff mypy imports dockerfile protos breaking generate-check licences-check
.PHONY: $(CHECKS)

lint: $(CHECKS) ## check style, types, imports, protos and generated code

ruff: $(READY)
	@echo "==> ruff"
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check

mypy: $(READY)
	@echo "==> mypy"
	@$(BIN)/python -m mypy

imports: $(READY)
	@echo "==> import-linter"
	@$(BIN)/lint-imports --no-logo

dockerfile: $(READY)
	@echo "==> hadolint"
	@$(BIN)/hadolint Dockerfile

protos: $(READY)
	@echo "==> buf lint and format"
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code

# The contract may only grow: what the last release has must stay as it is.
breaking: $(READY)
	@echo "==> buf breaking"
	@tags=$$(git tag --list 'v[0-9]*') || exit; \
	if [ -z "$$tags" ]; then echo "skipped: there is no release tag (v*) yet to compare with"; exit; fi; \
	tag=$$(git describe --tags --abbrev=0 --match 'v[0-9]*') && echo "compared with $$tag" && \
	$(BIN)/buf breaking --against ".git#tag=$$tag"

generate-check: $(READY)
	@echo "==> generated code"
	@$(BIN)/python scripts/generate --check

licences-check: $(READY)
	@echo "==> licences"
	@$(BIN)/python scripts/licences --check

# --- the environment, its locks, and what is in them

$(READY): requirements/dev.lock $(PYPROJECTS)
	@python=$$(scripts/find-python $(PYTHON)) || exit; \
	if ! $(BIN)/python -c '' 2>/dev/null; then \
	  echo "==> making $(VENV) with $$python"; "$$python" -m venv --clear $(VENV); fi
	@echo "==> installing the packages of requirements/dev.lock"
	@$(PIP) install --require-hashes --only-binary :all: --no-deps -r requirements/dev.lock
	@echo "==> installing plannerd, plannerd-protos and plannerd-client, editable"
	@$(PIP) install --no-deps --no-build-isolation -e . -e protos/python -e clients/python
	@touch $@

# uv only resolves: it has an environment of its own. ARGS=--upgrade takes newer versions.
UV_VERSION := 0.13.9
UV         := $(VENV)/uv-$(UV_VERSION)
COMPILE     = $(UV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-emit-package plannerd-protos --custom-compile-command "make lock" $(ARGS)

lock: $(UV) ## resolve the dependencies again, into requirements/*.lock
	@$(COMPILE) pyproject.toml -o requirements/run.lock
	@$(COMPILE) $(PYPROJECTS) requirements/dev.in --all-extras -c requirements/run.lock -o requirements/dev.lock
	@$(COMPILE) requirements/build.in -c requirements/dev.lock -o requirements/build.lock

$(UV):
	@python=$$(scripts/find-python $(PYTHON)) && "$$python" -m venv $@
	@$@/bin/python -m pip --quiet --disable-pip-version-check install uv==$(UV_VERSION) || { rm -rf $@; exit 1; }

licences: $(READY) ## list the licences of what a server runs with, in docs/licences.md
	@$(BIN)/python scripts/licences

# The lock has all packages with their hashes; nothing is looked up, so that equal locks give equal files.
SBOM ?= build/sbom.cdx.json# where make sbom writes

sbom: $(READY) ## write the bill of materials of what a server runs with, as CycloneDX JSON
	@mkdir -p $(dir $(SBOM))
	@$(BIN)/cyclonedx-py requirements requirements/run.lock --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-format JSON --output-file $(SBOM)
	@echo "written: $(SBOM)"
