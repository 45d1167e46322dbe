"""The common part of commands that open a store: opening it, and finding what was named in it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer

import perdure
from perdure import Conflict, NotFound
from perdure.agents import Agent, Where
from perdure.cli.command_options import Settings
from perdure.cli.failures import UsageError
from perdure.core.arguments.names import DATE_LIKE, is_seq
from perdure.errors import Hint
from perdure.store import Store
from perdure.system import shell
from perdure.system.backoff import CHANCES_MAX, chances
from perdure.system.urls import shown as without_password
from perdure.types import AgentInfo
from perdure.visible import visible

T = TypeVar("T")

PAGE = 1000
NUMBER_MAX = 1_000_000_000
NAMES_COMPARED_MAX = 20_000
NAMES_SHOWN = 10

AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]
BranchOption = Annotated[
    str, typer.Option("--branch", "-b", metavar="NAME", help="The branch to work on.")
]


def number_option(what: str, limit: int, *more: str) -> Any:
    """Returns the option for the number of items to show; see `Session.shown_of`."""
    said = f"Number of {what}; 0: all. Default: {limit} for people, all with --json."
    return typer.Option("-n", "--number", *more, min=0, max=NUMBER_MAX, help=said)


WHERE_HELP = (
    "a commit's seq, the name of a checkpoint or branch, or a moment with its zone "
    "(2026-08-12T14:03:22+02:00, …Z)"
)
ShrinkOption = Annotated[
    bool,
    typer.Option(
        "--shrink",
        help="Return the space to the system. No other process can write in the meantime.",
    ),
]
CancelRunOption = Annotated[
    bool,
    typer.Option(
        "--cancel-run", help="If the branch has an unfinished run, end it, and the runs it started."
    ),
]


class Session:
    """One command at work on an open store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.json = settings.json
        self.say = settings.say
        named = settings.store if settings.shown else None
        self._shown = ["--store", without_password(named)] if named else []

    def shown_of(self, number: int | None, limit: int) -> int:
        """Returns the number of items to show, given that of `number_option`; 0: all."""
        return number if number is not None else (0 if self.json else limit)

    def command(self, name: str, *given: str, **options: str | bool) -> str:
        """Returns a perdure command for a person to paste: on the store of this command."""
        return self.pasted(shell.words(name, *given, **options))

    def pasted(self, words: Sequence[str]) -> str:
        """Returns the words of a perdure command, as `command`."""
        before = "--" in words  # behind it there are no options
        parts = [*self._shown, *words] if before else [*words, *self._shown]
        return shell.join(["perdure", *parts])

    # -- agents ----------------------------------------------------------------------------

    def all_agents(self, prefix: str = "") -> Iterator[AgentInfo]:
        after = ""
        while page := self.store.agents(prefix, after=after, limit=PAGE):
            yield from page
            after = page[-1].name

    def find(self, name: str, *, deleted_too: bool = False) -> AgentInfo:
        """Returns an existing agent: looking never creates one.

        Raises:
            NotFound: there is none; the error names similar ones.
        """
        info = self.store.find(name)
        if info is None:
            raise NotFound(
                "there is no such agent", target=f"agent {name!r}", hint=self._names_like(name)
            )
        if info.deleted and not deleted_too:
            stays = "its log stays: " + self.command("log", name, all=True)
            raise NotFound(
                "was deleted",
                target=f"agent {name!r}",
                hint="its log was purged" if info.purged else stays,
            )
        return info

    def find_with_runs(self, name: str) -> None:
        """Checks that an agent is there, was, or will be made by a requested run.

        Raises:
            NotFound: there is none; the error names similar ones.
        """
        if not self.store.runs(name, limit=1):
            self.find(name, deleted_too=True)

    def _names_like(self, name: str) -> str:
        names = [
            info.name for info, _ in zip(self.all_agents(), range(NAMES_COMPARED_MAX), strict=False)
        ]
        if not names:
            return "the store has no agents at all"
        close = close_names(name, names)
        if close:
            return f"did you mean {' or '.join(map(visible, close))}?"
        return f"`{self.command('ls')}` lists them"

    def agent(
        self, name: str, branch: str = "main", *, deleted_too: bool = False
    ) -> Agent[dict[str, Any]]:
        """Returns a handle on an existing branch.

        Raises:
            NotFound: no such agent, or no such branch.
        """
        info = self.find(name, deleted_too=deleted_too)
        agent = self.store.agent_of(info, branch=branch)
        if not info.deleted:
            names = [one.name for one in agent.branches() if not one.deleted]
            if branch not in names:
                raise NotFound(
                    f"has no branch {branch!r}",
                    target=f"agent {name!r}",
                    hint=f"there are: {', '.join(names)}",
                )
        return agent


