PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.PHONY: setup
setup: .venv/.installed ## Install into .venv

.PHONY: demo
demo: setup ## Train a small ablation; leaves a figure and a page in results/demo
	$(BIN)/python scripts/demo.py

.PHONY: test
test: setup ## Run the tests, 8 minutes on 2 cores
	$(BIN)/pytest -n auto --dist loadfile -m 'not long and not slow and not gpu and not wheel and not slurm and not docs'

.PHONY: test-long
test-long: setup ## Run the tests of whole commands, simulations and larger sets of designs, about 10 minutes
	$(BIN)/pytest -n auto -m 'long and not slow'

.PHONY: test-slow
test-slow: setup ## Run all of these, and the full product of designs
	$(BIN)/pytest -n auto --dist loadfile -m 'not gpu and not wheel and not slurm and not docs'

.PHONY: mutants
mutants: setup ## Plant 100 plausible bugs, one at a time, and report which test catches each (about an hour)
	$(BIN)/python -m tests.mutants

.PHONY: repeat
repeat: setup ## Train COUNT=20 archived runs again, drawn at random, and compare every digit (half an hour)
	$(BIN)/python -m tests.repeat --count $(or $(COUNT),20)

.PHONY: test-wheel
test-wheel: setup ## Build the wheel, install it without the repo, and use it in an empty directory
	$(BIN)/pytest -m wheel

.PHONY: test-docs
test-docs: setup ## Run everything that README, docs/ and the notebook show, and build the site
	$(BIN)/pytest -m docs tests/docs

.PHONY: docs
docs: setup ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: slurm-test
slurm-test: setup ## Run the tests against a real SLURM of one node (needs slurm-wlm and munge)
	$(BIN)/pytest -m slurm -rs

.PHONY: lint
lint: setup ## Check format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: format
format: setup ## Apply format and lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SCALE ?= lite
JOBS ?= 2
# without those that need text
EXPERIMENTS := $(filter-out %_wikitext %_lm,$(basename $(notdir $(wildcard conf/experiment/*.yaml))))

# "make" is written out in it: a line with the variable is run even by make -n, and would train.
.PHONY: reproduce
reproduce: setup ## Every MAD experiment at SCALE=lite|paper with JOBS workers, then figures and report
	@failed=; for e in $(EXPERIMENTS); do \
	  $(BIN)/python scripts/sweep.py experiment=$$e scale=$(SCALE) action=run jobs=$(JOBS) || \
	    { code=$$?; test $$code -lt 128 || exit $$code; failed="$$failed $$e"; }; \
	  $(BIN)/python scripts/figure.py experiment=$$e scale=$(SCALE) source=records || failed="$$failed $$e"; \
	done; $(BIN)/python scripts/benchmark.py suite=lengths || exit 1; \
	make figures report || exit 1; \
	test -z "$$failed" || { echo "not complete:$$failed; the same command goes on" >&2; exit 1; }

.PHONY: figures
figures: setup ## Make every table and figure again from the records in results/records; from tables where these are all there is
	for s in $(notdir $(wildcard results/tables/*)); do \
	  $(BIN)/python scripts/figure.py experiment=all scale=$$s || exit 1; done

.PHONY: report
report: setup ## Judge the paper's claims by the tables; leaves results/report/index.html
	$(BIN)/python scripts/report.py

.PHONY: quoted
quoted: setup ## Write what the tables say into README, docs and headers of experiments
	$(BIN)/python -m tests.docs.quoted

.PHONY: doctor
doctor: setup ## Print what this machine can use (devices, kernels, packages), and why not the rest
	$(BIN)/python scripts/doctor.py

.PHONY: gpu-check
gpu-check: setup ## Try and measure everything that a GPU would compute; leaves results/gpu/<device>.json to send us
	$(BIN)/python scripts/doctor.py full=true

.PHONY: references
references: setup ## Fetch the sources that tests compare adapters of kernels with; not installed
	mkdir -p .references
	MAMBA_SKIP_CUDA_BUILD=TRUE FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE $(BIN)/pip download --quiet --no-deps \
	  --no-build-isolation --no-binary :all: --constraint constraints.txt --dest .references mamba-ssm flash-attn
	for f in .references/*.tar.gz; do tar -xzf $$f -C .references; done

.PHONY: bench
bench: setup ## Measure speed and memory against their bars (SUITE=mixer|calls|launches|tasks|training|sweep|lengths|population|kernels|results|variance|zeros|order|growth|coefficients)
	$(BIN)/python scripts/benchmark.py suite=$(or $(SUITE),mixer)
