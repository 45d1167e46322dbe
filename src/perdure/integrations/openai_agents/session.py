"""Sessions of the SDK: a conversation as a Perdure agent, or as the state of a durable run."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

from agents import SessionSettings, TResponseInputItem

from perdure import AsyncRun
from perdure.agents import Where
from perdure.aio import AsyncAgent
from perdure.aio.unbuilt import LastItems, first_peek, peek, unread
from perdure.core.arguments.names import check_name
from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import Plain
from perdure.integrations.openai_agents import conversation
from perdure.integrations.openai_agents.conversation import (
    Conversation,
    Judge,
    check_schema,
    plain_items,
)
from perdure.integrations.openai_agents.stores import AnyStore, StoreSource
from perdure.model import MAIN, Branch

R = TypeVar("R")


def settings_of(given: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
    """Returns settings, which may be given as a mapping.

    Raises:
        TypeError: a name in it is not a setting; the SDK's class would ignore it.
    """
    if given is None or isinstance(given, SessionSettings):
        return given or SessionSettings()
    known = {one.name for one in fields(SessionSettings)}
    if unknown := sorted(map(str, given.keys() - known)):
        raise TypeError(
            f"Unknown session settings: {', '.join(unknown)}; there are: {', '.join(sorted(known))}"
        )
    return SessionSettings(**given)


@dataclass(frozen=True)
class Tail:
    """The newest items of a session, with a function that replaces some of them atomically.

    The SDK's compaction expects these names.

    Attributes:
        complete: True if there are no older items.
        replace_suffix: takes the first index to replace, and the new items; returns False, without
            a change, if these are no longer the newest items.
    """

    items: list[TResponseInputItem]
    complete: bool
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class Items(ABC):
    """The SDK's `Session` protocol over something that reads and changes a `Conversation`."""

    session_id: str
    session_settings: SessionSettings | None

    @abstractmethod
    async def _is_there(self) -> bool:
        """Returns True if the conversation exists: a look does not create it."""

    @abstractmethod
    async def _newest(self, limit: int | None) -> list[TResponseInputItem]:
        """Returns copies of the last items of the conversation as it is now; empty if there is
        none."""

    @abstractmethod
    async def _change(self, fn: Callable[[Conversation], R], what: str) -> R:
        """Returns the result of `fn`, with its changes made as one commit. It may be called several
        times."""

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The conversation, oldest item first, as of now. The items are the caller's own copies.

        Args:
            limit: only that many of the newest; default: `session_settings.limit`, or all.

        Raises:
            ValueError: a negative limit.
        """
        if limit is None and self.session_settings is not None:
            limit = settings_of(self.session_settings).limit  # somebody may have set a dict
        if limit is not None and limit < 0:
            raise ValueError(f"limit={limit}: None stands for all items, 0 for none")
        return await self._newest(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Appends items, all at once and in order; durable on return.

        Raises:
            Unstorable: an item is not plain data; names its place, and nothing was added.
            StoreUnavailable: see its `outcome`.
        """
        taken = plain_items(items)
        if not taken:
            await self._is_there()  # or it was closed: that is said also where nothing is to do
            return
        what = f"add {conversation.described(taken)}"
        await self._change(lambda draft: draft.items.extend(taken), what)

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes and returns the newest item; None if there is none. No two callers get the
        same."""
        if not await self._is_there():
            return None
        return await self._change(conversation.pop, "pop an item")

    async def clear_session(self) -> None:
        """Removes all items. The log keeps them: ``perdure undo`` brings them back."""
        if await self._is_there():
            await self._change(lambda draft: draft.items.clear(), "clear")

    def _transforms(self) -> bool:
        """Returns True if a subclass does more than store what it is given."""
        mine = type(self)
        return mine.add_items is not Items.add_items or mine.get_items is not Items.get_items

    # The SDK's compaction replaces a history by a shorter one. It asks for these two by name, and
    # without them clears and adds: a crash in between would leave an empty conversation.

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items as one commit; False where a subclass has to see them."""
        if self._transforms():
            return False
        taken = plain_items(items)
        what = f"compact to {conversation.described(taken) or 'nothing'}"
        await self._change(conversation.replace_all(taken), what)
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Judge | None = None, **_: Any
    ) -> Tail | None:
        """The newest items, and a way to replace them only if nobody added or took any.

        Args:
            prune_prefix: says which items have expired; of the oldest ones, these are removed in
                the same commit.
        """
        if self._transforms():
            return None
        found = await self._newest(limit + 1)
        items = found[max(0, len(found) - limit) :]

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected, taken = items[start:], plain_items(output)
            if not expected:
                return False
            what = f"compact {len(expected)} items to {conversation.described(taken) or 'nothing'}"
            return await self._change(
                conversation.replace_tail(expected, taken, prune_prefix), what
            )

        return Tail(items, complete=len(found) <= limit, replace_suffix=replace_suffix)


