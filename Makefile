# make demo   a fleet on this machine, a few dozen Jobs on it, and a worker that is cut off; under a minute
# make fleet  a fleet to play with, until Ctrl-C
# make test   every check, and every test once, in a virtual environment made on the way; says at the end what it left out
# make test-all  every test on every kind of cluster that there is, and all of the API contract
# make test-kind  on real clusters with real containers: needs Docker and kind (TESTS=demo: those alone; docs/real-clusters.md)
# make check  linters, types and the direction of imports
# make fmt    format the code
# make binaries  real control planes and helm for the tests: downloaded, or built with Go; cached
# make image  the image (docker), from a base and packages that are named by their hashes
# make base-image  a base for it of Debian's packages, where that one cannot be pulled (root, debootstrap)
# make lock   requirements.lock and requirements-build.lock anew: the newest versions that pyproject.toml allows
# make sbom   sbom.cdx.json: what the image is made of (CycloneDX)
# make audit  known vulnerabilities of what is locked; fails when there are any
# make manifests  what is generated in deploy/: CustomResourceDefinitions, admission policies, the chart as plain files
# make reference  docs/reference, from the code
# make picture   docs/images, from the demo
# make faults  the fault suite: SEEDS=100 random runs (SEED=42: that one again, FLEET=local: real control planes and processes; HOSTILE=worker or tenant: one of them means harm)
# make soak   a day in a minute: caches whose watches expire all the time
# make bench  how fast we are, each figure beside its reference: about 18 minutes, on a machine that does nothing else
# make bench-check  the ratios of the newest results against bench/ranges.toml, and against the run before

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo fleet test test-all check fmt faults soak bench bench-check binaries manifests reference picture clean

help:
	@sed -n 's/^# //p' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP)

$(STAMP): pyproject.toml distributions/fleets/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "multimirror needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -e distributions/fleets
	@touch $@

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python distributions/supply_chain.py audit

.PHONY: image base-image lock sbom audit
IMAGE ?= multimirror:0.1.0
BASE  ?=
ALLOW_UNPINNED ?=
PIP_SETTINGS = PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT

image:
	@case "$(BASE)$(ALLOW_UNPINNED)" in ""|*@sha256:*|*1) ;; \
	  *) echo "BASE=$(BASE) has no digest: NAME@sha256:..., or ALLOW_UNPINNED=1 if you mean it"; exit 1;; esac
	docker build $(if $(BASE),--build-arg BASE=$(BASE)) $(foreach name,$(PIP_SETTINGS),$(if $($(name)),--build-arg $(name))) \
	  -t $(IMAGE) .

# A base of Debian's packages, where the Dockerfile's cannot be pulled: make image BASE=multimirror-base:trixie ALLOW_UNPINNED=1
base-image: $(STAMP)
	$(BIN)/python -m clusters.kind base-image

# With the Python of the image: some packages are needed by some versions only.
PYTHON_OF_IMAGE ?= python3.13
COMPILE = build/lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --no-header --no-annotate --no-emit-options
LOCKED  = '1i \# Made by `make lock`: what is in the image, with the hashes of every file that PyPI has of it. Do not edit.'

lock:
	$(PYTHON_OF_IMAGE) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check pip-tools
	rm -f requirements.lock requirements-build.lock
	$(PYTHON_OF_IMAGE) distributions/supply_chain.py needs > build/lock/requirements.in
	$(COMPILE) --output-file requirements.lock build/lock/requirements.in
	$(COMPILE) --only-build-deps --build-deps-for wheel --output-file requirements-build.lock pyproject.toml
	sed -i $(LOCKED) requirements.lock requirements-build.lock

sbom: $(STAMP)
	$(BIN)/python distributions/supply_chain.py sbom

audit: $(STAMP)
	$(BIN)/python distributions/supply_chain.py audit --strict

# What tests/selection.py leaves out of `make test`. The API contract is about the embedded server: all of it is checked
# when that has changed since SINCE (or where nobody can tell: no git, no such commit).
SINCE ?= HEAD~20
EMBEDDED = clusters/embedded clusters/jobapi clusters/nodes clusters/local multimirror/batch tests/contract
CONTRACT = $(shell git diff --quiet $(SINCE) -- $(EMBEDDED) 2>/dev/null && echo --leave-out contract)

# More processes than cores: tests on fleets wait most of their time, for a Job to end or for a worker to be given up on.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 2)')

test: check tools
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup --leave-out twins --leave-out search $(CONTRACT)

test-all: check tools
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup

.PHONY: test-kind
TESTS ?=

test-kind: $(STAMP)
	@$(BIN)/python -m clusters.kind check
	@$(BIN)/python -m clusters.local helm
	$(BIN)/pytest tests/kind --verbose --durations 20 $(if $(TESTS),-k '$(TESTS)')

.PHONY: tools
tools: $(STAMP)
	$(BIN)/python -m clusters.local install --if-possible
	$(BIN)/python -m clusters.local helm --if-possible

binaries: $(STAMP)
	$(BIN)/python -m clusters.local install
	$(BIN)/python -m clusters.local helm

demo: $(STAMP)
	$(BIN)/multimirror demo

fleet: $(STAMP)
	$(BIN)/multimirror fleet up

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

manifests: $(STAMP)
	$(BIN)/python -m multimirror.api deploy/crds
	$(BIN)/python -m multimirror.admission deploy
	$(BIN)/python -m clusters.local helm
	$(BIN)/python -m clusters.chart

reference: $(STAMP)
	$(BIN)/python -m docs.generator docs/reference

picture: $(STAMP)
	$(BIN)/python -m docs.generator.picture docs/images/demo.svg

SEEDS ?= 100
FLEET ?= embedded

faults: $(STAMP)
	$(BIN)/python -m faults --fleet $(FLEET) --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(if $(HOSTILE),--hostile-$(HOSTILE))

soak: $(STAMP)
	MULTIMIRROR_SOAK_SECONDS=60 $(BIN)/pytest tests/soak -rA --timeout 300

bench: $(STAMP)
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null \
	  || $(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m clusters.local install --if-possible
	$(BIN)/python -m bench --keep bench/results

bench-check: $(STAMP)
	$(BIN)/python -m bench check

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
