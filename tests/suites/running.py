"""Runs of a suite, and what came of each test."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.suites.internals import reason
from tests.suites.releases import ROOT, Environment, Suite

TEST_SECONDS_MAX = 120


@dataclass
class Verdict:
    """What came of a suite on one backend.

    Attributes:
        passed: how many tests passed.
        ours: what failed because of ours, with the end of its words. Empty: all is well.
        theirs: what fails with their own saver, too.
        internals: what looks at how their savers are made; failed.
        unsteady: what failed at first and passed when it ran alone.
    """

    suite: Suite
    version: str
    backend: str
    passed: int = 0
    skipped: int = 0
    ours: dict[str, str] = field(default_factory=dict)
    theirs: list[str] = field(default_factory=list)
    internals: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.suite.package} {self.version} on {self.backend}: {self.passed} passed, "
            f"{len(self.ours)} failed; {len(self.internals)} look into internals, "
            f"{len(self.theirs)} fail with theirs, too, {self.skipped} skipped"
            + (f", {len(self.unsteady)} passed when run again" if self.unsteady else "")
        )


class Runner:
    """Runs suites in one environment."""

    def __init__(self, environment: Environment, *, pinned: bool, workers: int = 2) -> None:
        self._environment = environment
        self._pinned = pinned
        self._workers = workers

    def judge(self, suite: Suite, backend: str, *, slow: bool = True) -> Verdict:
        """Run a suite with ours; what fails is run again, and what fails then, with theirs.

        Args:
            slow: its slow tests, too.
        """
        made = Verdict(suite, self._environment.version(suite.package), backend)
        without = [] if slow else [f"--ignore={path}" for path in suite.slow]
        outcomes = self._run(suite, [*suite.paths, *without], backend, self._workers)
        if not any(outcome == "passed" for outcome, _ in outcomes.values()):
            raise RuntimeError(f"nothing of {suite.package} ran")
        failed = {test: words for test, (outcome, words) in outcomes.items() if outcome == "failed"}
        made.internals = sorted(test for test in failed if reason(test))
        failed = {test: words for test, words in failed.items() if not reason(test)}
        if failed:
            again = self._run(suite, sorted(failed), backend, 0)
            still = [test for test in failed if again.get(test, ("failed",))[0] == "failed"]
            made.unsteady = sorted(failed.keys() - set(still))
            control = self._run(suite, sorted(still), "theirs", 0) if still else {}
            for test in still:
                if control.get(test, ("passed",))[0] == "failed":
                    made.theirs.append(test)
                else:
                    made.ours[test] = failed[test]
        made.skipped = sum(outcome == "skipped" for outcome, _ in outcomes.values())
        made.passed = sum(outcome == "passed" for outcome, _ in outcomes.values())
        made.passed += len(made.unsteady)
        return made

    def _run(
        self, suite: Suite, what: Sequence[str], backend: str, workers: int
    ) -> dict[str, tuple[str, str]]:
        """The outcome of each test, and its words."""
        folder = self._environment.unpacked(suite, pinned=self._pinned)
        with tempfile.TemporaryDirectory() as made:
            out, beside = Path(made) / "outcomes", Path(made) / "beside"
            beside.mkdir()
            # Their tests are a package of the same name as ours.
            (beside / "tests_of_perdure").symlink_to(ROOT / "tests")
            (beside / "in_their_place.py").symlink_to(Path(__file__).with_name("in_their_place.py"))
            environment = {
                **os.environ,
                "PERDURE_SUITE": backend,
                "PERDURE_OUTCOMES": str(out),
                "PYTHONPATH": f"{beside}:{ROOT / 'src'}",
                "NO_DOCKER": "true",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PERDURE_SUITE_WHOLE": "1" if suite.whole else "",
            }
            environment.pop("PYTEST_ADDOPTS", None)
            for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_CURRENT_TEST"):
                environment.pop(name, None)
            done = subprocess.run(
                [
                    self._environment.python,
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "in_their_place",
                    "-p",
                    "no:cacheprovider",
                    "-W",
                    "ignore",
                    "--tb=short",
                    "-n",
                    str(workers),
                    "--continue-on-collection-errors",
                    f"--timeout={TEST_SECONDS_MAX}",
                    *what,
                ],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            if not out.exists():
                raise RuntimeError(f"no test ran: {done.stdout[-3000:]}{done.stderr[-2000:]}")
            outcomes: dict[str, tuple[str, str]] = {}
            for line in out.read_text().splitlines():
                test, outcome, words = json.loads(line)
                if outcomes.get(test, ("",))[0] != "failed":
                    outcomes[test] = outcome, words
            return outcomes
