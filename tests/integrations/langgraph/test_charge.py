"""The graph of examples/charge.py does what its page says, killed while it charges.

Savers keep what nodes returned, and nothing of what they began: a node that was interrupted
by a crash is called again. The bank is not, where the call is a durable run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import perdure
from tests.cli.operator import Operator

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "charge.py"
RUN = "call-1-of-order-7/charging/main"
WAIT_S = 60
THANKS = "Thank you, we have charged 4200 cents.\n"


def start(folder: Path, slowness_s: int, *options: str) -> subprocess.Popen[str]:
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), "--slowness", str(slowness_s), *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def charge(folder: Path, *options: str) -> tuple[int, str, str]:
    """Start the example once more: exit status, output, errors."""
    process = start(folder, 0, *options)
    out, errors = process.communicate(timeout=WAIT_S)
    return process.returncode, out, errors


def charge_and_die(folder: Path, *options: str) -> None:
    """kill -9, when the bank has charged and not answered. It would not answer for an hour."""
    process = start(folder, 3600, *options)
    try:
        ends = time.monotonic() + WAIT_S
        while not charges(folder):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < ends, "it did not charge"
            time.sleep(0.02)
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)
    assert process.returncode == -signal.SIGKILL


def charges(folder: Path) -> list[str]:
    """What the bank charged, whole lines of its ledger."""
    bank = folder / "bank.txt"
    return bank.read_text().split("\n")[:-1] if bank.exists() else []


def test_with_the_official_saver_the_card_is_charged_twice(tmp_path: Path) -> None:
    charge_and_die(tmp_path, "--official")
    assert charge(tmp_path, "--official")[:2] == (0, THANKS)
    assert charges(tmp_path) == ["order-7 4200", "order-7 4200"]


def test_with_perdure_it_is_charged_once_and_the_thread_is_readable(tmp_path: Path) -> None:
    charge_and_die(tmp_path)
    assert charge(tmp_path)[:2] == (0, THANKS)
    assert len(charges(tmp_path)) == 1

    operator = Operator(tmp_path / "orders.db")
    log = operator.see("log", "order-7", "--number", "0")
    assert "loop, step 3" in log
    assert "'@': 'ToolMessage', content: 'charged 4200 cents'" in log
    assert "Yes, I take the boots." in log
    with perdure.open(tmp_path / "orders.db") as store:
        found = store.find("order-7")
        assert found is not None
        last = next(one for one in store.agent_of(found).log() if one.cause.what == "loop, step 3")
    # How many commits there are depends on which writes came along with their checkpoint.
    diff = operator.see("diff", "order-7", str(last.seq - 1), str(last.seq))
    assert "+ state.values.messages[3] {'@': 'AIMessage', content: 'Thank you, we have" in diff
    assert "✓ order-7" in operator.see("verify", "order-7")
    assert "'charged 4200 cents'" in operator.see("effects", "call-1-of-order-7")


def test_where_the_bank_cannot_be_asked_the_run_says_that_it_is_in_doubt(tmp_path: Path) -> None:
    charge_and_die(tmp_path, "--ask")
    status, out, errors = charge(tmp_path, "--ask")
    assert (status, out) == (1, "")
    assert "NeedsAttention" in errors and "nobody knows whether it took effect" in errors
    assert len(charges(tmp_path)) == 1
    with perdure.open(tmp_path / "orders.db") as store:
        handle = store.handle(RUN)
        assert handle.status == "needs_attention"
        handle.settle("charge_blindly#1", done="charged 4200 cents", by="ann")
    assert charge(tmp_path, "--ask")[:2] == (0, THANKS)
    assert len(charges(tmp_path)) == 1
