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

# Which manager `deploy`, `run` and `helm-push` are about.
PROVIDER ?= nvidia-bmm
# The one image, with every program: registry, name and tag. IMAGE names a registry that does not exist, since nothing is
# published yet; `make manifest IMG=…` writes another name into charts, manifests and overlays.
VERSION ?= $(shell cat VERSION)
IMG ?= $(shell cat IMAGE):$(VERSION:v%=%)
HELM_CHART_REGISTRY ?= oci://$(patsubst %/,%,$(dir $(IMG)))/helm-charts
MANAGER = $(PROVIDER)-cloud-controller-manager
KUBECTL ?= $(or $(shell command -v kubectl),$(BIN)/bedplate kubectl --)
RUN_nvidia-bmm = --cloud-config=./config/cloud-config.yaml
$(if $(filter nvidia-bmm oxide cloudlycke,$(PROVIDER)),,$(error PROVIDER is nvidia-bmm, oxide or cloudlycke, not '$(PROVIDER)'))

.DEFAULT_GOAL := help
.PHONY: help setup up test verify soak lint fmt bench lab docs proof build clean
.PHONY: vet manifest packages rootfs image docker-build docker-push check-image deploy undeploy run helm-package helm-push

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: ## install everything the other commands need
	@$(SETUP) all

up: ## run a site of 20 machines: API server, nodes, managers and a head (ARGS="--plain" for no live display)
	@$(SETUP) up
	@$(BIN)/bedplate up $(ARGS)

test: ## run the tests that need nothing but Python (about seven minutes on two cores)
	@$(SETUP) test
	@$(BIN)/python tools/test.py test $(ARGS)

verify: ## run the rest: a real kube-apiserver and etcd, kubectl, helm, browsers, labs (about 50 minutes with a warm cache)
	@$(SETUP) all
	@$(BIN)/python tools/test.py verify $(ARGS)

soak: ## run the long versions: thousands of kills and random sequences
	@$(SETUP) all
	@$(BIN)/python tools/test.py soak $(ARGS)

# The native programs are looked at where cargo and the part of it are installed.
HAS_FMT = cargo fmt --version > /dev/null 2>&1
HAS_CLIPPY = cargo clippy --version > /dev/null 2>&1

lint: ## format check, lint, types, layers
	@$(SETUP) venv
	@$(BIN)/ruff format --check --quiet src tests bench tools .ci
	@$(BIN)/ruff check --quiet src tests bench tools .ci
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > build/imports.txt 2>&1 || { cat build/imports.txt; exit 1; }
	@! $(HAS_FMT) || cargo fmt --all --check
	@! $(HAS_CLIPPY) || cargo clippy --quiet --offline --all-targets -- --deny warnings

fmt: ## format the code
	@$(SETUP) venv
	@$(BIN)/ruff format --quiet src tests bench tools .ci
	@$(BIN)/ruff check --quiet --fix src tests bench tools .ci
	@! $(HAS_FMT) || cargo fmt --all

bench: ## measure against the peers, in the same run
	@$(SETUP) all
	@$(BIN)/python -m bench $(or $(ARGS),--full)

lab: ## start a real three-node Kubernetes on this machine (needs root)
	@test "$$(id -u)" = 0 || { echo "make lab: a lab needs root, for namespaces, mounts and control groups: sudo make lab" >&2; exit 1; }
	@$(SETUP) all
	@$(BIN)/bedplate lab up --nodes 3 $(ARGS)

docs: ## generate the reference pages from the code
	@$(SETUP) venv
	@$(BIN)/python tools/docs.py

proof: ## run the cheap commands of docs/proof.md and keep what they print (ARGS=--all for the rest)
	@$(SETUP) venv
	@$(BIN)/python tools/proof.py $(ARGS)

build: ## build the wheel into dist/, and the image too where PROVIDER is named
	@$(SETUP) venv
	@$(BIN)/python -m hatchling build -t wheel
	@$(if $(filter file default,$(origin PROVIDER)),,$(MAKE) --no-print-directory docker-build)

vet: ## check types and layers
	@$(SETUP) venv
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > build/imports.txt 2>&1 || { cat build/imports.txt; exit 1; }

manifest: ## write VERSION and IMG into charts, manifests and overlays, and the manifests that are made from charts
	@$(SETUP) venv
	@$(BIN)/python tools/manifest.py --image $(IMG)

packages: ## build the node agent's packages into dist/: an archive with its own interpreter, .deb and .rpm
	@$(SETUP) venv
	@$(BIN)/python tools/packages.py $(ARGS)

rootfs: ## assemble the root file system of the image in build/rootfs/
	@$(SETUP) venv
	@$(BIN)/python tools/rootfs.py

image: ## write the image IMG as an archive into build/image/, for `bedplate lab load-image`, `ctr images import` and others
	@$(SETUP) venv
	@$(BIN)/python tools/image.py archive --image $(IMG) $(ARGS)

docker-build: ## build the image IMG with docker, podman or buildah, or as an archive without any of them
	@$(SETUP) venv
	@$(BIN)/python tools/image.py build --image $(IMG) $(ARGS)

docker-push: ## push the image IMG to its registry
	@$(SETUP) venv
	@$(BIN)/python tools/image.py push --image $(IMG) $(ARGS)

check-image: ## check that every node of kubectl's cluster can pull and run the image IMG
	@$(SETUP) venv
	@$(BIN)/python tools/deploy.py check-image --image $(IMG) --kubectl '$(KUBECTL)' $(ARGS)

deploy: ## apply the manifests of PROVIDER (nvidia-bmm, oxide or cloudlycke) with the image IMG to kubectl's cluster
	@$(SETUP) venv
	@$(BIN)/python tools/deploy.py apply --provider $(PROVIDER) --image $(IMG) --kubectl '$(KUBECTL)'

undeploy: ## remove from the cluster what `make deploy` made there; a Secret of yours stays
	@$(SETUP) venv
	@$(BIN)/python tools/deploy.py delete --provider $(PROVIDER) --kubectl '$(KUBECTL)'

run: ## run the manager of PROVIDER here, with $KUBECONFIG and, for nvidia-bmm, config/cloud-config.yaml
	@$(SETUP) venv
	$(BIN)/$(MANAGER) --cloud-provider=$(PROVIDER) $(RUN_$(PROVIDER)) \
		--use-service-account-credentials=false --kubeconfig=$(KUBECONFIG) $(ARGS)

helm-package: ## package the chart of PROVIDER into dist/
	@$(SETUP) venv
	@$(BIN)/python tools/manifest.py --image $(IMG) --check
	@$(BIN)/python tools/chart.py package $(MANAGER)

helm-push: helm-package ## push the packaged chart of PROVIDER to HELM_CHART_REGISTRY
	@$(BIN)/python tools/chart.py push $(MANAGER) $(HELM_CHART_REGISTRY) $(ARGS)

clean: ## remove what was built here (not the cache of binaries)
	@rm -rf build dist target .venv src/bedplate/ipam/node/libstoresum.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
