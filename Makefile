# Everything happens in .venv, made by the first target that needs it. `make` lists the targets.

PYTHON ?= python3
# Where this is set, every command of the tests compiles the project anew: half of what `migrate` takes.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MUTANTS_READY := $(VENV)/.ready-mutants
BENCH_READY := $(VENV)/.ready-bench
PUBLIC_VENV := .venv-public
PUBLIC_READY := $(PUBLIC_VENV)/.ready
ACCELERATE_VENV := .venv-accelerate
ACCELERATE_READY := $(ACCELERATE_VENV)/.ready
XLA_VENV := .venv-xla
XLA_READY := $(XLA_VENV)/.ready
ACCELERATE_XLA_READY := $(XLA_VENV)/.ready-accelerate
PROCESSES ?= 2
# Twice the processes: almost half of their time, tests wait for what they have started, or for a limit of time.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

OF_THE_REWRITER := tests/rewriter tests/codemods tests/hazards tests/test_fixtures.py

.DEFAULT_GOAL := help
.PHONY: help demo test test-null test-all corpus public public-judge public-faults fuzz-programs lint format docs bench build clean mutants test-accelerate test-xla

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(READY)  ## migrate a training script and compare one and two processes with the original
	@$(BIN)/python docs/demo.py

test: lint  ## what every change must pass: formatting, types, tests
	$(PYTEST) -m "not slow"

test-null: $(READY)  ## the tests of the rewriter with one that does nothing: they must notice
	@PYTHONPATH=tests/null $(PYTEST) -p null_rewriter --tb=no -rN -m "not slow" $(OF_THE_REWRITER)

test-all: lint  ## the same with the long tests
	$(PYTEST)

corpus: $(READY)  ## run the engine over every file of torch, scikit-learn, libcst and CPython's tests (half an hour)
	@$(BIN)/python tests/corpus.py

mutants: $(MUTANTS_READY)  ## change the code in small ways and see whether the tests notice: hours; a stopped run goes on [FIRST=10]
	@nice $(BIN)/python -m tests.mutants --processes $(PROCESSES) $(if $(FIRST),--first $(FIRST))

public: $(READY) $(if $(QUICK),,$(PUBLIC_READY))  ## run the ledger of public programs: PUBLIC=FOLDER [QUICK=1] [SHARD=1/4] [ONLY=NAME]
	@$(BIN)/python -m tests.public '$(PUBLIC)' $(if $(QUICK),--quick) $(if $(SHARD),--shard '$(SHARD)') $(if $(ONLY),--only '$(ONLY)')

public-judge: $(READY)  ## enter one verdict, after its difference was read: ENTRY=NAME VERDICT=... WHY=... [BY=...]
	@$(BIN)/python -m tests.public --entry '$(ENTRY)' --verdict '$(VERDICT)' --why '$(subst ','\'',$(WHY))' --by '$(BY)'

public-faults: $(READY)  ## plant faults in what is emitted for the ledger's right programs: PUBLIC=FOLDER [ONLY=NAME] (half an hour)
	@$(BIN)/python -m tests.public.faults '$(PUBLIC)' $(if $(ONLY),--only '$(ONLY)')

fuzz-programs: $(READY)  ## migrate and verify programs of a grammar: [FIRST=0] [COUNT=3000] [SHOW=SEED] (an hour)
	@$(BIN)/python -m tests.fuzz_programs --jobs $(PROCESSES) $(if $(FIRST),--first $(FIRST)) $(if $(COUNT),--count $(COUNT)) $(if $(SHOW),--show $(SHOW))

test-accelerate: $(READY)  ## run Accelerate's own tests against the runtime: CHECKOUT=FOLDER [COMMIT=HASH] [ONLY=NAME] [ACCEPT=1] [XLA=2] (half an hour)
	@$(BIN)/python -m tests.accelerate_suite '$(CHECKOUT)' --check
	@$(MAKE) --no-print-directory $(if $(XLA),$(ACCELERATE_XLA_READY),$(ACCELERATE_READY))
	@$(BIN)/python -m tests.accelerate_suite '$(CHECKOUT)' --commit '$(COMMIT)' --only '$(ONLY)' --jobs $(PROCESSES) $(if $(ACCEPT),--accept) $(if $(XLA),--xla $(XLA))

