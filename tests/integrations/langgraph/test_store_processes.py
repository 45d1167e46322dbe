"""Processes that write to one namespace, and one that is killed between puts."""

# mypy: disable-error-code="arg-type, union-attr"

import os
import signal
import subprocess
import sys

import perdure
from perdure.integrations.langgraph.store.memory_store import PerdureStore

SPACE = ("shared", "all")
WRITER = """
import sys
from perdure.integrations.langgraph.store.memory_store import PerdureStore
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with PerdureStore.from_url(url) as store:
    print("ready", flush=True)
    for number in range(count):
        store.put(("shared", "all"), f"{name}-{number}", {"n": number})
        store.put(("shared", "all"), "last", {"who": name, "n": number})
        assert store.get(("shared", "all"), f"{name}-{number}").value == {"n": number}
        print(number, flush=True)
"""


def start(url, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(url), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def test_two_processes_lose_nothing(tmp_path):
    url = tmp_path / "agents.db"
    with PerdureStore.from_url(url) as store:
        writers = [start(url, name, 40) for name in "ab"]
        for number in range(40):
            store.put(SPACE, f"here-{number}", {"n": number})
        for writer in writers:
            writer.communicate(timeout=120)
            assert writer.returncode == 0
        found = {item.key: item.value["n"] for item in store.search(SPACE, limit=1000)}
        last = found.pop("last")
        assert last == 39
        assert found == {
            f"{name}-{number}": number for name in ("a", "b", "here") for number in range(40)
        }
        cold = PerdureStore(store.store)
        assert cold.search((), limit=1000) == store.search((), limit=1000)
        store.store.agent_of(store.store.find("store:shared")).verify()


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    url = tmp_path / "agents.db"
    writer = start(url, "a", 1_000_000)
    assert writer.stdout is not None
    acknowledged = -1
    for line in writer.stdout:
        if line.strip() == "20":
            os.kill(writer.pid, signal.SIGKILL)
        if line.strip().isdigit():
            acknowledged = int(line)
    writer.wait(timeout=60)
    writer.stdout.close()
    with PerdureStore.from_url(url) as store:
        keys = {item.key for item in store.search(SPACE, limit=1_000_000)} - {"last"}
        assert keys >= {f"a-{number}" for number in range(acknowledged + 1)}
        assert len(keys) <= acknowledged + 2  # one more may have been under way
        assert keys == {f"a-{number}" for number in range(len(keys))}
        store.put(SPACE, "after", {"n": 0})
    with perdure.open(url) as again:
        again.agent_of(again.find("store:shared")).verify()
