# Everything runs in $(VENV), made on first use. Another Python beside it:
#     make test PYTHON=python3.12 VENV=.venv312
PYTHON ?= python3
VENV   ?= .venv
# TF-Agents has an environment of its own: it needs TensorFlow 2.15, and that Python 3.10 or 3.11.
TF_PYTHON ?= $(firstword $(foreach name,python3.11 python3.10 python3,$(if $(shell $(name) -c \
             'import sys; print(sys.version_info[:2] in [(3, 10), (3, 11)] or "")' 2>/dev/null),$(name))))
TF_VENV   ?= .venv-tf-agents
JOBS   ?= 2
ARGS   ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

DEMO := CartPole-v1 ALE/Pong-v5 HalfCheetah-v5 --compare gymnasium-async \
        --num-envs 16 --seconds 2 --rounds 3

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs at a time would trip over each other.
.NOTPARALLEL:
.PHONY: help demo test test-tf-agents check bench bench-tf-agents docs clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo ## Step CartPole, Pong and HalfCheetah, beside Gymnasium's AsyncVectorEnv
	$(BIN)/shoal bench $(DEMO) $(ARGS)

test: $(VENV)/.dev ## Run the tests; ARGS="-k name" picks some, JOBS=4 runs more at a time
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

test-tf-agents: $(TF_VENV)/.tf-agents ## Run the tests that need the real TF-Agents, in an environment of its own
	$(TF_VENV)/bin/python -m pytest tests/with_tf_agents $(ARGS)

check: $(VENV)/.dev ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.demo ## Measure what the library promises about speed
	$(BIN)/python benchmarks/targets.py $(ARGS)

bench-tf-agents: $(TF_VENV)/.tf-agents ## Measure what is promised to users of TF-Agents, beside it
	$(TF_VENV)/bin/python benchmarks/beside_tf_agents.py $(ARGS)

docs: $(VENV)/.docs ## Build the documentation into site/
	@# Its notice about a successor is for those who choose a tool.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## Remove everything that was made here
	rm -rf $(VENV) $(TF_VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras: installed once, and again when the requirements change. All are
# editable, so whichever came last leaves the checkout itself in use.
$(VENV)/.demo: EXTRAS := atari,mujoco,plot
$(VENV)/.dev:  EXTRAS := dev,atari,mujoco,plot
$(VENV)/.docs: EXTRAS := docs

$(VENV)/.demo $(VENV)/.dev $(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing shoal[$(EXTRAS)] into $(VENV); the first time takes a minute ..."
	@$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@

$(TF_VENV)/.tf-agents: pyproject.toml constraints-tf-agents.txt
	@test -n "$(TF_PYTHON)" || { echo "TF-Agents needs Python 3.10 or 3.11, and none is on the path; name one:" \
	  "make $(MAKECMDGOALS) TF_PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing TF-Agents and TensorFlow into $(TF_VENV); the first time takes some minutes ..."
	@test -x $(TF_VENV)/bin/python || $(TF_PYTHON) -m venv --clear $(TF_VENV)
	@$(TF_VENV)/bin/python -m pip install -qq --disable-pip-version-check --upgrade pip
	@$(TF_VENV)/bin/python -m pip install -qq --disable-pip-version-check --constraint constraints-tf-agents.txt \
	  --editable . tensorflow-cpu tf-keras tensorflow-probability tf-agents dm-env hypothesis pytest pytest-timeout
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "shoal needs Python 3.10 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); \
	  echo "Could not make $(VENV). Debian and Ubuntu keep venv in a package of its own: python3-venv" >&2; exit 1; }
	@# The pip that comes with Python 3.10 may search for an hour where a later one needs seconds.
	@$(PIP) --upgrade pip || { rm -rf $(VENV); exit 1; }
