"""Who takes part: each with a card company that ignores idempotency keys, or honours them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import perdure
from bench.peers import restate_server

ROOT = Path(__file__).parents[2]
OURS = Path(sys.executable)
DBOS_ENVIRONMENT = ROOT / ".venv-peers-dbos"
AGENTS = "bench.crash.agents"


def _dbos_missing() -> str:
    if (DBOS_ENVIRONMENT / "stamp").exists():  # it is written when all is installed
        return ""
    return "it is not set up here: `make bench-crash` does it"


def _nothing_missing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row.

    Attributes:
        name: for the command line and the files; in one word.
        title: for the table.
        program: the module of `bench.crash.agents`.
        options: for it, after the folder and the order.
        keys: whether the card company honours idempotency keys.
        receiver: what the company can do, and what it is given; for the table.
        server: whether it has a server beside the agent's process.
        missing: says why it cannot take part here; "" if it can.
    """

    name: str
    title: str
    program: str
    options: tuple[str, ...] = ()
    keys: bool = False
    receiver: str = "ignores keys"
    python: Path = OURS
    server: bool = False
    missing: Callable[[], str] = _nothing_missing


def _perdure(policy: str) -> Contestant:
    return Contestant(
        f"perdure-{policy}", f'Perdure, `on_crash="{policy}"`', "perdure_agent", (policy,)
    )


def _with_key(which: Contestant, key: str, *options: str, name: str = "key") -> Contestant:
    """The same with a company that honours keys, and is given that one."""
    return replace(
        which,
        name=f"{which.name}-{name}",
        options=(*which.options, *options),
        keys=True,
        receiver=f"honours keys: {key}",
    )


def _to_be_asked(which: Contestant) -> Contestant:
    return replace(which, receiver="ignores keys, can be asked")


LANGGRAPH = Contestant("langgraph", "LangGraph, SqliteSaver", "langgraph_agent")
OVER_PERDURE = {
    policy: Contestant(
        f"langgraph-perdure-{policy}",
        f'LangGraph, PerdureSaver, tool with "{policy}"',
        "langgraph_perdure_agent",
        (policy,),
    )
    for policy in ("probe", "ask")
}
DBOS = Contestant(
    "dbos",
    "DBOS, a step",
    "dbos_agent",
    python=DBOS_ENVIRONMENT / "bin" / "python",
    missing=_dbos_missing,
)
RESTATE = Contestant(
    "restate",
    "Restate, `ctx.run`",
    "restate_agent",
    python=restate_server.PYTHON,
    server=True,
    missing=restate_server.missing,
)
OPENAI = Contestant("openai", "OpenAI Agents, SQLiteSession", "openai_agent")

CONTESTANTS = (
    _with_key(_perdure("retry"), "`idempotency_key()`"),
    _to_be_asked(_perdure("probe")),
    _perdure("ask"),
    _perdure("fail"),
    _perdure("retry"),
    LANGGRAPH,
    _with_key(LANGGRAPH, "the task's id", "--key"),
    _to_be_asked(OVER_PERDURE["probe"]),
    OVER_PERDURE["ask"],
    DBOS,
    _with_key(DBOS, "ids of workflow and step", "--key"),
    RESTATE,
    _with_key(RESTATE, "`ctx.uuid()`", "--key"),
    OPENAI,
    _with_key(OPENAI, "the tool call's id", "--key", "call", name="call-key"),
    _with_key(OPENAI, "the order's number", "--key", "order", name="order-key"),
)
"""In the order of the table."""


def versions() -> dict[str, str]:
    """Of what takes part, as installed or pinned here."""
    found = {
        name: version(name)
        for name in ("langgraph", "langgraph-checkpoint-sqlite", "openai-agents")
    }
    for peer in ("dbos", "restate"):
        pins = (ROOT / "requirements" / f"peers-{peer}.in").read_text("utf-8").splitlines()
        found |= dict(line.split("==") for line in pins if "==" in line)
    return {"perdure": perdure.__version__, **found, "restate-server": restate_server.pin()[1]}
