"""The whole of it: controls, and then cuts until there are enough, a new server every few."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

from tests.powerloss.lossy.folder import obstacle
from tests.powerloss.postgres.cuts import AS_IT_IS, CONTROLS, SPARED, Outcome, cut

ROUND_CUTS = 10


def cut_servers(pool: Executor, base: Path, seed: int, cuts: int) -> list[str]:
    """Print what comes of it; the promises that were broken, and controls that found nothing."""
    print("under PostgreSQL:", flush=True)
    if why := obstacle():
        print(f"not tried: {why}", flush=True)
        return []
    base.chmod(0o755)  # the server of root runs as another user
    found = []
    ways = CONTROLS | SPARED
    asked = {
        name: pool.submit(cut, base, f"{seed} {name}", ROUND_CUTS, ways[name]) for name in ways
    }
    for name, answer in asked.items():
        outcome = answer.result()
        broken = "; ".join(" ".join(one.split())[:200] for one in outcome.violations[:2])
        print(f"control: {name}: {outcome}" + (f": {broken}" if broken else ""), flush=True)
        if bool(outcome.violations) != ways[name].control:
            found.append(f"control {name}: " + (broken or "BLIND: something should be found"))
    total, rounds = Outcome(), range(0, cuts, ROUND_CUTS)
    answers = [
        pool.submit(cut, base, f"{seed} {place}", min(ROUND_CUTS, cuts - place), AS_IT_IS)
        for place in rounds
    ]
    for number, answer in enumerate(answers, 1):
        total.add(answer.result())
        print(f"{number} of {len(answers)} servers: {total}", flush=True)
    return found + total.violations
