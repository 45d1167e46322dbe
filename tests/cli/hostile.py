"""A store in which whatever may have a name has a hostile one, and all that there is to type on it:
`python -m tests.cli.hostile FOLDER EACH`: every EACH-th line; 1: all of them, in minutes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import perdure
from perdure.cli.app import app
from perdure.testing import run_until_waiting
from tests.cli.lines import lines

HOSTILE = "-e\x1b]0;pwned\x07\x9b2J\r\n\t\x7f\u202e\u2066\u200b\u2028[red]x[/red]:smile:'`$!\\"
"""A title, a clearing of the screen, ends of lines, marks of direction, markup, quoting."""

UNEXPECTED = 1


class PowerLoss(BaseException):
    """Ends a tool between its intent and its outcome."""


@perdure.tool(name="tool" + HOSTILE)
def pay(what: str) -> str:
    if what.startswith("crash"):
        raise PowerLoss
    return what


@perdure.step(name="step" + HOSTILE)
def look(what: dict[str, str]) -> dict[str, str]:
    return what


@perdure.agent(dict, name="agent" + HOSTILE)
def hostile(run: perdure.Run[Any], way: str) -> str:
    look({HOSTILE: HOSTILE})
    run.progress(HOSTILE, 0.5)
    with run.edit("edit" + HOSTILE) as draft:
        draft[HOSTILE] = HOSTILE
    match way:
        case "ask":
            run.ask("question" + HOSTILE, schema=str)
        case "wait":
            run.wait_for("signal" + HOSTILE)
        case "fail":
            raise ValueError(HOSTILE.replace("\n", ""))
        case "children":
            run.start(hostile, "child" + HOSTILE, "ask").result()
    pay(way + HOSTILE)
    return HOSTILE


WAYS = ("ask", "wait", "fail", "children", "crash", "end")


def fill_hostile(path: Path) -> dict[str, str]:
    """Make the store; gives the ids of its runs, by what they came to."""
    runs: dict[str, str] = {}
    with perdure.open(path) as store:
        agent = store.agent(HOSTILE)
        with agent.edit(HOSTILE, key=HOSTILE, tags=[HOSTILE]) as draft:
            draft.update(customer=HOSTILE, **{HOSTILE: HOSTILE})
        with agent.edit(HOSTILE, tags=[HOSTILE]) as draft:
            draft["number"] = 1
        agent.checkpoint("point" + HOSTILE)
        agent.fork("branch" + HOSTILE)
        options = store.options(key="key" + HOSTILE, queue="queue" + HOSTILE)
        for way in WAYS:
            with suppress(PowerLoss, ValueError, perdure.PerdureError):
                run_until_waiting(options, hostile, way + HOSTILE, way)
            (runs[way],) = (run.id for run in store.runs() if run.agent == way + HOSTILE)
        options.start(hostile, "queued" + HOSTILE, "end")
        store.handle(runs["ask"]).signal("unheard" + HOSTILE, HOSTILE, by="by" + HOSTILE)
        store.agent("gone" + HOSTILE).save({HOSTILE: 1}, "begun")
        store.delete("gone" + HOSTILE)
    return runs


def words_for(folder: Path, runs: dict[str, str]) -> Iterator[dict[str, str]]:
    """For `lines`: what is there, by each of its names; and what is not."""
    common = {
        "prefix": "",
        "number": "9",
        "at": "2",
        "a": "1",
        "b": "2",
        "dependency": HOSTILE,
        "status": "waiting",
        "parent": runs["ask"],
        "function": "agent" + HOSTILE,
        "queue": "queue" + HOSTILE,
        "older": "0s",
        "newer": "1d",
        "value": '"value"',
        "by": "by" + HOSTILE,
        "key": "k" + HOSTILE,
        "words": HOSTILE,
        "effects": "reuse",
        "done": '"done"',
        "not_done": "",
        "anchor": "0" * 64,
        "before": "2",
        "fork before": "run" + HOSTILE,
        "after": "run" + HOSTILE,
        "turns": "1",
        "older_than": "0s",
        "start function": "tests.cli.operator:support",
        "arguments": HOSTILE,
        "named": "question=" + HOSTILE,
        "deadline": "1h",
        "time_limit": "1h",
        "initial": '{"customer": "c"}',
        "timeout": "0s",
        "output": str(folder / ("out" + NAMED)),
        "until": "2",
        "file": str(folder / ("none" + NAMED)),
        "source": str(folder / "now.db"),
        "target": str(folder / ("to" + NAMED)),
        "restore at": "2100-01-01T00:00:00Z",
        "promote source": str(folder / "now.db"),
        "import-langgraph source": str(folder / HOSTILE),
        "thread": HOSTILE,
        "types": HOSTILE,
        "step": f"tool{HOSTILE}#1",
        "call": f"tool{HOSTILE}#1",
        "question": "question" + HOSTILE,
        "of_agent": "ask" + HOSTILE,
        "to": "point" + HOSTILE,
        "agent": HOSTILE,
        "branch": "branch" + HOSTILE,
        "name": "name" + HOSTILE,
    }
    yield {**common, "run": runs["ask"]}
    yield {**common, "run": runs["crash"], "agent": "crash" + HOSTILE, "branch": "main", "to": "2"}
    yield dict.fromkeys(common, "-none" + HOSTILE) | {"run": HOSTILE}


NAMED = HOSTILE.replace("/", "")
"""Of a file."""


def main() -> None:
    folder, each = Path(sys.argv[1]), int(sys.argv[2])
    runs = fill_hostile(folder / "agents.db")
    unexpected: list[str] = []
    known = [line for words in words_for(folder, runs) for line in lines(words)]
    for given in [way for line in known for way in (line, ["--json", *line])][::each]:
        shutil.copy(folder / "agents.db", folder / "now.db")
        try:
            app(["--store", str(folder / "now.db"), *given])
        except SystemExit as end:
            if end.code == UNEXPECTED:
                unexpected.append(ascii(given))
    for way in runs:
        for command in ("show", "why"):
            with suppress(SystemExit):
                app(["--store", str(folder / "agents.db"), "run", command, "--", runs[way]])
    (folder / "unexpected").write_text("\n".join(unexpected))


if __name__ == "__main__":
    main()