def at_the_head(write: Callable[[], T]) -> T:
    """Makes a write that depends on the present head, and repeats it if others moved the head.

    Raises:
        Conflict: the head was moved every time; or another conflict.
    """
    for tried in chances():
        try:
            return write()
        except Conflict as error:
            if error.hint != Hint.HEAD_MOVED or tried == CHANCES_MAX - 1:
                raise
    raise AssertionError("unreachable")


def close_names(name: str, names: Sequence[str]) -> list[str]:
    """Returns up to three names that a person who typed `name` may have meant."""
    folded: dict[str, str] = {}
    for other in names:
        folded.setdefault(other.casefold(), other)
    wanted = name.casefold()
    found = difflib.get_close_matches(wanted, list(folded), n=3, cutoff=0.6)
    found += [other for other in folded if other.startswith(wanted) and other not in found]
    return [folded[other] for other in found[:3]]


def store_url(ctx: typer.Context) -> str:
    """Returns the store that the command line or the environment names.

    Raises:
        UsageError: neither does.
    """
    store = ctx.ensure_object(Settings).store
    if not store:
        raise UsageError("which store? Pass --store URL, or set PERDURE_STORE")
    return store


def refuse_memory(*urls: str | None) -> None:
    """Raises UsageError for a store that ends with this command."""
    for url in urls:
        if url is not None and url.startswith("memory:"):
            raise UsageError(
                f"{url} is in the memory of the process that opened it, which this command does "
                "not share, nor leave anything in; name a path, or sqlite:///path"
            )


def shrink(session: Session, done: str) -> None:
    """Gives free space back to the system. `done`: what the command has removed already."""
    try:
        session.store.shrink()
    except perdure.PerdureError as error:
        error.problem = f"{done}, but the space could not be given back: {error.problem}"
        raise


@contextmanager
def opened(ctx: typer.Context, *, create: bool = False) -> Iterator[Session]:
    """Gives the command's store, open; a typing error never creates one.

    Raises:
        UsageError: no store was named, or no backend knows its URL.
    """
    settings = ctx.ensure_object(Settings)
    url = store_url(ctx)
    refuse_memory(url)
    try:
        store = perdure.open(url, create=create)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with store:
        yield Session(store, settings)


def where(agent: Agent[Any], words: str) -> Where:
    """Returns what a person means by WHERE: digits are a seq, then names, then a moment.

    Raises:
        UsageError: a moment without a zone.
        NotFound: none of them; the error names what there is.
    """
    if is_seq(words):
        return int(words)
    branches = agent.branches()
    points = [point.name for point in agent.checkpoints()]
    if words in points or any(words == branch.name for branch in branches):
        return words
    known = [branch.name for branch in branches if not branch.deleted] + points
    if DATE_LIKE.match(words):
        try:
            at = datetime.fromisoformat(words)
        except ValueError:
            raise _nowhere(agent, words, known) from None
        if at.tzinfo is None:
            raise UsageError(
                f"{words!r} names no moment without a zone: {words}Z is UTC, or write +02:00"
                if "T" in words or " " in words
                else f"{words!r} is a day; a moment is written {words}T00:00:00Z, or with +02:00"
            )
        return at
    raise _nowhere(agent, words, known)


def _nowhere(agent: Agent[Any], words: str, known: list[str]) -> NotFound:
    names = ", ".join(known[:NAMES_SHOWN]) + (", …" if len(known) > NAMES_SHOWN else "")
    return NotFound(
        f"has no branch or checkpoint {words!r}",
        target=f"agent {agent.id!r}",
        hint=f"there are: {names}; or give a commit's seq as `log` shows it, or a moment with its "
        "zone "
        "(2026-08-12T14:03:22+02:00, …Z)",
    )