test-xla: $(XLA_READY)  ## train on 1, 2 and 8 virtual devices of torch_xla, in an environment of its own
	@env -u PYTHONPATH $(XLA_VENV)/bin/python -m pytest -q -n $(PROCESSES) --dist loadgroup -m xla tests/xla

lint: $(READY)  ## formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy $(wildcard tests/test_*.py tests/snapshots.py tests/null/*.py tests/codemods/*.py tests/public/*.py tests/forking.py tests/fuzz_programs/*.py tests/mutants/*.py tests/accelerate_suite/*.py benchmarks/*.py docs/*.py)

format: $(READY)  ## format the code, and correct what ruff can correct by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the pages and pictures that are made from the code
	@$(BIN)/python docs/build.py

bench: $(BENCH_READY)  ## measure speed against the budgets; results go to benchmarks/results and docs/speed.md
	@$(BIN)/python -m benchmarks

build: $(READY)  ## the wheel and the source archive, in dist/
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) $(PUBLIC_VENV) $(ACCELERATE_VENV) $(XLA_VENV) .public build dist *.egg-info .demo .mutants .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torchlift needs Python 3.10 or newer, and $(PYTHON) is " + sys.version.split()[0] + ". Say for instance: make PYTHON=python3.12")'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing torchlift and what its development needs into $(VENV) (a minute or two)"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Public programs run in an environment of their own. torchvision's wheels for PyPI's torch import beside the CPU build, too,
# once the operators that they look for are declared: tests/public/environment does that when torchvision is imported.
$(PUBLIC_READY): tests/public/requirements.txt $(wildcard tests/public/environment/*) constraints.txt pyproject.toml
	@test -x $(PUBLIC_VENV)/bin/python || { echo "creating $(PUBLIC_VENV)"; $(PYTHON) -m venv $(PUBLIC_VENV); }
	@echo "installing what public programs import into $(PUBLIC_VENV) (a few minutes)"
	@$(PUBLIC_VENV)/bin/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[runtime]' -r tests/public/requirements.txt
	@$(PUBLIC_VENV)/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps torchvision==0.29.1
	@cp tests/public/environment/* "$$($(PUBLIC_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

# What one target alone needs: the mutation tester, and the peers that the runtime is measured beside.
$(MUTANTS_READY) $(BENCH_READY): $(VENV)/.ready-%: $(READY)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@

# Accelerate's tests run in an environment that stands on top of .venv: what is installed there (torch, this project) is seen, and only
# the packages that they need beside it are added.
$(ACCELERATE_READY): tests/accelerate_suite/requirements.txt $(READY)
	@test -x $(ACCELERATE_VENV)/bin/python || { echo "creating $(ACCELERATE_VENV)"; $(BIN)/python -m venv --without-pip $(ACCELERATE_VENV); }
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir({!r})".format(sysconfig.get_path("purelib")))' \
		> "$$($(ACCELERATE_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/development.pth"
	@echo "installing what Accelerate's tests import into $(ACCELERATE_VENV) (a minute or two)"
	@$(BIN)/python -m pip --python $(ACCELERATE_VENV)/bin/python install --quiet --quiet --disable-pip-version-check -r tests/accelerate_suite/requirements.txt
	@touch $@

# torch_xla loads beside torch 2.9 alone, so that it has an environment of its own, with the torch that it needs.
$(XLA_READY): tests/xla/requirements.txt pyproject.toml
	@test -x $(XLA_VENV)/bin/python || { echo "creating $(XLA_VENV)"; $(PYTHON) -m venv $(XLA_VENV); }
	@echo "installing torch_xla and what it needs into $(XLA_VENV) (some minutes)"
	@$(XLA_VENV)/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[runtime]' -r tests/xla/requirements.txt
	@touch $@

$(ACCELERATE_XLA_READY): tests/accelerate_suite/requirements.txt $(XLA_READY)
	@echo "installing what Accelerate's tests import into $(XLA_VENV), too (some minutes)"
	@$(XLA_VENV)/bin/python -m pip install --quiet --quiet --disable-pip-version-check -r tests/accelerate_suite/requirements.txt
	@touch $@
