"""`python -m tests.errnos`: let each system call of each workload fail, errno by errno."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.errnos.injecting import Fault, Injector
from tests.errnos.workloads import WORKLOADS
from tests.postgres.server import shared


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.errnos", description=__doc__)
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of all faults (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", help="one alone, as it was printed: pwrite64:error=EIO:when=3")
    parser.add_argument("--postgres", action="store_true", help="on a server, in place of a file")
    parser.add_argument("--shown", type=int, default=20)
    options = parser.parse_args()
    new_url = shared().new_url if options.postgres else None
    bad = number = 0
    for name in options.only.split(","):
        folder = Path(tempfile.mkdtemp(prefix="perdure-errnos-"))
        try:
            injector = Injector(WORKLOADS[name], folder, new_url)
            if options.fault:
                faults = [_parsed(options.fault)]
            else:
                faults = sorted(injector.faults(injector.calls()), key=str)
                rng = random.Random(options.seed)
                faults = rng.sample(faults, round(len(faults) * options.share))
            here = 0
            for fault in faults:
                number += 1
                if wrong := injector.violation(fault):
                    bad, here = bad + 1, here + 1
                    if here <= options.shown:
                        print(f"FAILED: {name} {fault}\n  {wrong}", flush=True)
            print(f"{name}: {len(faults)} faults, {here} violations", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{number} faults, {bad} violations")
    return 1 if bad else 0


def _parsed(words: str) -> Fault:
    call, error, when = (part.rpartition("=")[2] for part in words.split(":"))
    return Fault(call, int(when.rstrip("+")), error, when.endswith("+"))


if __name__ == "__main__":
    sys.exit(main())
