"""The outcomes as a Markdown table, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.crash import card
from bench.crash.contestants import CONTESTANTS, Contestant
from bench.crash.trial import FAILS, STAYS, Outcome, Seen

HEAD = [
    "contestant",
    "the company",
    *card.MOMENTS,
    "in place of a write",
    "charged twice",
    "not finished",
    "doubt told",
]
LEGEND = """\
*once*, *twice*, *not*: how often the card was charged, by the company's ledger; where no more is
said, the run finished, and nobody heard of a doubt. *asks*: the run waits, and says for whom and
for what; after the arrow, how it ended when that person had looked. *error*: the run ended with an
error that names the doubt. The last three columns count trials."""
TIMES = {0: "not", 1: "once", 2: "**twice**"}
WORDS = {card.FINISHED: "", card.ASKS: ", asks", card.DOUBTS: ", error"}
TOLD = (card.ASKS, card.DOUBTS)


def cell(outcome: Outcome) -> str:
    """One outcome in words."""
    text = _words(outcome.seen)
    return f"{text} → {_words(outcome.settled)}" if outcome.settled else text


def _words(seen: Seen) -> str:
    times = TIMES.get(seen.charges, f"**{seen.charges} times**")
    return times + WORDS.get(seen.status, f", {seen.status}")


def markdown(found: Mapping[str, Sequence[Outcome]], missing: Mapping[str, str]) -> str:
    """Who could not take part is below the table, with the reason."""
    rows = [_row(which, found[which.name]) for which in CONTESTANTS if which.name in found]
    widths = [max(len(row[column]) for row in [HEAD, *rows]) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in [HEAD, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    absent = [f"- {name} is left out: {why}" for name, why in missing.items()]
    return "\n".join([*lines, "", LEGEND, *([""] if absent else []), *absent])


def _row(which: Contestant, outcomes: Sequence[Outcome]) -> list[str]:
    real = [outcome for outcome in outcomes if outcome.killed]
    moments = {outcome.kill.moment: cell(outcome) for outcome in real if outcome.kill.moment}
    writes = Counter(cell(outcome) for outcome in real if outcome.kill.write)
    summed = "; ".join(f"{text} ×{count}" for text, count in writes.most_common())
    twice = sum(_last(outcome).charges > 1 for outcome in real)
    stuck = sum(_last(outcome).status in (STAYS, FAILS, card.ASKS) for outcome in real)
    told = sum(outcome.seen.status in TOLD for outcome in real)
    counts = [f"{count} of {len(real)}" for count in (twice, stuck, told)]
    cells = [moments.get(moment, "") for moment in card.MOMENTS]
    return [which.title, which.receiver, *cells, summed, *counts]


def _last(outcome: Outcome) -> Seen:
    return outcome.settled or outcome.seen


def write_json(
    path: Path,
    found: Mapping[str, Sequence[Outcome]],
    missing: Mapping[str, str],
    about: Mapping[str, Any],
) -> None:
    """All outcomes, each with what was said, and the writes that were counted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes = {name: [asdict(outcome) for outcome in each] for name, each in found.items()}
    data = {"about": dict(about), "outcomes": outcomes, "left_out": dict(missing)}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
