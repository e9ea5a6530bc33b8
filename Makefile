# Bedplate's commands. `make help` lists them. Everything is installed into .venv; nothing needs root but the lab's tests.
PYTHON ?= python3
SETUP = $(PYTHON) tools/setup.py
BIN = .venv/bin
ARGS ?=
# A Go that set-up had to install stands in the cache; one of the machine comes first.
CACHE = $(or $(BEDPLATE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bedplate)
export PATH := $(PATH):$(CACHE)/go/root/go/bin
# Where run results of tests (skips, counts) are written.
export BEDPLATE_REPORTS ?= build/reports

.DEFAULT_GOAL := help
.PHONY: help setup up test soak lint fmt bench lab docs proof build clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install everything the other commands need
	@$(SETUP) all

up: ## run an embedded API server with 50 simulated nodes (ARGS="--plain" for no live display)
	@$(SETUP) up
	@$(BIN)/bedplate up $(ARGS)

test: ## run all tests (about 25 minutes with a warm cache)
	@$(SETUP) all
	@$(BIN)/python tools/test.py $(ARGS)

soak: ## run the long versions: thousands of kills and random sequences
	@$(SETUP) all
	@$(BIN)/python tools/test.py --soak $(ARGS)

lint: ## format check, lint, types, layers
	@$(SETUP) venv
	@$(BIN)/ruff format --check --quiet src tests bench tools .ci
	@$(BIN)/ruff check --quiet src tests bench tools .ci
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > build/imports.txt 2>&1 || { cat build/imports.txt; exit 1; }

fmt: ## format the code
	@$(SETUP) venv
	@$(BIN)/ruff format --quiet src tests bench tools .ci
	@$(BIN)/ruff check --quiet --fix src tests bench tools .ci

bench: ## measure against the peers, in the same run
	@$(SETUP) all
	@$(BIN)/python -m bench $(or $(ARGS),--full)

lab: ## start a real three-node Kubernetes on this machine (needs root)
	@$(SETUP) all
	@$(BIN)/bedplate lab up --nodes 3 $(ARGS)

docs: ## generate the reference pages from the code
	@$(SETUP) venv
	@$(BIN)/python tools/docs.py

proof: ## run the cheap commands of docs/proof.md and keep what they print (ARGS=--all for the rest)
	@$(SETUP) venv
	@$(BIN)/python tools/proof.py $(ARGS)

build: ## build the wheel into dist/
	@$(SETUP) venv
	@$(BIN)/python -m hatchling build -t wheel

clean: ## remove what was built here (not the cache of binaries)
	@rm -rf build dist .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
