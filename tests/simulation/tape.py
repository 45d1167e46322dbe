"""What happened in a simulation: a line for everything, and the calls that promises speak of."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from msgspec import Struct, field

from perdure.model import Message
from perdure.storage.appending import Append, Appended, Ref, Refused
from perdure.storage.capabilities import Sent
from tests.simulation.logs import UNKNOWN, Asked, Call, seen


class Tape(Struct):
    """`lines` are the history; `calls` are by agent, for the checker of logs."""

    lines: list[str] = field(default_factory=list)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    leases: list[tuple[int, str, int, str]] = field(default_factory=list)
    """Every lease that was given: agent's number, branch, epoch, executor."""
    agents: dict[int, str] = field(default_factory=dict)
    """Name and incarnation by the number that the store has for them."""
    _open: dict[int, tuple[str, Call]] = field(default_factory=dict)
    clock: int = 0
    """Numbers the moments at which calls begin and end."""
    counts: dict[str, int] = field(default_factory=dict)

    def say(self, now: int, who: object, *words: object) -> None:
        self.lines.append(f"{now} {who} " + " ".join(map(str, words)))

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def begin(self, agent: str, who: str, asked: Asked) -> int:
        """A call begins; gives what it is to be ended with."""
        began = self.tick()
        self._open[began] = agent, Call(who, began, 2**62, asked, UNKNOWN)
        return began

    def end(self, began: int, answer: Any) -> None:
        agent, call = self._open.pop(began)
        ended = self.tick()
        self.calls.setdefault(agent, []).append(Call(call.who, began, ended, call.asked, answer))

    def read(self, agent: str, who: str, began: int, asked: Asked, ref: Ref | None) -> None:
        """A call that read a branch ends."""
        call = Call(who, began, self.tick(), asked, seen(ref))
        self.calls.setdefault(agent, []).append(call)

    def histories(self) -> dict[str, list[Call]]:
        """The calls by agent, those too that have no answer yet."""
        found = {agent: list(calls) for agent, calls in self.calls.items()}
        for agent, call in self._open.values():
            found.setdefault(agent, []).append(call)
        return found

    def bytes(self) -> bytes:
        return "\n".join(self.lines).encode()

    @property
    def digest(self) -> str:
        return sha256(self.bytes()).hexdigest()


def short(value: object) -> str:
    """What a value is, in a line of a history."""
    match value:
        case Append():
            return (
                f"{value.agent}:{value.branch}@{value.seq}={sha256(value.header).hexdigest()[:12]}"
            )
        case Message():
            return f"{value.kind} {value.name} {value.key} to {value.run}"
        case Sent():
            return f"no {value.message.no}{'' if value.fresh else ' again'}"
        case Appended():
            return "in"
        case Refused():
            return value.why
        case BaseException():
            return f"{type(value).__name__}({getattr(value, 'outcome', '')})"
        case _:
            return sha256(repr(value).encode()).hexdigest()[:12]
