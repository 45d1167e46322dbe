"""Names and values that people type for runs: a run, several by a filter, a length of time, a
value."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, get_args

import typer
from msgspec import Struct

from perdure import Conflict, NotFound
from perdure.cli import plain
from perdure.cli.failures import UsageError
from perdure.cli.session import Session, close_names
from perdure.cli.words import ago, moment
from perdure.model import RunStatus
from perdure.types import Question, RunInfo
from perdure.visible import visible

AGE_MAX = 100
"""Characters of a length of time: looking for its parts takes time with the square of them."""

RUNS_NAMED = 5
RUNS_COMPARED_MAX = 2000
STATUSES: tuple[str, ...] = get_args(RunStatus)
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its id, as `runs` shows it; or an agent's name, if only one "
        "of its runs can be meant.",
    ),
]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Ids, or names of agents with one unfinished run."),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="All runs that match the filters, instead of RUN.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="WHO", help="Your name; default: your login.")
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", "-a", metavar="AGENT", help="Only runs of this agent.")
]
StatusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help=f"Only runs with one of {', '.join(STATUSES)}; may be repeated.",
    ),
]
FunctionOption = Annotated[
    str | None, typer.Option("--function", "-f", metavar="NAME", help="Only runs of this function.")
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", "-q", metavar="NAME", help="Only runs in this queue.")
]
OlderOption = Annotated[
    str | None,
    typer.Option(
        "--older", metavar="AGE", help="Only runs that began longer ago, e.g. 90s, 15m, 2h, 7d."
    ),
]
NewerOption = Annotated[
    str | None, typer.Option("--newer", metavar="AGE", help="Only runs that began more recently.")
]


class Filter(Struct, frozen=True):
    """A filter for runs."""

    agent: str | None = None
    status: tuple[str, ...] = ()
    function: str | None = None
    queue: str | None = None
    older: timedelta | None = None
    newer: timedelta | None = None
    unfinished: bool = False
    parent: str | None = None

    @classmethod
    def of(
        cls,
        agent: str | None,
        status: Sequence[str] | None,
        function: str | None,
        queue: str | None,
        older: str | None,
        newer: str | None,
        *,
        unfinished: bool = False,
    ) -> Filter:
        """Returns the filter that the options describe.

        Raises:
            UsageError: an unknown status, or not a length of time.
        """
        said = tuple(one.replace("-", "_").replace(" ", "_").lower() for one in status or ())
        for one in said:
            if one not in STATUSES:
                close = close_names(one, STATUSES)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(STATUSES)}"
                raise UsageError(f"--status {one}: {hint}")
        return cls(
            agent, said, function, queue, age("--older", older), age("--newer", newer), unfinished
        )

    @property
    def narrow(self) -> bool:
        """True if it leaves anything out."""
        return self != Filter()

    def find(self, session: Session, *, limit: int = 0) -> list[RunInfo]:
        """Returns the newest matching runs, oldest first; 0: all.

        Raises:
            NotFound: there is no such agent.
        """
        if self.agent is not None:
            session.find_with_runs(self.agent)
        by_store = self.queue is None and self.older is None and self.newer is None
        found = session.store.runs(
            self.agent,
            unfinished=self.unfinished,
            status=self.status or None,  # type: ignore[arg-type]
            function=self.function,
            parent=self.parent,
            limit=limit if limit and by_store else None,
            newest_first=True,
        )
        chosen = [run for run in found if self._takes(run)]
        return list(reversed(chosen[:limit] if limit else chosen))

    def _takes(self, run: RunInfo) -> bool:
        passed = datetime.now(UTC) - run.started_at
        return (
            (self.queue is None or run.queue == self.queue)
            and (self.older is None or passed > self.older)
            and (self.newer is None or passed <= self.newer)
        )


def age(option: str, words: str | None) -> timedelta | None:
    """Returns a length of time: ``90s``, ``15m``, ``2h``, ``7d``, ``1w``, or several of them,
    ``1h30m``.

    Raises:
        UsageError: it is not one.
    """
    if words is None:
        return None
    short = words.strip().lower() if len(words) <= AGE_MAX else ""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", short)
    whole = "".join(number + unit for number, unit in parts)
    if (
        not parts
        or whole != re.sub(r"\s", "", words.lower())
        or any(u not in UNITS for _, u in parts)
    ):
        raise UsageError(
            f"{option} {words!r:.60}: a length of time is written 90s, 15m, 2h, 7d or 1w"
        )
    try:
        return timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise UsageError(f"{option} {words!r}: that is too long") from None


def find_run(session: Session, name: str) -> RunInfo:
    """Returns the run of an id; or of an agent's name, if it has one unfinished run, or only one at
    all.

    Raises:
        NotFound: there is none; the error names similar ids.
        Conflict: the agent has several runs that can be meant.
    """
    try:
        return session.store.handle(name).info
    except NotFound:
        pass
    meant = session.store.runs(name, unfinished=True)
    meant = meant or session.store.runs(name, newest_first=True, limit=RUNS_NAMED + 1)[::-1]
    if len(meant) == 1:
        return meant[0]
    if meant:
        many = f"{len(meant)}" if len(meant) <= RUNS_NAMED else "several"
        raise Conflict(
            f"has {many} runs that can be meant",
            target=f"agent {name!r}",
            hint="say which: " + ", ".join(visible(run.id) for run in meant[-RUNS_NAMED:]),
        )
    some = session.store.runs(newest_first=True, limit=RUNS_COMPARED_MAX)
    close = close_names(name, [run.id for run in some] + [run.agent for run in some])
    hint = f"`{session.command('runs')}` lists them"
    if close:
        hint = f"did you mean {' or '.join(map(visible, close))}?"
    raise NotFound("there is no such run", target=f"run {name}", hint=hint)


def begun(run: RunInfo, *, short: bool = False) -> str:
    """Returns when it began, or was requested; empty if an old store does not say."""
    if not run.started_at_micros:
        return ""
    at = run.started_at
    return ago(at) if short else moment(at)


# -- values ---------------------------------------------------------------------------------

WORDS = re.compile(r"[^\W\d_][^\"{}\[\]]*")
MISLEADING = ("none", "null", "true", "false", "nan", "infinity", "undefined")
PLACEHOLDERS = ("JSON", "VALUE", "NAME")
"""Words of hints and of --help, for which something is to be put in."""

YES, NO = ("yes", "y"), ("no", "n")


def value_of(what: str, words: str) -> Any:
    """Returns a value as a person types it: JSON; or words that can only be text.

    Raises:
        UsageError: it is neither.
    """
    try:
        held = json.loads(words)
    except (ValueError, RecursionError) as error:
        if words in PLACEHOLDERS:
            raise UsageError(
                f"{what}: replace {words} by the value itself, e.g. 5, '\"text\"' or null"
            ) from error
        if WORDS.fullmatch(words) and words.lower() not in MISLEADING:
            return words
        raise UsageError(
            f"{what} {words!r:.60} is not JSON ({error}); text is written '\"like this\"', "
            "nothing is null"
        ) from error
    try:
        return plain.from_json(held)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: {error}") from error


def answer_of(question: Question, words: str) -> Any:
    """Returns an answer as a person types it, by the requested type: yes and no for a boolean, and
    text as it is."""
    kind = question.schema.get("type")
    if kind == "boolean" and words.lower() in (*YES, *NO):
        return words.lower() in YES
    if kind == "string":
        try:
            held = json.loads(words)
        except (ValueError, RecursionError):
            return words
        return held if isinstance(held, str) else words
    return value_of("VALUE", words)


def login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in a container
        return ""
