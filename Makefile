# `make demo` and `make test` first install everything they need in .venv.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Tests start hundreds of processes that import the package. Compiled files halve the time of each start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint types architecture tests failed-tests test-long docs-pictures docs-benchmarks clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: $(VENV)/demo.stamp ## Start the platform, run three tenants, a borrowing slice, prefetched files, a workflow, deadlines and a start ahead, and show the results
	$(BIN)/aliquot demo --out demo-output

test: lint types architecture tests ## Check style, types and architecture, and run all tests

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

architecture: $(VENV)/dev.stamp
	$(BIN)/lint-imports

tests: $(VENV)/dev.stamp $(VENV)/clients.stamp $(VENV)/kinds.stamp $(VENV)/lithops.stamp
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder || $(MAKE) --no-print-directory failed-tests # two processes a core, because many tests wait

# Tests with real processes share the machine with whatever else runs on it. A test that fails only then passes by itself.
failed-tests: ## Run the tests that failed once more, one after another, and name those that failed only once
	@echo "Some tests failed. They run once more, one after another. A test that passes now is unsteady: please mend it."
	$(BIN)/pytest --last-failed --last-failed-no-failures none -vv

test-long: $(VENV)/dev.stamp $(VENV)/clients.stamp $(VENV)/kinds.stamp $(VENV)/lithops.stamp $(VENV)/serverless.stamp ## Run the long tests: many more examples, Serverless, Lithops' own tests, fifty kills, 200 clients
	$(BIN)/pytest -o faulthandler_timeout=3600 tests/property --hypothesis-profile=long
	$(BIN)/pytest -o faulthandler_timeout=3600 -m long
	ALIQUOT_KILLS=50 $(BIN)/pytest -o faulthandler_timeout=3600 tests/e2e/test_crash.py
	ALIQUOT_LOAD_S=60 ALIQUOT_LOAD_CLIENTS=200 ALIQUOT_LOAD_ACTIONS=100 $(BIN)/pytest -o faulthandler_timeout=3600 tests/e2e/test_load.py

docs-pictures: $(VENV)/dev.stamp ## Draw the pictures of README and docs
	$(BIN)/aliquot demo --out demo-output
	cp demo-output/demo.png demo-output/borrow.png docs/images
	$(BIN)/aliquot study --out study-output
	cp study-output/policies.png docs/images/policies.png
	$(BIN)/aliquot reproduce thesis --plot docs/images/thesis.png
	$(BIN)/python tests/support/console_pictures.py docs/images
	$(BIN)/aliquot reproduce mqfq --plot docs/images/mqfq.png

docs-benchmarks: $(VENV)/dev.stamp ## Measure the figures of docs/benchmarks.md (an hour)
	$(BIN)/aliquot bench fairness --markdown docs/benchmarks/fairness.md --json docs/benchmarks/fairness.json \
	  --plot docs/images/fairness.png
	$(BIN)/aliquot bench eviction --markdown docs/benchmarks/eviction.md --plot docs/images/eviction.png
	$(BIN)/aliquot bench cluster --markdown docs/benchmarks/cluster.md --json docs/benchmarks/cluster.json
	$(BIN)/aliquot bench forecast --markdown docs/benchmarks/forecast.md --json docs/benchmarks/forecast.json \
	  --plot docs/images/forecast.png
	$(BIN)/aliquot bench kernels --markdown docs/benchmarks/kernels.md --json docs/benchmarks/kernels.json \
	  --plot docs/images/kernels.png
	$(BIN)/aliquot bench sim --markdown docs/benchmarks/sim.md --plot docs/images/sim.png
	$(BIN)/aliquot bench prediction --markdown docs/benchmarks/prediction.md --json docs/benchmarks/prediction.json \
	  --plot docs/images/prediction.png
	$(BIN)/aliquot bench prefetch --markdown docs/benchmarks/prefetch.md --json docs/benchmarks/prefetch.json \
	  --plot docs/images/prefetch.png
	$(BIN)/aliquot bench profile --markdown docs/benchmarks/profile.md --json docs/benchmarks/profile.json \
	  --plot docs/images/profile.png
	$(BIN)/aliquot bench sdk --markdown docs/benchmarks/sdk.md --json docs/benchmarks/sdk.json
	$(BIN)/aliquot bench console --markdown docs/benchmarks/console.md --json docs/benchmarks/console.json
	$(BIN)/aliquot bench views --markdown docs/benchmarks/views.md --json docs/benchmarks/views.json \
	  --plot docs/images/views.png
	$(BIN)/aliquot bench sharing --markdown docs/benchmarks/sharing.md --json docs/benchmarks/sharing.json \
	  --plot docs/images/sharing.png
	$(BIN)/aliquot bench workflow --markdown docs/benchmarks/workflow.md --json docs/benchmarks/workflow.json \
	  --plot docs/images/workflow.png
	$(BIN)/aliquot bench latency --yes --markdown docs/benchmarks/latency.md --json docs/benchmarks/latency.json \
	  --plot docs/images/latency.png

clean: ## Remove the environment and all outputs
	rm -rf $(VENV).removed && if [ -e $(VENV) ]; then mv $(VENV) $(VENV).removed; fi # renamed first, so that an interrupted clean leaves no stamps
	rm -rf $(VENV).removed demo-output study-output .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml benchmarks/pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --editable benchmarks
	touch $@

$(VENV)/dev.stamp: pyproject.toml benchmarks/pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable benchmarks
	touch $@

# OpenWhisk clients for the tests. If they cannot be installed, their tests are skipped with a message.
# npm uses the certificates of the system instead of its own, because only those work behind a company's proxy.
NPM_CI := NODE_OPTIONS=--use-openssl-ca npm ci --silent --no-audit --no-fund
$(VENV)/clients.stamp: tests/clients/package.json tests/clients/package-lock.json | $(VENV)/bin/pip
	mkdir -p $(VENV)/clients
	cp $^ $(VENV)/clients
	command -v npm > /dev/null && $(NPM_CI) --prefix $(VENV)/clients \
	  || echo "npm cannot install OpenWhisk's JavaScript clients: their tests are skipped"
	touch $@

$(VENV)/serverless.stamp: tests/clients/serverless/package.json tests/clients/serverless/package-lock.json | $(VENV)/bin/pip
	mkdir -p $(VENV)/serverless
	cp $^ $(VENV)/serverless
	command -v npm > /dev/null && $(NPM_CI) --ignore-scripts --prefix $(VENV)/serverless \
	  || echo "npm cannot install the Serverless framework: its tests are skipped"
	touch $@

$(VENV)/kinds.stamp: src/aliquot/live/node/kind_packages.py | $(VENV)/dev.stamp
	$(BIN)/aliquot kinds install --data $(VENV)/kinds \
	  || echo "the packages of the kinds cannot be installed: their tests are skipped"
	touch $@

$(VENV)/lithops.stamp: tests/clients/lithops.txt | $(VENV)/bin/pip
	$(BIN)/python -m venv $(VENV)/lithops
	$(VENV)/lithops/bin/pip install --quiet --requirement $<
	touch $@
