"""The command `tree`: runs, those that started them, and those that they started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from msgspec import Struct
from rich.text import Text

from perdure import NotFound
from perdure.cli import plain
from perdure.cli.attention import run_status
from perdure.cli.attention import why as one_line
from perdure.cli.naming import find_run
from perdure.cli.runs import run_json
from perdure.cli.session import Session, number_option, opened
from perdure.cli.terminal import Screen, stdout_console, text
from perdure.types import RunInfo

LIMIT = 200
WIDTH_MIN = 20
BRANCH, LAST, STEM, BLANK = "├─ ", "└─ ", "│  ", "   "


class Family(Struct, frozen=True):
    """The runs of a store, by what they started."""

    by_id: Mapping[str, RunInfo]
    children: Mapping[str, Sequence[RunInfo]]

    @classmethod
    def of(cls, runs: Sequence[RunInfo]) -> Family:
        children: dict[str, list[RunInfo]] = {}
        for run in runs:
            if run.parent:
                children.setdefault(run.parent, []).append(run)
        return cls({run.id: run for run in runs}, children)

    def top(self, run: RunInfo) -> str:
        """Returns the id of the run that all began with; it may be gone, with its agent."""
        seen = {run.id}
        while run.parent and run.parent not in seen:
            seen.add(run.parent)
            if run.parent not in self.by_id:
                return run.parent
            run = self.by_id[run.parent]
        return run.id

    def below(self, top: str) -> Iterator[tuple[str, list[bool]]]:
        """Yields a run and all below it, each before those that it started; with, for each level
        down to it, whether it is the last there."""
        seen: set[str] = set()
        left: list[tuple[str, list[bool]]] = [(top, [])]
        while left:
            run, lasts = left.pop()
            if run in seen:  # a log that somebody made up
                continue
            seen.add(run)
            yield run, lasts
            kids = self.children.get(run, ())
            places = [(kid.id, [*lasts, kid is kids[-1]]) for kid in kids]
            left.extend(reversed(places))


def tree(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="AGENT|RUN", help="An agent, or the id of a run.")],
    number: Annotated[int | None, number_option("runs", LIMIT)] = None,
) -> None:
    """Show which runs started which: the whole tree that a run is in, or all trees with a run of an
    agent, and how each of them is doing.

    A run whose agent was deleted is shown by its id, if others name it as theirs.
    """
    with opened(ctx) as session:
        family = Family.of(session.store.runs())
        named = _named(session, family, name)
        tops = list(dict.fromkeys(family.top(run) for run in named))
        if session.json:
            plain.put_all(_json(session, family, top) for top in tops)
            return
        console = stdout_console()
        limit = session.shown_of(number, LIMIT)
        _print(console, session, family, tops, {run.id for run in named}, limit)


def _named(session: Session, family: Family, name: str) -> list[RunInfo]:
    """Returns the run of this id, or the runs of the agent.

    Raises:
        NotFound: there is neither; the error names similar ones.
    """
    if name in family.by_id:
        return [family.by_id[name]]
    found = [run for run in family.by_id.values() if run.agent == name]
    if found:
        return found
    if session.store.find(name) is not None:
        raise NotFound("has no runs", target=f"agent {name!r}", hint="`perdure ls` lists agents")
    return [find_run(session, name)]


def _print(
    console: Screen,
    session: Session,
    family: Family,
    tops: Sequence[str],
    named: set[str],
    limit: int,
) -> None:
    """Prints the trees, up to so many runs; 0: all."""
    nodes = (node for top in tops for node in family.below(top))
    for shown, (run, lasts) in enumerate(nodes):
        if limit and shown == limit:
            console.print(text(("… and more; -n 0 shows all", "dim")))
            return
        for line in _lines(console, session, family, run, lasts, named):
            console.print(line)


def _lines(
    console: Screen,
    session: Session,
    family: Family,
    run: str,
    lasts: list[bool],
    named: set[str],
) -> list[Text]:
    stems = "".join(BLANK if last else STEM for last in lasts[:-1])
    first = (LAST if lasts[-1] else BRANCH) if lasts else ""
    info = family.by_id.get(run)
    if info is None:
        return [text((stems + first, "dim"), run, ("  gone, with its agent", "dim"))]
    head = text((stems + first, "dim"), (run, "bold" if run in named else ""))
    reason = one_line(info, session)
    status = text(run_status(session, info), (f"  {reason}" if reason else "", "dim"))
    if not console.is_terminal or head.cell_len + 2 + status.cell_len <= console.width:
        return [text(head, "  ", status)]
    below = stems + ((BLANK if lasts[-1] else STEM) if lasts else "")
    below += STEM if family.children.get(run) else BLANK
    width = max(console.width - len(below), WIDTH_MIN)
    return [head, *(text((below, "dim"), line) for line in status.wrap(console, width))]


def _json(session: Session, family: Family, top: str) -> dict[str, Any]:
    """Returns a tree as JSON: each run with its `children`."""
    made: dict[str, dict[str, Any]] = {}
    for run, lasts in family.below(top):
        info = family.by_id.get(run)
        said = {"id": run, "gone": True} if info is None else run_json(session, info)
        made[run] = {**said, "children": []}
        if lasts and info is not None:
            made[info.parent]["children"].append(made[run])
    return made[top]
