"""Families of runs in time, in stores that were filled from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import replication
from perdure.errors import TimedOut
from perdure.testing import run_until_waiting
from tests.engine.test_restored_mail import now
from tests.engine.test_time_limits_of_families import BOTH, begin, ends, family
from tests.engine.waits import HOUR, Clock


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    return f"sqlite:///{tmp_path / 'from.db'}", f"sqlite:///{tmp_path / 'to.db'}"


@pytest.mark.parametrize("began", [True, False])
@pytest.mark.parametrize("way", ["restore", "import", "follow"])
def test_a_copy_knows_what_time_is_left(
    urls: tuple[str, str], clock: Clock, began: bool, way: str
) -> None:
    """Also of a child that was asked for, and had not begun."""
    with perdure.open(urls[0]) as store:
        run_until_waiting(store.options(deadline=HOUR, time_limit=3 * HOUR), family, "a")
        if began:
            begin(store, "bound")
        moment = now(store)
        if way == "import":
            with perdure.open(urls[1]) as target:
                for info in store.agents():
                    target.import_log(store.export_log(info))
    if way == "restore":
        replication.restore(*urls, moment)
    elif way == "follow":
        with replication.following(*urls) as follower:
            follower.step()
        replication.promote(*reversed(urls))
    with perdure.open(urls[1]) as store:
        said = store.handle("a/family/main").why()
        assert said.time_limit is not None and said.deadline is not None
        begin(store, "bound")
        clock.forward(HOUR + 1)
        begin(store, "bound")
        assert ends(store).get("bound") == "failed"


@BOTH
def test_a_child_in_a_copy_ends_with_a_parent_whose_time_was_up(
    urls: tuple[str, str], clock: Clock, how: str
) -> None:
    """Its parent's last commit had told it so; that message is in no log. Where the logs were
    imported the child worked on."""
    options: dict[str, Any] = {how: HOUR}
    with perdure.open(urls[0]) as store, perdure.open(urls[1]) as target:
        store.options(**options).start(family, "a")
        run_until_waiting(store, family, "a")
        begin(store, "bound", "detached")
        clock.forward(HOUR + 1)
        with pytest.raises(TimedOut):
            run_until_waiting(store, family, "a")
        for info in store.agents():
            target.import_log(store.export_log(info))
        inbox = target.runner.context.backend.inbox
        assert [one.run for one in inbox(kind="cancel")] == ["bound/waiting/bound"]
