# make demo: watch an SLO burn, a page arrive, a setting change and the alert resolve. make test: pass the tests.
# Both do all set-up; they need Python >= 3.11, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test coverage test-fast schema pictures stack-test engine-test check manifests format docs generate lock images \
  lock-programs bench bench-load bench-journal bench-parsers bench-rules bench-dashboards bench-requests bench-agreement bench-freeze bench-fleet \
  scenarios rolling-update fuzz soak clean

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "no virtual environment could be made; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: setup
	$(BIN)/vllm-slo demo

# Pictures of every dashboard over the demo's data, dark and 1440 px wide; they need Chromium. Those of docs/from-a-page-to-the-request.md are
# written by docs/page_pictures.py while the lab of that page runs.
pictures: setup
	$(BIN)/vllm-slo demo --png
	cp .lab/run/dashboards/*.png docs/pictures/
	@grep -o 'slo-[a-z]*\.png (.*)' .lab/run/logs/preview.log

# All tests, on every core; WORKERS=0 runs them one after the other. COVERAGE=1 prints what no test reaches.
WORKERS ?= auto
PARALLEL := -n $(WORKERS) --dist worksteal
test: setup
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory schema || echo "Grafana's types were not available" >&2
	$(BIN)/pytest $(PARALLEL) $(if $(COVERAGE),--cov --cov-report=term-missing:skip-covered)

coverage:
	$(MAKE) --no-print-directory test COVERAGE=1

# The tests that start no program; the closing line says how many are left out.
test-fast: setup
	$(BIN)/pytest $(PARALLEL) -m 'not slow and not stack and not engine'

# Grafana's own types and functions, which hold the dashboards and the preview, and the schemas of custom resources of Kubernetes;
# without npm or the network those tests are skipped, and say so.
SCHEMA := tests/dashboards/schema
CUSTOM_RESOURCES := tests/compose/kubernetes/schema
schema: $(SCHEMA)/node_modules/.ready $(CUSTOM_RESOURCES)/node_modules/.ready

%/node_modules/.ready: %/package.json
	npm install --prefix $* --no-package-lock --no-audit --no-fund --silent
	@touch $@

# Renders compose/kubernetes with every component and validates each object, unknown fields refused. Without kubectl, a Debian
# to unpack it from, or npm, the part that needs it is left out, with its reason.
manifests: setup
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory $(CUSTOM_RESOURCES)/node_modules/.ready || \
	  echo "the schemas of custom resources were not available" >&2
	$(BIN)/python -m tests.compose.kubernetes.manifest_validation

# The container lab for real; where no container can be started, it is skipped with the reason. The tests of its
# configuration run too, because some of them need the Docker command.
stack-test: setup
	$(BIN)/pytest -m '' tests/stack

# The sidecar in front of a real vLLM: its community CPU build, fetched on the first run (585 MB) into the user's cache.
engine-test: setup
	$(BIN)/pytest -m engine tests/engine

check: setup manifests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The documentation as pages, in .lab/site; broken links fail, there and in `make check`.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: setup
	$(BIN)/vllm-slo alerts render
	$(BIN)/vllm-slo alerts render --format prometheusrule --autoscaling --label release=kube-prometheus-stack \
	  --out compose/kubernetes/components/alerts/generated
	$(BIN)/vllm-slo alerts schema
	$(BIN)/vllm-slo alerts alertmanager --page pagerduty=@/etc/alertmanager/secrets/pagerduty \
	  --page 'slack=#llm-oncall' --ticket 'slack=#llm-tickets' --ticket email=llm@example.org \
	  --heartbeat https://heartbeat.example.org/ping --slack-url-file /etc/alertmanager/secrets/slack \
	  --smtp mail.example.org:587 --smtp-from alertmanager@example.org --smtp-user alertmanager \
	  --smtp-password-file /etc/alertmanager/secrets/mail
	$(BIN)/vllm-slo alerts alertmanager --out compose/alertmanager --page webhook=http://webhook:9095/page \
	  --ticket webhook=http://webhook:9095/ticket --group-wait 10s --group-interval 1m --repeat-pages 12h \
	  --repeat-tickets 12h
	$(BIN)/vllm-slo dashboards render
	$(BIN)/python -m exporters.requestlog.field_docs
	$(BIN)/python docs/generate.py

# Needs uv; writes what is tested, with hashes and without the address of any index, and the part of it in each image.
LOCK := uv pip compile --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --no-header --no-annotate --quiet
lock:
	$(LOCK) pyproject.toml --extra lab --group dev -o requirements.lock
	for extra in sidecar loadgen dashboards; do \
	  $(LOCK) pyproject.toml --extra $$extra --constraint requirements.lock -o compose/locks/$$extra.lock || exit; done
	$(LOCK) --group pyproject.toml:image --constraint requirements.lock -o compose/locks/build.lock

# The images of compose/Dockerfile, in the version of the project; needs Docker with BuildKit.
IMAGE_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
images:
	docker build --file compose/Dockerfile --target sidecar --tag vllm-slo:$(IMAGE_VERSION) $(BUILD) .
	docker build --file compose/Dockerfile --target loadgen --tag vllm-slo-loadgen:$(IMAGE_VERSION) $(BUILD) .
	docker build --file compose/Dockerfile --target dashboards --tag vllm-slo-dashboards:$(IMAGE_VERSION) $(BUILD) .

# The checksums of the Prometheus and Alertmanager releases in compose/programs.lock, read from the releases themselves.
# To change a version, edit it there first. Needs the network; without it the file stays unchanged.
lock-programs: setup
	$(BIN)/python -m compose.lock_programs

# What the sidecar costs beside nginx and others. make bench BENCH="--measure spread --rounds 3"; BENCH=--help tells more.
# Without BENCH, the load generator is measured too.
bench: setup
	$(BIN)/python -m tests.bench.relay $(BENCH)
	$(if $(BENCH),,$(MAKE) --no-print-directory bench-load)

# What a token costs the load generator beside a plain aiohttp client and, if vLLM is installed, vllm bench serve.
bench-load: setup
	$(BIN)/python -m tests.bench.load_clients $(LOAD)

# What the journal of begun requests costs a request.
bench-journal: setup
	$(BIN)/python -m tests.bench.journal

# For how long large messages block the event loop of a relay.
bench-parsers: setup
	$(BIN)/python -m tests.bench.parsers

# What evaluating the rules costs with 100 models x 8 classes x 2 SLOs and a month of blocks, on the real Prometheus.
bench-rules: setup
	$(BIN)/python -m tests.bench.rules

# What the first load of each dashboard costs a real Prometheus with 28 days of 20 engines x 8 classes.
# BOARDS="--against REVISION" measures the dashboards of a git revision in turn with ours, --all-rows the collapsed rows too.
bench-dashboards: setup
	$(BIN)/python -m tests.bench.dashboards $(BOARDS)

# The speed of vllm-slo requests beside jq, on a generated log of 1 GB. QUERIES="--size 100" makes a smaller one.
bench-requests: setup
	$(BIN)/python -m tests.bench.request_queries $(QUERIES)

# The same requests by `vllm-slo load` and by `vllm bench serve`, in turn, to vLLM's CPU build: the medians must agree.
bench-agreement: setup
	$(BIN)/python -m tests.bench.vllm_bench $(AGREEMENT)

# The TTFT of a server that is frozen for 4 s, from the intended time, from sending, and in a closed loop.
bench-freeze: setup
	$(BIN)/python -m tests.bench.freeze

# Ten incidents on three replicas with real Prometheus and Alertmanager: the pages and tickets of each, in half an hour. A
# second run continues where the first one ended. SCENARIOS="--rules-of CHECKOUT --out DIR" uses the rules of another release.
scenarios: setup
	$(BIN)/python -m tests.alerts.alertmanager.scenarios $(SCENARIOS)

# What one real Prometheus needs to scrape 100 sidecars and evaluate the shipped rules, in 8 minutes. FLEET="--sidecars 20
# --minutes 2" is shorter.
bench-fleet: setup
	$(BIN)/python -m tests.bench.fleet $(FLEET)

# Three replicas behind HAProxy, replaced one by one under 100 requests/s: no request lost, no page, the budget untouched.
# ROLLING="--balancing tcp" balances connections, ROLLING=--without-hook shows what is lost without the preStop hook.
rolling-update: setup
	$(BIN)/python -m compose.rolling_update.command $(ROLLING)

# Spoiled requests, answers and event streams against the relay's parsers. A fault found comes with its reproducer.
fuzz: MINUTES ?= 10
fuzz: setup
	$(BIN)/python -m tests.fuzz.run --minutes $(MINUTES)

# A real sidecar under 200 open streams and random faults: memory, descriptors and gauges must not grow, and each request
# must be logged or counted. SEED=n injects the faults of an earlier run.
soak: MINUTES ?= 20
soak: setup
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) .lab .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
