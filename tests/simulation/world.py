"""The world outside, as simulated tools act on it: it keeps books, and obeys fencing tokens."""

from __future__ import annotations

from msgspec import Struct, field

import perdure


class Refused(Exception):
    """Somebody with a newer token has looked at this agent's affairs since."""


class Effect(Struct, frozen=True):
    """Something that was done. `op`: what it is in business terms; `key`: of the tool call."""

    op: str
    key: str
    token: int


class World(Struct):
    """See the module. Effects are in the order in which they were had."""

    effects: list[Effect] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """The effect's receipt, by the idempotency key that it was asked for with."""
    fences: dict[str, int] = field(default_factory=dict)
    asked: dict[str, set[str]] = field(default_factory=dict)
    """Idempotency keys by what was asked for under them."""

    def act(self, agent: str, op: str, key: str, token: int, *, keyed: bool) -> str:
        """Have the effect; what it gives.

        Args:
            keyed: a second request with the same key has no effect of its own.

        Raises:
            Refused: whoever asks was replaced, and its successor has looked here already.
        """
        self.asked.setdefault(op, set()).add(key)
        if keyed and key in self.keys:
            return self.keys[key]
        if token < self.fences.get(agent, 0):
            raise Refused(f"{op}: token {token} is old")
        self.effects.append(Effect(op, key, token))
        self.keys[key] = f"receipt for {op}"
        return self.keys[key]

    def look(self, agent: str, op: str, token: int) -> object:
        """What the effect gave, or NOT_DONE: then none with an older token will be had."""
        self.fences[agent] = max(token, self.fences.get(agent, 0))
        for effect in self.effects:
            if effect.op == op:
                return f"receipt for {op}"
        return perdure.NOT_DONE

    def had(self, op: str) -> int:
        """How often an effect was had."""
        return sum(effect.op == op for effect in self.effects)
