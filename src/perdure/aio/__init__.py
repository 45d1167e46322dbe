"""The async face: what `perdure.open` gives, for coroutines. Thin, typed delegation.

    async with perdure.open_async("agents.db") as store:
        agent = await store.agent("ticket-42", Ticket)
        async with agent.edit("user message added") as draft:
            draft.messages.append(message)

Reading runs on the store's own threads; commits ride on the same committer as those of threads,
and waiting for one holds no thread. Everything else (rules, errors, the log) is the same.
"""

from perdure.aio.agent import AsyncAgent, AsyncEdit
from perdure.aio.runs import AsyncOptions, AsyncRunHandle
from perdure.aio.store import AsyncStore, Opening, open_async

__all__ = [
    "AsyncAgent",
    "AsyncEdit",
    "AsyncOptions",
    "AsyncRunHandle",
    "AsyncStore",
    "Opening",
    "open_async",
]
