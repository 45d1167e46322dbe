"""The pinned suites of LangGraph and LangChain, as released, on SQLite; `make compat` runs more."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.suites.releases import ROOT, SUITES, pinned
from tests.suites.running import Runner


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.package)
def test_what_passes_with_their_savers_passes_with_ours(suite):
    """Of LangGraph's own tests 84 of 1,982 failed: texts and classes were refused that its savers
    keep."""
    # Half of the time of the largest one is spent in sleeps of its tests.
    workers = 2 if suite.package == "langgraph" else 0
    found = Runner(pinned(), pinned=True, workers=workers).judge(suite, "sqlite", slow=False)
    assert not found.ours, found.line() + "\n" + "\n".join(map(": ".join, found.ours.items()))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_agent_with_an_answer_of_a_schema_outlives_its_process(how, tmp_path):
    """`create_agent(response_format=Model)` with a checkpointer failed out of the box: nobody had
    registered its model."""
    said = []
    for act in ("begin", "resume", "look"):
        done = subprocess.run(
            [pinned().python, Path(__file__).with_name("an_agent.py"), act, how, "threads.db"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        said.append(done.stdout.strip())
    answer = "Answer(text='done', lines=[Line(name='a', mood=<Mood.BAD: 'bad'>)])"
    assert said == ["Line(name='pay?', mood=<Mood.GOOD: 'good'>)", answer, answer]
