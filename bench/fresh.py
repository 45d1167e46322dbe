"""What is measured in a fresh process, which answers as JSON.

Nothing is imported up here but what an interpreter has loaded anyway: imports are a task.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # true to type checkers, without the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any


def fresh(task: str, argument: str, bytecode: Path) -> dict[str, object]:
    """Do a task in a new process, and return its answer.

    Compiled modules go to, and from the second process on come from, the folder `bytecode`: where
    this process may not write any, or the sources were just copied, we would time the compiler.
    """
    import json
    import subprocess

    import perdure

    folders = [os.path.dirname(os.path.dirname(file)) for file in (__file__, perdure.__file__)]
    known = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*folders, *([known] if known else [])]),
        "PYTHONPYCACHEPREFIX": str(bytecode),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ran = subprocess.run(
        [sys.executable, "-c", "import bench.fresh; bench.fresh.main()", task, argument],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, object] = json.loads(ran.stdout)
    return answer


def _use(name: str) -> None:
    """Import a module; of `perdure.open`, say, the package, and ask it for the name."""
    package, _, attribute = name.partition(".")
    if package == "perdure" and attribute and "." not in attribute:
        getattr(__import__(package), attribute)
    else:
        __import__(name)


def _import(names: str) -> dict[str, object]:
    cpu, start = time.process_time(), time.perf_counter()
    for name in names.split(", "):
        _use(name)
    return {"s": time.perf_counter() - start, "cpu": time.process_time() - cpu}


def _modules(names: str) -> dict[str, object]:
    before = set(sys.modules)
    for name in names.split(", "):
        _use(name)
    return {"modules": " ".join(sorted(set(sys.modules) - before))}


def _ours(path: str) -> dict[str, object]:
    import perdure
    from bench.workplace import Ticket

    __import__("perdure.storage.sqlite.backend")  # `open` would import it
    before = _resident()
    start = time.perf_counter()
    store = perdure.open(path)
    opened = time.perf_counter()
    agent = store.agent("a", Ticket)
    _ = agent.seq
    folded = time.perf_counter()
    state = agent.state
    built = time.perf_counter()
    resident = _resident()
    store.close()
    return {
        "s": built - start,
        "open": opened - start,
        "fold": folded - opened,
        "build": built - folded,
        "items": len(state.messages),
        "rss": resident,
        "grown": resident - before,
    }


def _plain(path: str) -> dict[str, object]:
    import msgspec

    __import__("bench.workplace")  # so that the same modules are in memory as in the others

    before = _resident()
    start = time.perf_counter()
    with open(path, "rb") as file:
        state = msgspec.msgpack.decode(file.read())
    took = time.perf_counter() - start
    resident = _resident()
    return {"s": took, "items": len(state["messages"]), "rss": resident, "grown": resident - before}


def _typed(path: str) -> dict[str, object]:
    import msgspec

    from bench.workplace import Ticket

    before = _resident()
    start = time.perf_counter()
    with open(path, "rb") as file:
        state = Ticket.model_validate(msgspec.msgpack.decode(file.read()))
    took = time.perf_counter() - start
    resident = _resident()
    return {"s": took, "items": len(state.messages), "rss": resident, "grown": resident - before}


def _straight(path: str) -> dict[str, object]:
    """Read, prove and inflate the leaves of a store's only agent, decode and validate them."""
    from hashlib import sha256

    import msgspec

    from bench.workplace import Ticket
    from perdure.core.format import envelope
    from perdure.storage.log.snapshots import SEAL_SIZE
    from perdure.storage.sqlite.connection import connect

    before = _resident()
    start = time.perf_counter()
    database = connect(path, synchronous="FULL", create=False)
    messages: list[object] = []
    for (data,) in database.execute("SELECT data FROM leaves"):
        if sha256(data[SEAL_SIZE:]).digest()[:SEAL_SIZE] != data[:SEAL_SIZE]:
            raise AssertionError("a leaf is damaged")
        messages += msgspec.msgpack.decode(envelope.open_envelope(data[SEAL_SIZE:], path))
    state = Ticket.model_validate({"customer": "c-7", "messages": messages})
    took = time.perf_counter() - start
    resident = _resident()
    database.close()
    return {"s": took, "items": len(state.messages), "rss": resident, "grown": resident - before}


def _session(path: str) -> dict[str, object]:
    from perdure.integrations.openai_agents import PerdureSession

    __import__("perdure.storage.sqlite.backend")  # `open` would import it
    return _read_session(lambda: PerdureSession("c", path))


def _their_session(path: str) -> dict[str, object]:
    from agents import SQLiteSession

    return _read_session(lambda: SQLiteSession("c", path))


def _read_session(opened: Callable[[], Any]) -> dict[str, object]:
    import asyncio

    async def read() -> dict[str, object]:
        start = time.perf_counter()
        session = opened()
        items = await session.get_items()
        took = time.perf_counter() - start
        closing = session.close()
        if closing is not None:
            await closing
        return {"s": took, "items": len(items)}

    return asyncio.run(read())


def _resident() -> int:
    """Bytes of memory that the process has now; where the system does not say, its peak."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


TASKS: dict[str, Callable[[str], dict[str, object]]] = {
    "import": _import,
    "modules": _modules,
    "ours": _ours,
    "plain": _plain,
    "typed": _typed,
    "straight": _straight,
    "session": _session,
    "their-session": _their_session,
}


def main() -> None:
    """What the new process does."""
    answer = TASKS[sys.argv[1]](sys.argv[2])

    import json

    print(json.dumps(answer))
