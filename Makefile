# `make demo` and `make test` need nothing but Python 3.11, Java 17 and make.
PYTHON ?= python3
BIN := .venv/bin
# Tests wait for servers and daemons: one more process than there are cores of a small machine.
IN_PARALLEL := --numprocesses 3 --dist loadgroup --no-loadscope-reorder

export DAGSTER_HOME := $(CURDIR)/dagster_home
# A dependency's preview feature, which we do not use, warns at every start of `dg`.
export PYTHONWARNINGS := ignore:Class `SparkDeclarativePipelineScaffolder`
# Without this, each of the many processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo cluster soak test test-all test-long contract dev check docs bench lowest newest dist clean python java postgresql

help: # This list
	@sed -n 's/^\([a-z-]*\):[^#]*# \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | column -t -s '	'

demo: java .venv/classes # A year of flights, from Spark to a local Tableau Server
	@$(BIN)/python -m tableau_pipeline.demo

cluster: java .venv/classes postgresql # The demo on two hosts, a Spark cluster and an object store
	@$(BIN)/python -m tableau_pipeline_tests.cluster

# Writes data/soak.json and the plot data/soak.svg.
NIGHTS ?= 30
soak: .venv/installed postgresql # Forty data sources for NIGHTS nights, with faults and kills
	@$(BIN)/python -m tableau_pipeline_tests.soak --nights $(NIGHTS) --figures data/soak.json

dev: java .venv/classes # Dagster's web UI, with what the demo published
	@$(BIN)/python -m tableau_pipeline.demo.dev

test: java .venv/classes # The tests that take minutes
	@$(BIN)/pytest $(IN_PARALLEL) -m "not slow and not long"

# Slow ones wait more: for daemons, sensors and installations.
test-all: test postgresql # These, and the slow ones
	@$(BIN)/pytest $(IN_PARALLEL) -m "slow and not long"

# The tests that take too long for CI: run them before you finish a change of what a refresh
# promises. They end with fresh histories, and add what these met to the ledger in the same folder.
MINUTES ?= 60
test-long: java .venv/classes postgresql # What CI has no time for
	@$(BIN)/pytest $(IN_PARALLEL) -m long -rP
	@$(BIN)/python -m tableau_pipeline_tests.refresh.stateful.fresh --minutes $(MINUTES)

# The token comes from the environment: docs/fidelity.md. Without PROJECT, nothing is written.
contract: .venv/installed # Compare the Tableau site at SERVER with the sandbox
	@$(BIN)/pytest tableau_sandbox_tests/contract --tb=short -rs --durations=0 --server "$(SERVER)" $(if $(PROJECT),--project "$(PROJECT)")

check: .venv/installed # Format, types, layers and definitions
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/ty check
	@$(BIN)/lint-imports
	@$(BIN)/python -m tableau_pipeline_tests.layout
	@. $(BIN)/activate && dg check defs

# The site reads without the network. The tables of YAML keys are brought up to date first.
docs: .venv/installed # The documentation as a site, into site/
	@PYTHONPATH=. $(BIN)/python scripts/yaml_reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "To read it with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site, then open http://127.0.0.1:8000"

# The peers' Spark stops if the host's name resolves to no address of its own; ours does not.
bench: export SPARK_LOCAL_IP ?= 127.0.0.1
bench: java .venv/classes # Benchmarks
	@$(BIN)/python -m benchmarks

# Both try only ranges that have changed; AGAIN=1 tries them all the same.
lowest: .venv/installed | java # After a change of pyproject.toml: the oldest versions that it allows
	@$(BIN)/python scripts/bounds.py lowest $(if $(AGAIN),--again)

newest: .venv/installed | java # The newest versions that pyproject.toml allows
	@$(BIN)/python scripts/bounds.py newest $(if $(AGAIN),--again)

dist: .venv/installed # Wheel and source distribution, into dist/
	@rm -rf dist
	@$(BIN)/uv build --quiet

clean: # Remove what these made
	rm -rf .venv data dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
	find dagster_home deploy -mindepth 1 -not -path "deploy/kubernetes*" -not -name dagster.yaml -not -name workspace.yaml -delete

.venv/installed: pyproject.toml constraints.txt | python
	@echo "Setting up .venv: a minute or two the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python scripts/install.py
	@touch $@

# Spark starts in half the time from an archive of the classes that it loads.
.venv/classes: .venv/installed | java
	@$(BIN)/python -m tableau_pipeline.snapshots.make_class_archive
	@touch $@

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed: install it, or run make PYTHON=/path/to/python3.11" >&2; exit 1; }

java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	major=$$($$java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	[ "$${major:-0}" -ge 17 ] || { \
	  echo "Java 17 or newer is needed (found: $${major:-none}): apt-get install openjdk-17-jre-headless, or brew install openjdk@17; JAVA_HOME chooses one" >&2; exit 1; }

# For `cluster`, slow and long tests. Debian's package: a server to start.
postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
	  apt-get update -qq && \
	  apt-get install -y -qq --no-install-recommends postgresql >/dev/null; } || { \
	  echo "PostgreSQL is needed: sudo apt-get install postgresql" >&2; exit 1; }
