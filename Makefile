# Every target installs what it needs first, ends with one summary line `<name>: OK ...` (or FAILED),
# writes build/<name>.json and exits non-zero on failure.

PYTHON_IN_VENV := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup java demo test lint sim model clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock
	@scripts/bootstrap

java:
	@scripts/ensure-java

demo: setup java ## replay a year of flights through three Spark queries; SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m examples.flights $(if $(SABOTAGE),--sabotage $(SABOTAGE))

test: setup java ## run all tests; LAYERS="pure processes spark" and ARGS="-k word" choose some
	@$(PYTHON_IN_VENV) -m scripts.test $(LAYERS) -- $(ARGS)

lint: setup ## ruff, import rules, buf, stub freshness, mypy
	@$(PYTHON_IN_VENV) -m scripts.lint

sim: setup ## random schedules over the real core, checked by an oracle
	@$(PYTHON_IN_VENV) -m tests.simulation $(ARGS)

model: setup ## every interleaving of a small system, on the production core
	@$(PYTHON_IN_VENV) -m tests.model

clean: ## remove .venv and build
	rm -rf .venv build
