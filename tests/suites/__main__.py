"""Runs the released suites of agent frameworks with ours in the place of their savers and stores.

``make compat`` takes the newest releases, on all backends; with ``--pinned`` the pinned ones.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.suites.internals import reason
from tests.suites.releases import SUITES, newest, pinned
from tests.suites.running import Runner

BACKENDS = ("memory", "sqlite", "postgres")


def main() -> int:
    asked = argparse.ArgumentParser(prog="make compat", description=__doc__)
    asked.add_argument("--pinned", action="store_true", help="the pinned releases")
    asked.add_argument("--only", choices=[one.package for one in SUITES], help="one suite")
    asked.add_argument(
        "--backend", choices=(*BACKENDS, "theirs"), help="one backend; theirs: the control run"
    )
    asked.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    given = asked.parse_args()
    runner = Runner(
        pinned() if given.pinned else newest(), pinned=given.pinned, workers=given.workers
    )
    bad = False
    for suite in SUITES:
        for backend in (given.backend,) if given.backend else BACKENDS:
            if given.only in (None, suite.package):
                found = runner.judge(suite, backend)
                print(found.line(), flush=True)
                for test in found.internals:
                    print(f"    internals: {test}: {reason(test)}")
                for test in (*found.theirs, *found.unsteady):
                    print(f"    not ours: {test}")
                for test, words in found.ours.items():
                    bad = True
                    print(f"    FAILED: {test}\n{words}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
