"""`python -m tests.chaos --kills 2000 --seed 1`: rounds of chaos until so many were killed; with
`--moves MINUTES`, lives of stores that agents are moved between."""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.chaos.monkey import ChaosError, Outcome, round_of_chaos
from tests.chaos.moves import MovesError, lives

ROUND_KILLS = 250


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=2000, help="SIGKILLs in all (%(default)s)")
    parser.add_argument("--seed", default="", help="of the first round; default: a new one")
    parser.add_argument("--rounds", type=int, default=6, help="work of each agent (%(default)s)")
    parser.add_argument("--copies", type=int, default=2, help="agents of each kind (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where the stores are; they are kept then")
    parser.add_argument(
        "--moves",
        type=float,
        metavar="MINUTES",
        help="instead, for so long: agents are restored, exported, imported, replicated, promoted "
        "and migrated while others write, by processes that are killed",
    )
    parser.add_argument(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="where the agents are: with postgres, a private server, which is killed, too",
    )
    options = parser.parse_args()
    seed = options.seed or secrets.token_hex(4)
    base = options.folder or Path(tempfile.mkdtemp(prefix="perdure-chaos-"))
    base.mkdir(parents=True, exist_ok=True)
    if options.store == "postgres":
        base.chmod(0o755)  # the server of root runs as another user
    print(f"seed {seed}, in {base}", flush=True)
    if options.moves is not None:
        return _move(base, seed, options)
    total, began, number = Outcome(), time.monotonic(), 0
    while total.kills < options.kills:
        name = f"{seed}-{number}" if number else seed
        left = min(ROUND_KILLS, options.kills - total.kills)
        try:
            outcome = round_of_chaos(
                base / str(number),
                name,
                left,
                copies=options.copies,
                rounds=options.rounds,
                postgres=options.store == "postgres",
            )
        except ChaosError as error:
            print(f"FAILED with seed {name} after {total.kills} kills:\n{error}", file=sys.stderr)
            print(f"what is left of it: {base / str(number)}", file=sys.stderr)
            return 1
        number += 1
        for part in ("kills", "pauses", "servers", "runs", "effects", "repeated"):
            setattr(total, part, getattr(total, part) + getattr(outcome, part))
        print(
            f"round {number}: {outcome.kills} killed, {outcome.pauses} paused, "
            f"{outcome.servers} ends of the server, "
            f"{outcome.runs} runs, {outcome.effects} effects in {outcome.seconds:.0f} s; "
            f"{total.kills} killed in all",
            flush=True,
        )
    print(
        f"{total.kills} killed and {total.pauses} paused in {time.monotonic() - began:.0f} s, "
        f"and the server {total.servers} times; "
        f"{total.runs} runs, all done; {total.effects} effects, {total.repeated} of them repeated, "
        "all where that was allowed",
    )
    if options.folder is None:
        shutil.rmtree(base)
    return 0


def _move(base: Path, seed: str, options: argparse.Namespace) -> int:
    logging.disable(logging.CRITICAL)
    until = time.monotonic() + 60 * options.moves
    try:
        counts = lives(base, seed, options.store, until)
    except MovesError:
        traceback.print_exc()
        return 1
    for name, count in sorted(counts.items()):
        print(f"{name:30} {count}")
    if options.folder is None:
        shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
