# One screen of what people run here; .ci/run calls the same.
# `make test` is the gate, `make check` its quick part; on two cores three JOBS leave neither idle: stories wait a lot.

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.made-from-the-lock
JOBS ?= 3
PYTEST = $(PYTHON) -m pytest -n $(JOBS) --dist worksteal
DEMO ?=
ONLY ?=
N ?= 100000
SEED ?=

.PHONY: venv demo check test slow sim kill bench proofs audit lock wheel clean

venv: $(STAMP)

$(STAMP): requirements/dev.lock pyproject.toml
	@sh requirements/venv.sh $(VENV)
	@touch $@

demo: venv
	@$(PYTHON) -m vole demo $(DEMO)

check: venv
	$(VENV)/bin/ruff format --check vole runner tests
	$(VENV)/bin/ruff check vole runner tests
	$(VENV)/bin/mypy
	$(PYTEST) tests/architecture tests/unit tests/property

test: check
	$(PYTEST) tests/contracts tests/fault tests/endtoend tests/sim
	$(PYTHON) -m tests.sim --seconds 100 --least 2000

slow: venv
	$(PYTHON) -m pytest --slow --timeout 1200 -m slow tests
	$(PYTHON) -m tests.sim -n $(N)

# make sim N=5000; make sim SEED=17 plays one history again and tells what happened (docs/simulation.md)
sim: venv
	$(PYTHON) -m tests.sim $(if $(SEED),--seed $(SEED),-n $(N))

kill: venv
	$(PYTHON) -m tests.fault.kill --kills $(if $(filter file,$(origin N)),1000,$(N)) $(if $(SEED),--seed $(SEED))

bench: venv
	$(PYTHON) -m tests.bench $(if $(ONLY),--only $(ONLY))

proofs: venv
	@$(PYTHON) -m pytest -p no:randomly --proofs tests

# Asks the advisory service of the package index; the floors it gave stand in tests/architecture/test_dependencies.py.
audit: venv
	$(VENV)/bin/pip-audit -r requirements/dev.lock --disable-pip --no-deps

wheel: venv
	$(PYTHON) -m hatchling build -t wheel

lock:
	uv pip compile --universal --generate-hashes --no-header --all-extras --quiet pyproject.toml -o requirements/dev.lock

clean:
	rm -rf $(VENV) dist
