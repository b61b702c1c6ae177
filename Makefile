# Every target installs what it needs first, ends with one summary line `<name>: OK ...` (or FAILED),
# writes build/<name>.json and exits non-zero on failure.

PYTHON_IN_VENV := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup java redis postgres chromium promtool maven demo demo-lake test lint sim mutants model spark-matrix connectors spark-versions faults barrier elastic example-incremental example-windows example-rounds example-completeness docs install-matrix newcomer schedulers bench bench-quick bench-full chart siege fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock
	@scripts/bootstrap

java:
	@scripts/ensure-java

redis:
	@scripts/ensure-redis

# As Maven below.
postgres:
	@scripts/ensure-postgres || true

chromium:
	@scripts/ensure-chromium

promtool:
	@scripts/ensure-promtool

# That it can't be had is no error: what needs it says that it is skipped, and why.
maven:
	@scripts/ensure-maven || true

demo: setup java ## replay a year of flights through three Spark queries; SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m examples.flights $(if $(SABOTAGE),--sabotage $(SABOTAGE))

demo-lake: setup java maven ## the same flights through a Kafka broker, Delta and Iceberg tables on an S3 server; SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m examples.lake $(if $(SABOTAGE),--sabotage $(SABOTAGE))

test: setup java redis postgres chromium promtool maven ## run all tests; LAYERS="pure processes spark connectors" and ARGS="-k word" choose some
	@$(PYTHON_IN_VENV) -m scripts.test $(LAYERS) -- $(ARGS)

lint: setup ## ruff, lengths of functions, import rules, buf, stub freshness, mypy
	@$(PYTHON_IN_VENV) -m scripts.lint

sim: setup ## random schedules over the real core, checked by an oracle; N=20000, SEEDS=a:b, SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m tests.simulation --schedules $(or $(N),20000) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

mutants: setup ## single faults put into the production core, as patches: the simulator must find each
	@$(PYTHON_IN_VENV) -m tests.mutations $(ARGS)

model: setup ## every interleaving of a small system, on the production core
	@$(PYTHON_IN_VENV) -m tests.model

spark-matrix: setup java ## what Spark may do to a query, row by row; SABOTAGE=early|lost|double|unheld must fail
	@$(PYTHON_IN_VENV) -m tests.spark_matrix $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

spark-versions: setup java ## rows of the matrix on each supported version of PySpark; ARGS="--versions 3.5,4.0"
	@$(PYTHON_IN_VENV) -m tests.spark_versions $(ARGS)

connectors: setup java maven ## each source and sink with the real thing: Kafka, HDFS, S3, table formats; ARGS="--only 2 --rows away", SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m tests.connectors $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

faults: setup redis ## ten minutes of kills, cuts and pauses on a real system; SECONDS=60, SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m tests.faults --seconds $(or $(SECONDS),600) \
		$(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

barrier: setup java postgres maven ## rows in order into PostgreSQL, Kafka and Delta under kills of barrier, driver and tracker; ARGS="--sinks postgres --seconds 20", SABOTAGE=early|lost|double|order must fail
	@$(PYTHON_IN_VENV) -m tests.barrier $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

elastic: setup java ## shards, fronts and Spark state come and go under load, and the experiments' plots; SABOTAGE=early|lost|double must fail
	@$(PYTHON_IN_VENV) -m tests.elastic $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

example-incremental: setup java ## an incremental job over late data, gated by min time and looking back; SABOTAGE=early must fail
	@$(PYTHON_IN_VENV) -m examples.incremental $(if $(SABOTAGE),--sabotage $(SABOTAGE))

example-windows: setup java ## hourly windows over real flights, each read when min time says that it is complete; SABOTAGE=early must fail
	@$(PYTHON_IN_VENV) -m examples.windows $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

example-rounds: setup ## shortest paths by a loop of four workers, some killed, each round behind a barrier; SABOTAGE=early must fail
	@$(PYTHON_IN_VENV) -m examples.shortest_paths $(if $(SABOTAGE),--sabotage $(SABOTAGE))

example-completeness: setup java ## look-backs, markers by cron, consumer lag, Spark's watermark and min time asked about the same flights; SABOTAGE=early must fail
	@$(PYTHON_IN_VENV) -m examples.completeness $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

bench: setup java redis maven ## every bar of docs/performance.md, in three quarters of an hour; ARGS="--only latency" chooses
	@$(PYTHON_IN_VENV) -m benchmarks $(ARGS)

bench-quick: setup ## the bars that two minutes can show
	@$(PYTHON_IN_VENV) -m benchmarks --budget quick $(ARGS)

bench-full: setup java redis maven ## the bars with more rounds, growth, and others' trackers beside it
	@$(PYTHON_IN_VENV) -m benchmarks --budget full $(ARGS)

chart: setup redis promtool ## render and check the Helm chart, run the Dockerfile in a chroot, upgrade the rendered pods under load
	@$(PYTHON_IN_VENV) -m tests.chart $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

siege: setup ## ten thousand idle subscribers, slow connections and a flood of bad ticks at one process, and fourteen attacks one by one; SABOTAGE=lifted must fail
	@$(PYTHON_IN_VENV) -m tests.siege $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

install-matrix: setup ## the wheel beside other versions of Python, protobuf, gRPC and NumPy, a line a row; ARGS="--rows 1,3"
	@$(PYTHON_IN_VENV) -m tests.install $(ARGS)

newcomer: setup java chromium ## the README's first minutes, from the wheel in a fresh environment: seconds to the first min time; ARGS="--pictures docs/img"
	@$(PYTHON_IN_VENV) -m tests.install.newcomer $(ARGS)

schedulers: setup ## Airflow, Dagster and dbt start a run for each complete hour, under kills: each once; ARGS="--only dagster", SABOTAGE=early must fail
	@$(PYTHON_IN_VENV) -m tests.schedulers $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

docs: setup java ## the site of all pages, strictly, in build/site; every block of code in them run or checked
	@$(PYTHON_IN_VENV) -m scripts.docs

fuzz: setup ## mangled requests to every RPC: answered, or refused without effect, and every process starts again; N=500000, SABOTAGE=crash|partial must fail
	@$(PYTHON_IN_VENV) -m tests.fuzz.campaign --requests $(or $(N),500000) $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(ARGS)

clean: ## remove .venv and build
	rm -rf .venv build
