# One entry for each habit. Every target sets up .venv by itself (tools/venv says how);
# `make PYTHON=/path/to/python3 …` chooses the interpreter.
# Paths are relative, so that the checkout may lie anywhere, also under a name with a space.

PYTHON ?=
VENV   := .venv/bin/python

CHECKED := $(foreach dir,src tests examples bench,$(if $(wildcard $(dir)),$(dir)))

# The files hold what the public index gives, whatever this machine's pip is configured with.
PIP_COMPILE = env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null \
	../.venv-requirements/bin/python -m piptools compile --quiet --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --allow-unsafe

.DEFAULT_GOAL := help
.PHONY: help venv demo test chaos crash simulate soak errnos fuzz faults rubbish shapes graphs between mutations check format compat compat-agents bench bench-peers bench-crash profile requirements clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

venv:
	@PYTHON="$(PYTHON)" sh tools/venv

# SOURCE and DEST reach the example by themselves: make exports what the environment and its own
# command line set.
demo: venv ## Copy a folder under kill -9; SOURCE=dir (only read; default: Python's library), DEST=dir
	@$(VENV) examples/migration_demo.py

# Tests wait much of their time, for processes, servers and clocks: four keep two cores busy.
test: venv ## Run the tests; ARGS="tests/unit -k name" chooses
	@$(VENV) -m pytest -n 4 --dist=worksteal -q $(ARGS)

chaos: venv ## Kill agents 2,000 times at random moments, and look at what came of them; ARGS="--kills N --seed S --store postgres", "--moves MINUTES" beside moves of agents
	@$(VENV) -m tests.chaos $(ARGS)

crash: venv ## Cut the power at every write of every workload, 50,000 times, and of PostgreSQL servers, 100 times; ARGS="--images N --postgres N --seed S"
	@$(VENV) -m tests.powerloss $(ARGS)

simulate: venv ## Simulate 1,000 seeds of executors, clients and trouble, each the same again; ARGS="--seeds N --seed S"
	@$(VENV) -m tests.simulation $(ARGS)

soak: venv ## Work for an hour under kill -9 and retention: is what it takes steady? ARGS="--minutes N --seed S"
	@$(VENV) -m tests.soak $(ARGS)

errnos: venv ## Let each system call of a store in use fail, with each error that there is; ARGS="--only NAME --share 0.1 --seed S"
	@$(VENV) -m tests.errnos $(ARGS)

fuzz: venv ## Damage all that reads foreign bytes, for 20 minutes; ARGS="--seconds N --only NAME --seed S"
	@$(VENV) -m tests.fuzz $(ARGS)

faults: venv ## Raise exceptions at each instruction of each call, 100,000 times, and see what is left; ARGS="--injections N --backend sqlite --only edit --seed S"
	@$(VENV) -m tests.faults $(ARGS)

rubbish: venv ## Call everything public with wrong values, 3,000,000 times; ARGS="--calls N --store sqlite --seed S --only Agent"
	@$(VENV) -m tests.rubbish $(ARGS)

shapes: venv ## Put 50,000 shapes of classes and values into stores by each way, and see what comes back; ARGS="--shapes N --store sqlite --seed S"
	@$(VENV) -m tests.shapes $(ARGS)

graphs: venv ## Run 5,300 programs of tasks that chance makes, kill them, and go over them again; ARGS="--programs N --seed S --kills K --only wide --store postgres"
	@$(VENV) -m tests.graphs $(ARGS)

between: venv ## Let another act between two calls of the store that one call makes, 2,000 times; ARGS="--programs N --seed S --store postgres --only migrate"
	@$(VENV) -m tests.between $(ARGS)

mutations: venv ## Break the code on purpose, a line at a time, and see that the tests notice; ARGS="--only word"
	@$(VENV) -m tests.mutations $(ARGS)

compat: venv ## Run the newest released suites of LangGraph and LangChain with ours in the place of their savers; ARGS="--pinned --only langgraph --backend sqlite"
	@$(VENV) -m tests.suites $(ARGS)

compat-agents: venv ## Run the newest released tests of OpenAI Agents' sessions with ours in their place; ARGS="--version 0.24.0"
	@$(VENV) -m tests.integrations.openai_agents.sdk_run $(ARGS)

check: venv ## Check formatting, lint and types
	@$(VENV) -m ruff format --check .
	@$(VENV) -m ruff check .
	@$(VENV) -m mypy $(CHECKED)

format: venv ## Format the code and fix what ruff can fix
	@$(VENV) -m ruff check --fix-only --quiet .
	@$(VENV) -m ruff format .

bench: venv ## Run the benchmarks
	@$(VENV) -m bench $(ARGS)

# Each in an environment of its own; matplotlib draws the pictures.
PEERS = langgraph dbos agents eventsourcing matplotlib

bench-peers: venv ## Set others up, and measure them beside us; ARGS="--quick", "--readme" (see --help)
	@for peer in $(PEERS) restate; do PYTHON="$(PYTHON)" sh tools/venv --peer $$peer || exit 1; done
	@$(VENV) -m bench.peers.restate_server || true  # without it the table says so
	@$(VENV) -m bench.peers $(ARGS)

bench-crash: venv ## Kill an agent that charges a card at each moment, under each contestant; ARGS="dbos restate --points 0"
	@for peer in dbos restate; do PYTHON="$(PYTHON)" sh tools/venv --peer $$peer || exit 1; done
	@$(VENV) -m bench.peers.restate_server || true  # without it the table says so
	@$(VENV) -m bench.crash $(ARGS)

profile: venv ## Where the time of a commit, a step and a rehydration goes; ARGS="--quick", "--write" into docs/performance.md
	@PYTHON="$(PYTHON)" sh tools/venv --peer profile
	@$(VENV) -m bench.profile $(ARGS)

requirements: ## Pin requirements/*.txt anew after a change of *.in; UPGRADE=--upgrade takes newer versions
	@PYTHON="$(PYTHON)" sh tools/venv --requirements
	cd requirements && $(PIP_COMPILE) $(UPGRADE) --output-file=runtime.txt runtime.in
	cd requirements && $(PIP_COMPILE) $(UPGRADE) --output-file=dev.txt dev.in
	for peer in $(PEERS) restate profile suites; do (cd requirements && $(PIP_COMPILE) $(UPGRADE) \
		--output-file=peers-$$peer.txt peers-$$peer.in) || exit 1; done
	sed -i.old 's/^colorama==[^ ;]*/& ; sys_platform == "win32"/' requirements/runtime.txt requirements/dev.txt
	rm -f requirements/*.txt.old

clean: ## Remove the virtual environments, caches and build outputs
	rm -rf .venv .venv-compat .venv-compat-agents .venv-requirements .venv-peers-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
