"""A commit's content and reason in words: its cause, its records, and each change on one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, UnsetType
from rich.text import Text

from perdure import Corrupt, NotFound, UnsupportedFormat
from perdure.cli.terminal import text
from perdure.cli.words import REMOVED, ago, count, full, moment, short
from perdure.core.format import records
from perdure.core.values import ops
from perdure.core.values.plain_values import Plain, format_path, look_up
from perdure.missing import MISSING
from perdure.model import UNTIL, Change, Commit, id_text

LINES_MAX = 6
"""Lines of changes under a commit in a log without -p."""

ITEMS_MAX = 3
"""Items of one append or splice that get a line each, without -p."""

SIGNS = {"+": "green", "-": "red", "~": "yellow"}
Say = Callable[[Any], str]


def unread(commit: Commit) -> Text:
    """Returns why a commit cannot be read."""
    what = (
        ("only a newer version can read it: ", "yellow")
        if commit.newer
        else ("damaged: ", "bold red")
    )
    return text(what, commit.damaged)


def cause_words(commit: Commit) -> Text:
    """Returns why the commit was made."""
    cause = commit.cause
    what, step = cause.what, cause.step or ""
    refers = ", ".join(map(str, cause.refers))
    match cause.kind:
        case "create":
            return text("created")
        case "edit" | "save":
            return text(what or "(no words)")
        case "fork":
            return text(("forked ", "magenta"), f"{what} from {refers}")
        case "rollback":
            named = "" if what == refers else f" ({what})"
            return text(("rolled back ", "magenta"), f"to {refers}{named}")
        case "adopt":
            return text(("adopted ", "magenta"), f"{what}, the state of {refers}")
        case "undo" | "redo" as kind:
            return text((f"{kind} ", "magenta"), f"of {refers}")
        case "checkpoint":
            return text(("checkpoint ", "magenta"), what)
        case "migrate":
            return text("state migrated to schema version ", _version(commit))
        case "delete-branch":
            return text(("branch deleted: ", "magenta"), what)
        case "delete":
            return text(("agent deleted", "bold red"))
        case "run-started":
            return text(("run started: ", "cyan"), what)
        case "run-finished":
            if _said(one.status for one in commit.typed if one.t == cause.kind) == "failed":
                return text(("run failed: ", "bold red"), what)
            return text(("run finished: ", "cyan"), what)
        case "run-stopped":
            return text(("run needs attention: ", "bold red"), what)
        case "run-cancelled":
            return text(("run cancelled", "cyan"), f": {what}" if what else "")
        case "settle":
            return text(("settled ", "magenta"), what)
        case "run-waiting":
            return _waiting(commit, what)
        case "run-resumed":
            return text(("run goes on: ", "cyan"), what)
        case "message-refused":
            problem = _said(one.problem for one in commit.typed if one.t == cause.kind)
            return text(("refused ", "bold red"), f"at {step or what}: {problem}")
        case "run-progress":
            said = _said(one.text for one in commit.typed if one.t == cause.kind)
            return text("says: ", said or what)
        case "intent":
            attempts = [one.attempt for one in commit.typed if one.t == cause.kind]
            return text("calls ", (step, "bold"), _again(", ", *attempts))
        case "outcome":
            return text("outcome of ", (step, "bold"))
        case "step":
            return text("step ", (step, "bold"))
        case kind:
            return text(kind, f" {what or step}" if what or step else "")


def _said(found: Iterable[Any]) -> str:
    """The first line of what the first record of a kind says."""
    return next(map(str, found), "").partition("\n")[0]


def _again(between: str, *attempts: int | UnsetType) -> str:
    """Of the last of several attempts, which it is."""
    attempt = max((one for one in attempts if one is not UNSET), default=1)
    return f"{between}attempt {attempt}" if attempt > 1 else ""


def _waiting(commit: Commit, what: str) -> Text:
    line = text(("run waits: ", "cyan"), what)
    waits = _said(one.waits for one in commit.typed if one.t == "run-waiting")
    return text(line, f"  {'' if waits.startswith(UNTIL) else 'for '}{waits}") if waits else line


def _version(commit: Commit) -> str:
    return f"{commit.schema_version[0]}.{commit.schema_version[1]}"


def headline(commit: Commit, *, heads: Mapping[int, list[str]], show_branch: bool) -> Text:
    """Returns ``12 user message added (main, before refund)``."""
    names = heads.get(commit.seq, [])
    line = text((f"{commit.seq:>5}", "bold yellow"), "  ", cause_words(commit))
    if show_branch:
        line = text(line, (f"  [{commit.branch}]", "blue"))
    if names:
        line = text(line, ("  (" + ", ".join(names) + ")", "bold green"))
    return line


def byline(commit: Commit) -> Text:
    """Returns when, by whom, and under which run and key."""
    cause = commit.cause
    parts = [f"{moment(commit.at)} ({ago(commit.at)})"]
    if cause.run:
        parts.append(f"run {cause.run}")
    if cause.key:
        parts.append(f"key {cause.key}")
    if cause.trace:
        parts.append(f"trace {cause.trace}")
    if cause.group:
        parts.append(f"group {cause.group}")
    parts += [f"#{tag}" for tag in cause.tags]
    return text((" " * 7 + " · ".join(parts), "dim"))


def provenance(commit: Commit) -> Text:
    """Returns, for -p, what proves the commit."""
    epoch = f" epoch {commit.epoch}" if commit.epoch else ""
    parents = ", ".join(map(str, commit.parents)) or "none"
    return text(
        (
            f"{' ' * 7}{id_text(commit.id)}\n{' ' * 7}parent {parents} · branch "
            f"{commit.branch} · schema {commit.schema_id} {_version(commit)} · "
            f"executor {commit.executor}{epoch}",
            "dim",
        )
    )


def _first(lines: list[Text]) -> list[Text]:
    if len(lines) <= LINES_MAX:
        return lines
    left = len(lines) - LINES_MAX + 1
    return [*lines[: LINES_MAX - 1], text((f"  … {left} more changes; -p shows all", "dim"))]


def line(sign: str, path: str, *rest: str) -> Text:
    return text((f"{sign} ", SIGNS[sign]), (path, "bold"), " ", *rest)


def _op_lines(op: ops.Op, before: Plain, say: Say, items_max: int | None) -> Iterator[Text]:
    path = format_path(op.path)
    match op:
        case ops.Set(path=()):
            old = "" if before is None else f"{say(before)} → "
            yield line("+" if before is None else "~", path, f"{old}{say(op.value)}")
        case ops.Set():
            old = _at(before, op.path)
            if old is MISSING:
                yield line("+", path, say(op.value))
            else:
                yield line("~", path, f"{say(old)} → {say(op.value)}")
        case ops.Delete():
            yield line("-", path, say(_at(before, op.path)))
        case ops.Append():
            start = len(_at(before, op.path))
            yield from _item_lines("+", op.path, start, op.values, say, items_max)
        case ops.Splice():
            gone = _at(before, op.path)[op.index : op.index + op.removed]
            yield from _item_lines("-", op.path, op.index, gone, say, items_max)
            yield from _item_lines("+", op.path, op.index, op.values, say, items_max)
        case ops.TextSplice():
            gone = _at(before, op.path)[op.index : op.index + op.removed]
            where = f"{path}[{op.index}:{op.index + op.removed}]"
            yield line("~", where, f"{say(gone)} → {say(op.text)}")
        case ops.Increment():
            old = _at(before, op.path)
            yield line("~", path, f"{say(old)} → {say(old + op.by)}")
        case ops.SetAdd():
            yield line("+", path, say(set(op.members)))
        case ops.SetRemove():
            yield line("-", path, say(set(op.members)))
        case ops.Move():
            yield line("~", f"{path}[{op.source}]", f"moved to [{op.target}]")


def _at(root: Plain, path: Iterable[Any]) -> Any:
    try:
        return look_up(root, path)
    except (LookupError, TypeError):
        return MISSING


def _item_lines(
    sign: str,
    path: tuple[Any, ...],
    start: int,
    items: list[Plain],
    say: Say,
    items_max: int | None,
) -> Iterator[Text]:
    for index, item in enumerate(items[:items_max], start):
        yield line(sign, format_path((*path, index)), say(item))
    if items_max is not None and len(items) > items_max:
        yield text((f"{sign} ", SIGNS[sign]), (f"… {len(items) - items_max} more items", "dim"))


def difference(change: Change, *, whole: bool = False) -> Text:
    """Returns one line of `perdure diff`."""
    say: Say = full if whole else short
    if change.kind == "added":
        return line("+", change.path, say(change.after))
    if change.kind == "removed":
        return line("-", change.path, say(change.before))
    keys = "keys " if change.kind == "reordered" else ""
    return line("~", change.path, f"{keys}{say(change.before)} → {say(change.after)}")


def record_lines(commit: Commit, *, whole: bool) -> list[Text]:
    """Returns what the commit's records say beyond its cause."""
    say: Say = full if whole else short
    return [made for record in commit.typed if (made := _record(record, say, whole)) is not None]


