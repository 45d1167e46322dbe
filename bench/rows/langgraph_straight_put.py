"""The least that a `put` can cost in Python: its necessary work in a straight line.

Look whether each of the messages is the very object of before, encode, compress and hash the new
one, one transaction of three statements, its sync, a look whether the files are still ours. Nothing
that was changed in place is looked for, no writes come along, no sibling, race or snapshot is
thought of. No saver in Python that writes such a log can go below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from operator import is_not
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.rows import langgraph_savers as lg
from bench.rows.langgraph_straight import APPEND, SET
from bench.rows.straight import Line, writing
from perdure.integrations.langgraph.values.thread_names import checkpoint_key

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import Checkpoint

KEY = "INSERT INTO keys (agent_no, key, seq, asked) VALUES (1, ?, ?, x'')"


@contextmanager
def puts_in_a_straight_line(
    path: Path, messages: list[BaseMessage]
) -> Iterator[Callable[[Checkpoint], None]]:
    """Put checkpoints of one more message each behind the last one of a thread, each durably, and
    prove the log at the end. `messages`: those that the thread has, which were put before."""
    with lg.ours(path) as saver:
        info = saver.store.find(lg.THREAD)
        assert info is not None
        last = saver.store.agent_of(info).commit(info.seq)
    known, key, seq = list(messages), "", last.seq
    with writing(path) as commit:
        line = Line(last, lambda at, _, head, body: commit(at, head, body, (KEY, (key, at))))

        def put(made: Checkpoint) -> None:
            nonlocal key, seq
            given = made["channel_values"]["messages"]
            if any(map(is_not, given, known)):
                raise AssertionError("others than the last one are new")
            message, step = given[-1], len(given)
            known.append(message)
            key = checkpoint_key("", made["id"], 1)
            at = round(datetime.fromisoformat(made["ts"]).timestamp() * 1_000_000)
            plain = {"@": "HumanMessage", "content": message.content, "id": message.id}
            delta: list[Any] = [
                [APPEND, ["values", "messages"], [plain]],
                [SET, ["seen", "work", "messages"], step - 1],
                [SET, ["versions", "messages"], step],
            ]
            record = {"t": "lg", "p": seq, "a": at, "u": True, "m": ["loop", step]}
            line.append(delta, [record], ["save", {"w": f"loop, step {step}", "k": key}])
            seq += 1

        yield put
    _prove(path, line, known)


def _prove(path: Path, line: Line, known: list[BaseMessage]) -> None:
    with lg.ours(path) as saver:
        info = saver.store.find(lg.THREAD)
        assert info is not None
        line.prove(saver.store.agent_of(info))
        found = saver.get_tuple(lg.config())
        assert found is not None
        if found.checkpoint["channel_values"]["messages"] != known:
            raise AssertionError("the straight line writes something else than checkpoints")
