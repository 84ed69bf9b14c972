# Plimsoll.  `make` alone prints this help.
SHELL := /bin/bash
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help
help: ## Print this help
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Make .venv with everything (and install the few Debian packages that are missing)
	@dev/setup.sh

.PHONY: check
check: setup ## Format, lint, types, import contracts, tidy (under a minute when warm)
	@dev/check.sh

.PHONY: quick
quick: setup ## Before a commit: make check, the unit tests that are not slow, a few simulated clusters
	@$(PY) -m dev.quick

.PHONY: format
format: setup ## Rewrite the sources the way the formatter wants them
	@.venv/bin/ruff format -q . && .venv/bin/ruff check -q --fix .

.PHONY: test
test: setup ## Every test that is not long, tier by tier, with a summary
	@$(PY) -m dev.tiers $(TIERS)

.PHONY: long
long: setup ## The tests with the mark `long`: many tries, many minutes (hours in all)
	@$(PY) -m dev.tiers --long $(TIERS)

VERSION ?=
.PHONY: pyspark
pyspark: setup ## The tests of the Spark data sources under the newest tested PySpark (VERSION=4.1.4: under another)
	@$(PY) -m dev.pyspark $(VERSION)

.PHONY: unit
unit: setup ## The unit tier only
	@$(PY) -m dev.tiers unit

.PHONY: demo
demo: setup ## A cluster on this machine, a broker killed in mid-write, and the verdict (KEEP=1)
	@$(PY) -m dev.demo $(if $(KEEP),--keep)

.PHONY: demo-kubernetes
demo-kubernetes: setup ## The same on a real Kubernetes, which stays up; clients log in (OPEN=1, USE_CURRENT_CONTEXT=1)
	@$(PY) -m dev.demo_kubernetes

FOR ?= 600
.PHONY: sim
sim: setup ## Clusters on virtual time under random faults, new seeds for ten minutes (FOR=seconds)
	@.venv/bin/python -W ignore -m plimsoll_sim --seconds $(FOR) --jobs $$(nproc)

FRAMES ?= 100000
.PHONY: fuzz
fuzz: setup ## Hostile bytes at every port of a real cluster, then guided by coverage (FRAMES=count)
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@$(PY) -m tests.fuzz frames --frames $(FRAMES)
	@$(PY) -m tests.fuzz coverage --seconds $(FOR_FUZZ)

FOR_FUZZ ?= 60

ONLY ?=
SUITE ?=
.PHONY: conformance
conformance: setup ## Every client's own suite and application, beside Apache Kafka (ONLY=connect; an hour)
	@$(PY) -m dev.conformance $(if $(ONLY),-k '$(ONLY)') \
	  $(if $(SUITE),--confluent-kafka-python '$(SUITE)')

.PHONY: slow-peers
slow-peers: setup ## What 200 deaf consumers, 5,000 idle connections and half requests cost a cluster
	@$(PY) -m bench.slow_peers

ROW ?=
.PHONY: bench
bench: setup ## Plimsoll beside Kafka, JetStream and the floor (ROW=name: rows with that in their names; hours)
	@$(PY) -m bench.peers $(if $(ROW),--row '$(ROW)')

.PHONY: bench-quick
bench-quick: setup ## Compare the cost of a produce with the recorded cost, in five minutes
	@$(PY) -m bench.peers.quick

.PHONY: storage
storage: setup ## Random lives of one log on a simulated disk, new ones for ten minutes (FOR=seconds)
	@$(PY) -W ignore -m tests.plimsoll_broker.storage.many_lives --seconds $(FOR)

CLIENTS ?= librdkafka
.PHONY: chaos
chaos: setup ## Real clients of a local cluster hurt at random (FOR=seconds CLIENTS=java|… OPEN=1 OPERATIONS=1)
	@$(PY) -m tests.integration.chaos --seconds $(FOR) --clients $(CLIENTS) \
	  $(if $(OPEN),,--secure) $(if $(OPERATIONS),--operations)

LOAD ?= 100
.PHONY: storm
storm: FOR := $(if $(filter command line,$(origin FOR)),$(FOR),300)
storm: setup ## The local node without processors for five minutes (FOR=seconds LOAD=processes PARTITIONS=count)
	@$(PY) -m tests.e2e.storm --seconds $(FOR) --load $(LOAD) $(if $(PARTITIONS),--partitions $(PARTITIONS))

.PHONY: tenants
tenants: setup ## A hostile user or stranger beside a tenant that measures (FOR=seconds SEED=n ACT=name WRITE=1)
	@$(PY) -m tests.integration.tenants --seconds $(FOR) $(if $(SEED),--seed $(SEED)) \
	  $(if $(ACT),--act $(ACT)) $(if $(WRITE),--write)

JOBS ?= $(shell nproc)
.PHONY: mutants
mutants: setup ## Remove guards one by one; what notices goes into kills.json (ALL=1: all anew)
	@$(PY) -W ignore -m plimsoll_sim.mutants $(if $(ALL),,--check) --write --jobs $(JOBS)

SEEDS ?= 1..20
.PHONY: coverage
coverage: setup ## Branches of the core that unit tests, scenarios and random runs take (SEEDS=1..20)
	@$(PY) -m coverage run -m pytest -q tests/plimsoll_core tests/plimsoll_sim/test_scenarios.py
	@$(PY) -W ignore -m coverage run --append -m plimsoll_sim --seeds $(SEEDS) --jobs 1
	@$(PY) -m coverage report

.PHONY: coverage-operator
coverage-operator: setup ## Lines of the operator's reconcilers that simulated runs take (a minute)
	@$(PY) dev/operator_coverage.py

-include dev/dev.mk