def _record(record: records.Record, say: Say, whole: bool) -> Text | None:
    place = record.place
    match record:
        case records.Started():
            return text(("▶ ", "cyan"), record.function, f"({record.preview})")
        case records.Intent():
            again = _again("  ", record.attempt)
            return text(("→ ", "cyan"), f"{place}({record.preview}){again}")
        case records.Outcome(t="step"):
            return text(("· ", "cyan"), f"{place}({record.preview}) ", *_result(record, say))
        case records.Outcome(t="outcome"):
            how = f"  by {record.by!s}" if record.by not in ("", "call") else ""
            said = f"  says {record.who!s}" if record.who else how
            return text(("← ", "cyan"), f"{place} ", *_result(record, say), (said, "magenta"))
        case records.WaitEnded():
            who = (f"  from {record.who}" if record.who else "", "magenta")
            if record.t == "message-refused":
                return text(("! ", "yellow"), f"{place} {record.problem!s}", who)
            return text(("← ", "cyan"), f"{place} ", *_result(record, say), who)
        case records.Cancelled():
            return text(("× ", "cyan"), f"{place} was cancelled")
        case records.Valued(t="value"):
            return text(("· ", "cyan"), f"{place} = {say(record.value)}")
        case records.Completed():
            value = record.value if record.input is None else record.input
            return text(("· ", "cyan"), f"{place or 'its arguments'} read as {say(value)}")
        case records.Finished():
            style = "green" if record.status == "done" else "red"
            return text(("■ ", "cyan"), (record.status, style), " ", *_result(record, say))
        case records.Stopped():
            problem = str(record.problem)
            return text(("! ", "bold red"), problem if whole else problem.partition("\n")[0])
        case records.Guarded() if record.changed:
            what = ", ".join(one for one, _, _ in record.changed)
            return text(("! ", "yellow"), f"its surroundings changed: {what}")
        case records.RunCancelled():
            return text(("■ ", "cyan"), f"cancelled {record.run}")
    return None


