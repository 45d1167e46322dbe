"""Through a real PgBouncer in transaction mode: the whole contract, and agents that are woken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch.worker import Worker
from perdure.storage.capabilities import Backend
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing import BackendContract
from perdure.testing.contract.notices import NoticesContract
from tests.postgres.bouncer import Bouncer
from tests.postgres.server import Server, shared


@pytest.fixture(scope="module")
def bouncer() -> Iterator[Bouncer]:
    made = Bouncer(shared())
    yield made
    made.end()


class TestThroughABouncer(BackendContract):
    @pytest.fixture(autouse=True)
    def way(self, bouncer: Bouncer) -> None:
        self._bouncer = bouncer

    def open(self, place: Path) -> Backend:
        kept = place / "url"
        if not kept.exists():
            kept.write_text(self._bouncer.url(shared().new_url()))
        return PostgresBackend(kept.read_text())


for name in vars(NoticesContract):
    if name.startswith("test_"):  # no transaction pooler passes notices on
        setattr(TestThroughABouncer, name, None)


@perdure.step
def double(number: int) -> int:
    return 2 * number


@perdure.agent(dict)
def waiting(run: perdure.Run[dict[str, Any]]) -> int:
    return double(run.wait_for("number"))


def test_runs_are_claimed_and_woken_by_polling(
    server: Server, bouncer: Bouncer, caplog: pytest.LogCaptureFixture
) -> None:
    url = bouncer.url(server.new_url())
    with perdure.open(url) as store, perdure.open(url) as other:
        worker = Worker(store, [waiting], limit=4)
        thread = threading.Thread(target=worker.run, kwargs={"signals": False})
        thread.start()
        try:
            handles = [other.start(waiting, f"a{number}") for number in range(4)]
            for number, handle in enumerate(handles):
                handle.signal("number", number)
            assert [handle.result(timeout=60) for handle in handles] == [0, 2, 4, 6]
        finally:
            worker.stop()
            thread.join()
        for number in range(4):
            other.agent(f"a{number}").verify()
    said = [record for record in caplog.records if "pooler" in record.getMessage()]
    assert said, "nobody was told that nobody can LISTEN"
