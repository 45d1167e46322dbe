"""What the command line's tests share: a store with a little of everything, and commands on it."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

import perdure
from perdure.cli.app import app


class PowerLoss(BaseException):
    """Ends a tool between its intent and its outcome, as a crash does."""


crashing = False


@perdure.tool
def refund(invoice: str, cents: int) -> dict[str, Any]:
    if crashing:
        raise PowerLoss
    return {"receipt": "r-1", "cents": cents}


@perdure.tool(on_crash="retry")
def lookup(customer: str) -> dict[str, Any]:
    return {"invoice": "i-7", "cents": 4200}


@perdure.agent(dict)
def support(run: Any, question: str) -> str:
    bill = lookup(run.state["customer"])
    with run.edit("billing known") as draft:
        draft["invoice"] = bill
    refund(bill["invoice"], bill["cents"])
    return "done"


@perdure.agent(dict)
def failing(run: Any) -> None:
    raise ValueError("no such \x1b[31minvoice")


def crash(store: perdure.Store, agent: str, key: str = "main") -> None:
    """Leave a run of `agent` with refund#1 in doubt."""
    global crashing
    crashing = True
    try:
        store.options(key=key).run(support, agent, "Where is my money?")
    except PowerLoss:
        pass
    finally:
        crashing = False


def fill(path: Path) -> None:
    with perdure.open(path) as store:
        agent = store.agent("ticket-42")
        with agent.edit("opened") as draft:
            draft.update(customer="c-7", status="pending", messages=[], price=Decimal("1.10"))
            draft["due"] = datetime(2026, 9, 1, tzinfo=UTC)
            draft["tags"] = {"vip"}
        for number in range(3):
            with agent.edit("message added", key=f"msg-{number}") as draft:
                draft["messages"].append({"role": "user", "content": f"Refund me {number}"})
        agent.checkpoint("before refund")
        store.run(support, "ticket-42", "Where is my money?")
        with agent.edit("closed") as draft:
            draft["status"] = "closed"
        branch = agent.fork("what-if", at=3)
        with branch.edit("another way") as draft:
            draft["status"] = "refused"
        agent.fork("gone")
        agent.delete_branch("gone")
        store.agent("ticket-43").save({"customer": "c-8"}, "opened")
        crash(store, "ticket-43")


class Operator:
    """Types commands on one store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def type(self, *words: str) -> Result:
        result: Any = CliRunner().invoke(app, [*words, "--store", str(self.path)])
        return result  # type: ignore[no-any-return]

    def see(self, *words: str) -> str:
        """What a command that must succeed prints."""
        result = self.type(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.see(*words, "--json"))

    def refused(self, *words: str) -> tuple[int, str]:
        """The exit code and stderr of a command that must fail, and print nothing on stdout."""
        result = self.type(*words)
        assert result.exit_code != 0, result.output
        assert result.stdout == ""
        return result.exit_code, result.stderr