def _result(
    record: records.Outcome | records.Finished, say: Say
) -> tuple[tuple[str, str] | str, ...]:
    error = record.error
    if isinstance(record, records.Finished):
        error = record.value if record.status == "failed" else None
    elif record.came == "not done":
        return (("was not done", "yellow"),)
    if error is not None:
        kind = str(error["type"]).rpartition(":")[2]
        return (("raised ", "red"), f"{kind}: {error['text']}")
    return (f"→ {say(record.value)}",)


class Changes:
    """The deltas of commits in lines, for commits in rising order of seq.

    A change is shown with the value before it. A chain of commits costs one state and their deltas;
    a jump (a fork, a rollback) costs a fold.
    """

    def __init__(self, state_at: Callable[[int], Plain], *, whole: bool) -> None:
        self._state_at = state_at
        self._whole = whole
        self._seq = 0
        self._state: Plain = None

    def of(self, commit: Commit) -> list[Text]:
        """Returns the commit's changes, a line each."""
        if commit.trimmed:
            return [text((REMOVED, "dim"))]
        damage = [unread(commit)] if commit.damaged else []
        if not commit.foldable:
            self._seq = 0
            return damage
        if commit.delta and (commit.parent != self._seq or not self._seq):
            try:
                self._state = self._state_at(commit.parent) if commit.parent else None
            except (NotFound, Corrupt, UnsupportedFormat) as error:
                why = "retention removed" if isinstance(error, NotFound) else "cannot be read"
                what = count(len(commit.delta), "change")
                return [*damage, text((f"{what}, of a state that {why}", "dim"))]
            self._seq = commit.parent
        if commit.parent == self._seq:
            self._seq = commit.seq
        made: list[Text] = []
        say: Say = full if self._whole else short
        try:
            for op in commit.delta:
                made += _op_lines(op, self._state, say, None if self._whole else ITEMS_MAX)
                self._state = ops.apply(self._state, ops.own(op))
        except (ops.OpError, TypeError, LookupError) as error:
            self._seq = 0
            made.append(text(("damaged: ", "bold red"), f"a change does not fit: {error!s}"))
        return [*damage, *(made if self._whole else _first(made))]
