"""`python -m tests.fuzz`: fuzz all that reads foreign bytes, each target for its share of the time.

Why a fuzzer of our own: what reads bytes here is msgspec, zstd and SQLite, in C that nobody
instruments, and thin Python behind lengths, digests and hash chains. Damages that know msgpack, and
chains made right again behind them, come to that Python; coverage of lines hardly helps, as it has
few branches. What helps, and is cheap, is to go on from inputs that raised an error elsewhere than
all before: `child.py` does that. It needs nothing that the other tests do not need.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.fuzz.inputs import CORPUS, pack, short_name
from tests.fuzz.table import TARGETS, spec
from tests.fuzz.watching import Report, fuzz

WORDS_MAX = 4000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200, help="for all targets together")
    parser.add_argument("--seed", default="", help="default: by chance, and printed")
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--keep", action="store_true", help="put what finds a bug into the corpus")
    options = parser.parse_args()
    seed = options.seed or str(random.randrange(1 << 32))
    chosen = [name for name in TARGETS if options.only in name]
    print(f"seed {seed}: {len(chosen)} targets", flush=True)
    reports = {}
    for name in chosen:
        began = time.monotonic()
        report = reports[name] = fuzz(spec(name), seed=seed, seconds=options.seconds / len(chosen))
        _tell(name, report, time.monotonic() - began, keep=options.keep)
    findings = sum(len(report.findings) for report in reports.values())
    tried = sum(report.executions for report in reports.values())
    print(f"{tried:,} inputs, {findings} findings")
    return 1 if findings or not chosen else 0


def _tell(name: str, report: Report, seconds: float, *, keep: bool) -> None:
    print(
        f"{name}: {report.executions:,} inputs, {report.ends} ends, {len(report.findings)} findings"
        f" ({seconds:.0f} s)",
        flush=True,
    )
    for finding in report.findings:
        print(f"\n{finding.kind} {finding.where}\n{finding.words[-WORDS_MAX:]}")
        print(f"input {short_name(finding.parts)}: {pack(finding.parts).hex()[:2000]}", flush=True)
        if keep:
            path = CORPUS / name / f"found-{short_name(finding.parts)}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pack(finding.parts))


if __name__ == "__main__":
    sys.exit(main())