@dataclass
class LoopSession:
    """A session on one event loop.

    Attributes:
        turn: tasks come one after the other, in the order in which they asked, also where one has
            to open the store first or to try again because another process was faster.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    agent: AsyncAgent[Conversation] | None = None


class PerdureSession(Items):
    """A conversation that is kept as a Perdure agent, named by the session's id.

    Use it wherever the SDK takes a session: ``Runner.run(agent, text, session=session)``. Each
    `add_items`, `pop_item` and `clear_session` is one commit: atomic, durable on return, in the
    log. Others may write at the same time, in this process or another: no item is lost, and each
    batch stays together.

    Safe to share between tasks, threads and event loops, unless it was given an `AsyncStore`,
    which belongs to one loop. Sessions of one `url` share one open store; it is closed with the
    last of them, or when the process ends.

    Attributes:
        session_id: also the agent's name, e.g. in ``perdure log conversation-1``.
        session_settings: the SDK's; its `limit` is the default of `get_items`.
        branch: which branch of the conversation this is.
    """

    def __init__(
        self,
        session_id: str,
        url: str | os.PathLike[str] | None = None,
        *,
        store: AnyStore | None = None,
        branch: str = MAIN,
        schema: type[Conversation] | Schema[Any] = Conversation,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Makes a session. Nothing is opened or written before its first use.

        Args:
            session_id: any text of 1 to 200 characters.
            url: as for `perdure.open`: a path, ``sqlite:///path``, ``memory://``.
            store: an open store instead, which the caller closes.
            branch: one that `fork` made.
            schema: of the runs that keep this conversation in their own state (`RunSession`), where
                that is a subclass of `Conversation`.

        Raises:
            ValueError: an id that cannot name an agent.
            TypeError: neither or both of `url` and `store`; unknown settings; or another `schema`.
        """
        self.session_id = check_name(session_id, "a session")
        self.session_settings = settings_of(session_settings)
        self.branch = branch
        self._schema = check_schema(schema)
        self._source = StoreSource(f"session {session_id!r}", url, store)
        self._on_loops: dict[asyncio.AbstractEventLoop, LoopSession] = {}

    def __repr__(self) -> str:
        return f"<perdure session {self.session_id!r}, branch {self.branch!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Releases the store; later calls are refused. Idempotent."""
        await self._source.close()
        self._on_loops.clear()

    async def agent(self) -> AsyncAgent[Conversation]:
        """The conversation as an agent, for all else: its log, checkpoints, undo, diff.

        Raises:
            StoreUnavailable: the session is closed, or its store cannot be opened.
        """
        async with (here := self._here()).turn:
            agent = await self._agent(here)
            await agent.look()
            return agent

    def _here(self) -> LoopSession:
        self._source.check_open()
        loop = asyncio.get_running_loop()
        here = self._on_loops.get(loop)
        if here is None:
            for other in [other for other in list(self._on_loops) if other.is_closed()]:
                self._on_loops.pop(other, None)
            here = self._on_loops[loop] = LoopSession()
        return here

    async def _agent(self, here: LoopSession) -> AsyncAgent[Conversation]:
        if here.agent is None:
            store = await self._source.store()
            here.agent = await unread(store, self.session_id, self._schema, branch=self.branch)
        return here.agent

    async def fork(self, name: str, *, at: Where | None = None) -> PerdureSession:
        """Returns a session on a new branch of the conversation; it shares the past, and copies
        nothing.

        Args:
            name: of the branch; `PerdureSession(…, branch=name)` opens it again.
            at: a commit's seq, a checkpoint, or a moment; default: as it is now.

        Raises:
            NotFound: there is no such commit.
            Conflict: the name is taken.
        """
        await (await self.agent()).fork(name, at=at)
        return PerdureSession(
            self.session_id,
            self._source.url,
            store=self._source.given,
            branch=name,
            schema=self._schema,
            session_settings=self.session_settings,
        )

    async def branches(self) -> list[Branch]:
        """Returns all branches of the conversation, by name, including deleted ones."""
        return await (await self.agent()).branches()

    async def _is_there(self) -> bool:
        async with (here := self._here()).turn:
            agent = await self._agent(here)
            if not agent.exists:
                await agent.refresh()
            return agent.exists

    async def _newest(self, limit: int | None) -> list[TResponseInputItem]:
        def newest(state: Plain) -> list[TResponseInputItem]:
            return conversation.newest_plain(state, limit)

        async with (here := self._here()).turn:
            if here.agent is not None:
                return await peek(here.agent, newest)
            # Many a session is made for one request. One that is read again keeps all in memory.
            end = None if limit is None else LastItems("items", limit)
            if not self._source.is_unopened:
                return await peek(await self._agent(here), newest, end=end)
            here.agent, found = await first_peek(
                self._source.open,
                self.session_id,
                self._schema,
                newest,
                branch=self.branch,
                end=end,
            )
            return found

    async def _change(self, fn: Callable[[Conversation], R], what: str) -> R:
        results: list[R] = []
        async with (here := self._here()).turn:
            agent = await self._agent(here)
            await agent.update(lambda draft: results.append(fn(draft)), what)
        return results[-1]


class RunSession(Items):
    """The conversation of a durable run: the items are in the run's own state.

    With it, and with tools under `@perdure.tool`, an agent function may call the SDK's `Runner`:
    when it is replayed it sees the conversation as it was at that place, and adds nothing twice.

        @perdure.agent(Conversation)
        async def support(run: perdure.AsyncRun[Conversation], text: str) -> str:
            result = await Runner.run(assistant, text, session=RunSession(run))
            return result.final_output
    """

    def __init__(
        self,
        run: AsyncRun[Any],
        *,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            run: of an agent whose schema is `Conversation` or a subclass.
        """
        self.session_id = run.agent
        self.session_settings = settings_of(session_settings)
        self._run = run

    def __repr__(self) -> str:
        return f"<perdure session of run {self._run.id!r}>"

    async def _is_there(self) -> bool:
        return True

    async def _newest(self, limit: int | None) -> list[TResponseInputItem]:
        return conversation.newest(self._run.state, limit)

    async def _change(self, fn: Callable[[Conversation], R], what: str) -> R:
        async with self._run.edit(what) as draft:
            return fn(draft)
