"""The demonstration from beginning to end: plan, perform, check, tell."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples.demo import check, display
from examples.demo.check import Check, count
from examples.demo.conductor import Conductor, Job, Story
from examples.demo.ledger import Line
from examples.migration import CACHES, plan
from perdure import PerdureError

KILLS = 20
KILLS_MIN = 10
BATCHES = 100
PLAIN_WIDTH = 120


@dataclass(frozen=True)
class Options:
    """What the environment asks for."""

    source: Path
    dest: Path | None
    kills: int
    seed: int
    skip: list[str]

    @classmethod
    def read(cls) -> Options:
        env = os.environ
        skip = list(CACHES)
        if not env.get("SOURCE"):
            skip.append("site-packages")  # lies inside the standard library, and may be huge
        return cls(
            Path(env.get("SOURCE") or sysconfig.get_path("stdlib")).resolve(),
            Path(env["DEST"]).resolve() if env.get("DEST") else None,
            _whole("KILLS", KILLS),
            _whole("SEED", random.randrange(10**6)),
            skip,
        )


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise SystemExit(f"{name}={text}: must be a whole number, 0 or more")
    return int(text)


def prepare(options: Options) -> Job:
    """A job of about a hundred batches.

    Raises:
        SystemExit: there is nothing to copy, or the destination is not empty.
    """
    source, dest = options.source, options.dest
    if not source.is_dir():
        there = "it is not a folder" if source.exists() else "it does not exist"
        raise SystemExit(f"SOURCE {source}: {there}")
    files = len(plan(str(source), 1, options.skip))  # outside of runs it is just a function
    if not files:
        raise SystemExit(f"SOURCE {source}: there are no files in it")
    if dest is not None:
        if dest.is_relative_to(source):
            raise SystemExit(f"DEST {dest}: lies inside SOURCE; name a folder outside of it")
        if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
            raise SystemExit(
                f"DEST {dest}: is not an empty folder, so nobody could tell what was copied; "
                "name one that is empty or new, or leave DEST out for a temporary one"
            )
    work = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    batch_files = -(-files // BATCHES)
    batches = -(-files // batch_files)
    return Job(source, dest or work / "dest", work, options.skip, batch_files, batches)


def left_out(source: Path, skip: list[str]) -> str:
    """What of the source is not copied, in words; empty if that is nothing."""
    links, skipped = 0, set()
    for folder, folders, names in os.walk(source):
        skipped |= set(folders) & set(skip)
        folders[:] = [name for name in folders if name not in skip]
        links += sum(os.path.islink(os.path.join(folder, name)) for name in folders + names)
    parts = [count(links, "symbolic link")] if links else []
    if skipped:
        parts.append("folders named " + " or ".join(sorted(skipped)))
    return " and ".join(parts)


def check_all(
    job: Job, story: Story, lines: list[Line], wanted: int
) -> tuple[list[Check], check.Log | None]:
    """Every check, also that there were as many kills as wanted; and the log, if it can be read."""
    same = len(set(story.results)) <= 1
    checks = [
        Check("no process failed, none was stuck", story.problems),
        check.check_outages(story, wanted),
        Check("all processes that came to the end gave one result", [] if same else story.results),
    ]
    source = check.tree_hashes(job.source, job.skip)
    checks.append(check.check_trees(source, check.tree_hashes(job.dest, [])))
    try:
        log = check.read_log(job.store)
    except (PerdureError, OSError) as error:
        return [*checks, Check("the log is whole: verify", [str(error)])], None
    checks.extend(check.check_log(job, log, lines, source))
    checks.append(Check(f"the log is whole: verify read {count(log.commits, 'commit')}", []))
    return checks, log


def tell_how_to_look(console: Console, job: Job) -> None:
    perdure = Path(sys.executable).parent / "perdure"
    program = os.path.relpath(perdure) if perdure.is_relative_to(Path.cwd()) else str(perdure)
    if not perdure.exists():
        program = "perdure"
    console.print("\n[bold]Look around:[/]")
    for command in ("log", "show", "verify"):
        line = shlex.join([program, "--store", str(job.store), command, check.AGENT])
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    console.print(
        f"\n{escape(where(job))}; remove {'it' if _all_in_one(job) else 'them'} when you have seen "
        "enough.",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )


def where(job: Job) -> str:
    """Where all of it is kept."""
    if _all_in_one(job):
        return f"Everything is kept in {job.work}"
    return f"The copy is in {job.dest}, all else in {job.work}"


def _all_in_one(job: Job) -> bool:
    return job.dest.is_relative_to(job.work)


def main() -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended politely, we tidy up, too
    options = Options.read()
    job = prepare(options)
    try:
        return perform(options, job, console)
    except KeyboardInterrupt:
        console.print(
            f"\nInterrupted. All processes are ended. {escape(where(job))}.",
            highlight=False,
            soft_wrap=True,
        )
        return 130


def perform(options: Options, job: Job, console: Console) -> int:
    """The performance and its checks; returns the exit status."""
    batches = count(job.batches, "batch", "batches")
    lines = [
        f"Copying {job.source} (the source is not touched)",
        f"to {job.dest}",
        f"in {batches} of up to {count(job.batch_files, 'file')}, "
        f"with {count(options.kills, 'kill')} (SEED={options.seed}).",
    ]
    if missing := left_out(job.source, job.skip):
        lines.append(f"Left out: {missing}.")
    console.print(escape("\n".join(lines)), highlight=False, soft_wrap=True)
    show = display.Display(job, options.kills, console)
    conductor = Conductor(job, options.kills, options.seed, show.tell)
    show.follow(conductor.story)
    began = time.monotonic()
    with show:
        story = conductor.play()
    seconds = time.monotonic() - began
    # In a handful of batches there is not room enough; then we say so below, and claim nothing.
    wanted = min(KILLS_MIN, options.kills) if job.batches >= BATCHES // 2 else 0
    with console.status("checking from outside …"):
        checks, log = check_all(job, story, conductor.ledger.lines, wanted)
    display.show_checks(console, checks)
    if log is not None:
        display.show_figures(console, check.figures(story, log, seconds))
    if story.finished and len(story.kills) < options.kills:
        console.print(
            f"\nKills that found their moment: {len(story.kills)} of {options.kills}. "
            f"The rest came too late for {batches}; a larger SOURCE gives them time.",
            style="yellow",
            highlight=False,
        )
    tell_how_to_look(console, job)
    failed = [one for one in checks if not one.holds]
    for one in failed:
        console.print(f"FAILED: {one.claim}", style="bold red", highlight=False, soft_wrap=True)
    return 1 if failed else 0
