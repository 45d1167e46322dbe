"""Runs of the SDK that wait for approval: saved by one process, resumed by another."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4

from agents import Agent, RunContextWrapper, RunState
from agents.items import ToolApprovalItem

from perdure.aio import AsyncAgent
from perdure.core.arguments.checks import flag
from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import take
from perdure.errors import Conflict, NotFound
from perdure.integrations.openai_agents.conversation import (
    Conversation,
    SavedRun,
    check_schema,
)
from perdure.integrations.openai_agents.stores import AnyStore, StoreSource
from perdure.model import MAIN

AnyState = RunState[Any, Agent[Any]]


@dataclass(frozen=True)
class ContextCodec:
    """Functions that write a run's context and build it again, if it is not a mapping.

    Attributes:
        serialize: returns a mapping; the SDK's ``context_serializer``.
        deserialize: takes it; the SDK's ``context_deserializer``.
    """

    serialize: Callable[[Any], Mapping[str, Any]]
    deserialize: Callable[[Mapping[str, Any]], Any]


class PerdureRunStates:
    """Keeps one interrupted run for each conversation, beside its items.

    They are in the agent of that name, so a `PerdureSession` of the same id and store has both in
    one log, and a fork of it has both, too. A conversation without a session may have one as well.

        result = await Runner.run(agent, "Refund order 7", session=session)
        if result.interruptions:
            await states.save("conversation-1", result.to_state())

    and, when a person has decided, in any process:

        state = await states.take("conversation-1", agent)
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(agent, state, session=session)

    Stores are shared as with `PerdureSession`.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        store: AnyStore | None = None,
        branch: str = MAIN,
        schema: type[Conversation] | Schema[Any] = Conversation,
        context: ContextCodec | None = None,
    ) -> None:
        """
        Args:
            url, store, branch, schema: as for `PerdureSession`.
            context: for runs whose context is an object; without one it must be a mapping or None.

        Raises:
            TypeError: neither or both of `url` and `store`; or another `schema`.
        """
        self._source = StoreSource("run states", url, store)
        self._branch = branch
        self._schema = check_schema(schema)
        self._context = context

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Releases the store; later calls are refused. Idempotent."""
        await self._source.close()

    async def save(self, conversation_id: str, state: AnyState) -> None:
        """Saves a run, in place of the one saved before; durable on return.

        Raises:
            ValueError: an id that cannot name an agent.
            agents.UserError: its context is an object, and no `context` was given.
            TypeError: something in it has no JSON form.
        """
        codec = self._context
        text = state.to_string(
            context_serializer=codec.serialize if codec else None, strict_context=True
        )
        waiting = [_call(item) for item in state.get_interruptions()]
        saved = SavedRun(uuid4().hex, take(json.loads(text)), waiting)

        def put(draft: Conversation) -> None:
            draft.run_state = saved

        agent = await self._agent(conversation_id)
        await agent.update(put, f"run waits for approval: {', '.join(waiting) or 'nothing'}"[:500])

    async def load(
        self,
        conversation_id: str,
        agent: Agent[Any],
        *,
        context: RunContextWrapper[Any] | Mapping[str, Any] | None = None,
    ) -> AnyState | None:
        """Returns the run that waits, for inspection; None if there is none, or it was taken.

        Args:
            agent: the one that the run was started with, built anew.
            context: replaces the saved one.

        Raises:
            agents.UserError: the saved run does not fit `agent`.
        """
        saved = await self._saved(conversation_id)
        return None if saved is None or saved.taken else await self._build(saved, agent, context)

    async def take(
        self,
        conversation_id: str,
        agent: Agent[Any],
        *,
        again: bool = False,
        context: RunContextWrapper[Any] | Mapping[str, Any] | None = None,
    ) -> AnyState:
        """Returns the run that waits, to resume it: of several callers, one gets it.

        A process that took it and died may have called its tools, so it is not given out again
        unless `again` is set.

        Args:
            again: take it although it was taken, if you know the outcome of its tool calls.
            agent, context: as for `load`.

        Raises:
            NotFound: no run waits there.
            Conflict: it was taken already; the message says when.
        """
        flag(again, "again=")
        while True:
            saved = await self._saved(conversation_id)
            if saved is None:
                raise NotFound(
                    "no run waits for approval", target=f"conversation {conversation_id!r}"
                )
            if saved.taken and not again:
                raise Conflict(
                    f"the run was taken at {saved.taken.isoformat()}",
                    target=f"conversation {conversation_id!r}",
                    hint="where that process died, find out what its tools did; then "
                    "take(…, again=True), or clear it",
                )
            state = await self._build(saved, agent, context)
            if await self._mark(conversation_id, saved):
                return state

    async def clear(self, conversation_id: str) -> None:
        """Forget the run that waits or was taken; the log keeps it."""

        def remove(draft: Conversation) -> None:
            draft.run_state = None

        if await self._saved(conversation_id) is not None:
            await (await self._agent(conversation_id)).update(remove, "no run waits any more")

    async def _mark(self, conversation_id: str, saved: SavedRun) -> bool:
        """Marks a run as taken; returns True if it was unchanged since it was read."""
        ours: list[bool] = []

        def mark(draft: Conversation) -> None:
            kept = draft.run_state
            ours.append(kept is not None and kept.id == saved.id and kept.taken == saved.taken)
            if ours[-1] and kept is not None:
                kept.taken = datetime.now(UTC)

        await (await self._agent(conversation_id)).update(mark, "run is taken")
        return ours[-1]

    async def _agent(self, conversation_id: str) -> AsyncAgent[Conversation]:
        store = await self._source.store()
        return await store.agent(conversation_id, self._schema, branch=self._branch)

    async def _saved(self, conversation_id: str) -> SavedRun | None:
        agent = await self._agent(conversation_id)
        return deepcopy(agent.state.run_state)

    async def _build(
        self,
        saved: SavedRun,
        agent: Agent[Any],
        context: RunContextWrapper[Any] | Mapping[str, Any] | None,
    ) -> AnyState:
        codec = self._context
        return await RunState.from_json(
            agent,
            saved.state,
            context_override=dict(context) if isinstance(context, Mapping) else context,
            context_deserializer=codec.deserialize if codec else None,
            strict_context=context is None,
        )


def _call(item: ToolApprovalItem) -> str:
    """A call that waits, for people: ``refund {"order": 7}``."""
    text = f"{item.name or 'a tool'} {item.arguments or ''}".strip()
    return text[:200].encode("utf-8", "replace").decode()
