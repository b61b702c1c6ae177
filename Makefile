# Every target installs what it needs first, ends with one summary line `<name>: OK ...` (or FAILED, or
# SKIPPED with the reason), writes build/<name>.json and exits non-zero unless it is OK.

PYTHON := .venv/bin/python
CHECKS := $(shell sed -n 's/^\[\([a-z-]*\)\]$$/\1/p' scripts/check/checks.toml)
VARIABLES = $(foreach name,N SEEDS SECONDS SABOTAGE,$(if $($(name)),$(name)=$($(name))))
NEEDED := java redis chromium promtool
# Tests that need these are skipped without them, and say so.
WANTED := postgres maven

.DEFAULT_GOAL := help
.PHONY: help setup test lint check clean $(CHECKS) $(NEEDED) $(WANTED)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' $(MAKEFILE_LIST)
	@echo 'make NAME: one check by itself; variables: ARGS, SABOTAGE, of some N, SEEDS, SECONDS; names:'
	@echo '  $(CHECKS)'

setup: ## make .venv from requirements.lock
	@scripts/bootstrap

$(NEEDED):
	@scripts/ensure-$@

$(WANTED):
	@scripts/ensure-$@ || true

test: setup $(NEEDED) $(WANTED) ## run all tests; LAYERS="pure processes spark connectors" and ARGS="-k word" choose some
	@$(PYTHON) -m scripts.test $(LAYERS) -- $(ARGS)

lint: setup ## ruff, lengths of functions, import rules, buf, stub freshness, mypy
	@$(PYTHON) -m scripts.lint

check: setup ## the quick form of every check, in 20 minutes; NAMES="sim demo" or NAMES=all: whole; SABOTAGE=all: each planted fault is found
	@$(PYTHON) -m scripts.check $(NAMES) $(VARIABLES) -- $(ARGS)

$(CHECKS): %: setup
	@$(PYTHON) -m scripts.check --alone $@ $(VARIABLES) -- $(ARGS)

clean: ## remove .venv and build
	rm -rf .venv build
