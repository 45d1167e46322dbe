"""Examples of docs/reference/async.md; see tests/docs/reference.py."""

import asyncio

import perdure


@perdure.step
async def look_up(what: str) -> str:
    return f"{what} of c-7"


@perdure.agent(dict)
async def support(run: perdure.AsyncRun[dict], question: str) -> str:
    bill, history = await asyncio.gather(look_up("bill"), look_up("history"))
    async with run.edit("looked up") as draft:
        draft["bill"] = bill
    if await run.ask("Refund it?", timeout=0.02, default=False):
        return "refunded"
    return f"{bill}, {history}"


# %% open_async
async def opening() -> None:
    async with perdure.open_async("memory://") as store:
        assert await store.agents() == []


asyncio.run(opening())


# %% AsyncStore
async def storing() -> None:
    store = await perdure.open_async("memory://")
    assert await store.run(support, "ticket-42", "Where?") == "bill of c-7, history of c-7"
    assert [info.name for info in await store.agents("ticket-")] == ["ticket-42"]
    assert [run.status for run in await store.runs()] == ["done"]
    await store.close()


asyncio.run(storing())


# %% AsyncAgent
async def editing() -> None:
    async with perdure.open_async("memory://") as store:
        agent = await store.agent("ticket-42")
        async with agent.edit("opened", key="message-1") as draft:
            draft["status"] = "open"
        await agent.update(lambda state: state.update(tries=1), "a try")
        assert agent.state == {"status": "open", "tries": 1}
        what_if = await agent.fork("what-if", at=2)
        assert what_if.state == {"status": "open"}
        assert [commit.cause.what async for commit in agent.log()][1:] == ["opened", "a try"]
        await agent.undo()
        assert agent.state == {"status": "open"}


asyncio.run(editing())


# %% AsyncRun
@perdure.agent(dict)
async def many(run: perdure.AsyncRun[dict]) -> int:
    found: list[str] = await run.map(look_up, ["bill", "address", "history"], limit=2)
    assert await run.call(sorted, found) == sorted(found)  # a plain function, on a thread
    await run.sleep(0.01)
    first = await run.select(stop=perdure.Signal("stop"), late=perdure.Timer(0.01))
    assert first.name == "late"
    return len(found) if await run.wait_for("go on", timeout=0.01, default=True) else 0


async def running() -> None:
    async with perdure.open_async("memory://") as store:
        assert await store.run(many, "ticket-42") == 3


asyncio.run(running())


# %% AsyncRunHandle
@perdure.agent(dict)
async def collect(run: perdure.AsyncRun[dict]) -> int:
    cents: int = await run.wait_for("cents", schema=int)
    return cents


async def signalling() -> None:
    async with perdure.open_async("memory://") as store:
        handle = await store.start(collect, "till")
        assert await handle.status() == "pending"
        await handle.signal("cents", 500, by="ada")
        assert await store.run(collect, "till") == 500
        assert await handle.result() == 500
        assert (await handle.report()).questions == []


asyncio.run(signalling())
