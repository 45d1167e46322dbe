"""Public data is plain to pydantic, to web frameworks, and to JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import perdure
import perdure.replication
import perdure.testing
import perdure.types
from perdure.public_data import PublicData
from perdure.store import Store
from perdure.types import AgentInfo, Commit, RunInfo, RunReport, Verified
from tests.engine.waits import go

CALLED_WITH = frozenset({"ChildEnd", "Expiry"})
"""Structs that are no data: what calls are made with."""


def data_types() -> list[Any]:
    found = [getattr(perdure.types, name) for name in perdure.types.__all__]
    found += [getattr(perdure.testing, name) for name in perdure.testing.__all__]
    found += [one for one in vars(perdure.replication).values() if isinstance(one, type)]
    found.append(perdure.Cause)
    structs = {one for one in found if isinstance(one, type) and issubclass(one, msgspec.Struct)}
    structs = {one for one in structs - {msgspec.Struct} if one.__name__ not in CALLED_WITH}
    return sorted(structs, key=lambda one: one.__name__)


@pytest.mark.parametrize("cls", data_types())
def test_all_public_data_has_a_schema(cls: Any) -> None:
    assert issubclass(cls, PublicData)
    adapter: TypeAdapter[Any] = TypeAdapter(cls)
    for mode in ("validation", "serialization"):
        schema = adapter.json_schema(mode=mode)
        assert not [name for name in schema["properties"] if name.endswith("_micros")]


@perdure.tool(on_crash="retry")
def look_up(number: int) -> int:
    return number


@perdure.agent(dict)
def support(run: perdure.Run[dict], number: int) -> Any:
    found = look_up(number)
    with run.edit("begins") as draft:
        draft["number"] = found
    run.progress("half", 0.5)
    return run.ask("Refund?", timeout=timedelta(days=1), default=False)


@pytest.fixture
def waiting(store: Store) -> perdure.RunHandle[Any]:
    before = datetime.now(UTC)
    assert go(store, support, "a", 7) is None
    handle = store.handle("a/support/main")
    handle.signal("late", {"at": before})
    return handle


def test_what_a_store_says_goes_through_json_and_back(
    store: Store, waiting: perdure.RunHandle[Any]
) -> None:
    agent = store.agent("a")
    found: list[Any] = [
        waiting.info,
        *waiting.questions(),
        *waiting.effects(),
        agent.verify(),
        store.find("a"),
        *agent.branches(),
        *agent.log(),
        agent.checkpoint("here", dependencies=["msgspec"]),
        *agent.diff(1, 2),
        store.purge(),
    ]
    for one in found:
        adapter: TypeAdapter[Any] = TypeAdapter(type(one))
        made = adapter.dump_json(one)
        back = adapter.validate_json(made)
        if not isinstance(one, Commit):  # whose typed records are the library's own
            assert back == one
        assert adapter.dump_json(back) == made
        assert adapter.validate_python(one) is one
        json.loads(made)


def test_a_report_is_one_document(waiting: perdure.RunHandle[Any]) -> None:
    report = waiting.report()
    said = json.loads(TypeAdapter(RunReport).dump_json(report))
    assert said["info"]["status"] == "waiting"
    assert said["why"]["ways"][0]["command"][0] == "answer"
    assert [one["name"] for one in said["inbox"]] == ["late"]
    assert said["notes"][0]["fraction"] == 0.5
    assert "branches" not in said["events"][0]


def test_times_are_datetimes_in_utc(store: Store, waiting: perdure.RunHandle[Any]) -> None:
    """A run's times were numbers, of microseconds since 1970; an endpoint that returned them said
    `"started_at": 1784000000000000`."""
    info = waiting.info
    assert info.started_at <= info.changed_at < datetime.now(UTC) + timedelta(days=1)
    assert info.wake_at is not None
    assert timedelta(hours=23) < info.wake_at - info.started_at < timedelta(hours=25)
    assert {one.tzinfo for one in (info.started_at, info.changed_at, info.wake_at)} == {UTC}
    (message,) = waiting.report().inbox
    assert message.at.tzinfo is UTC and message.at >= info.started_at
    dumped = TypeAdapter(RunInfo).dump_python(info)
    assert dumped["started_at"] == info.started_at and "started_at_micros" not in dumped
    said = json.loads(TypeAdapter(RunInfo).dump_json(info))
    assert datetime.fromisoformat(said["wake_at"]) == info.wake_at
    go(store, support, "b", 1)
    store.handle("b/support/main").cancel()
    assert store.handle("b/support/main").info.wake_at is None


def test_values_that_json_lacks_become_text_and_lists(store: Store) -> None:
    agent = store.agent("a")
    with agent.edit("everything") as draft:
        draft["bytes"] = b"\xff\x00"
        draft["set"] = {1}
        draft["nan"] = float("nan")
        draft["decimal"] = Decimal("1.10")
        draft["uuid"] = UUID(int=1)
        draft["when"] = datetime(2026, 1, 1, tzinfo=UTC)
        draft["lone"] = "\ud800"
        draft["keys"] = {1: "one", (2, 3): "pair"}
    commit = agent.commit(2)
    said = json.loads(TypeAdapter(Commit).dump_json(commit))
    assert said["id"].startswith("sha256:") and said["at"].endswith("Z")
    assert {one["path"][0]: one["value"] for one in said["delta"]} == {
        "bytes": "/wA=",
        "set": [1],
        "nan": None,
        "decimal": "1.10",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "when": "2026-01-01T00:00:00+00:00",
        "lone": "\\ud800",
        "keys": {"1": "one", "[2, 3]": "pair"},
    }
    assert {one["op"] for one in said["delta"]} == {"Set"}
    back = TypeAdapter(Commit).validate_json(TypeAdapter(Commit).dump_json(commit))
    assert (back.id, back.at) == (commit.id, commit.at)


def test_what_is_not_such_data_is_refused_as_by_any_model(store: Store) -> None:
    adapter = TypeAdapter(AgentInfo)
    whole = {"name": "a", "no": 1, "incarnation": 1, "deleted": False, "seq": 3}
    assert adapter.validate_python(whole) == AgentInfo("a", 1, 1, False, 3)
    for wrong in ({"name": "a"}, {**whole, "seq": "many"}, 5, None):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)
    run = TypeAdapter(RunInfo).dump_python(store.start(support, "b", 1).info)
    no_moment = run["started_at"].replace(tzinfo=None)
    with pytest.raises(ValidationError, match="timezone"):
        TypeAdapter(RunInfo).validate_python({**run, "started_at": no_moment})
    with pytest.raises(ValidationError):
        TypeAdapter(Verified).validate_python(
            {"agent": "a", "commits": 1, "snapshots": 0, "head": "x"}
        )


def test_a_model_of_a_program_may_hold_it(waiting: perdure.RunHandle[Any]) -> None:
    class Page(BaseModel):
        title: str
        runs: list[RunInfo]

    page = Page(title="Runs", runs=[waiting.info])
    assert page.runs[0] is not None
    assert Page.model_validate_json(page.model_dump_json()) == page


def test_a_web_framework_returns_it(store: Store, waiting: perdure.RunHandle[Any]) -> None:
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    app = fastapi.FastAPI()

    @app.get("/report", response_model=RunReport)
    def report() -> Any:
        return waiting.report()

    @app.get("/runs", response_model=list[RunInfo])
    def runs() -> Any:
        return store.runs()

    @app.get("/log", response_model=list[Commit])
    def log() -> Any:
        return list(store.agent("a").log())

    client = testclient.TestClient(app)
    assert client.get("/openapi.json").status_code == 200
    assert client.get("/runs").json()[0]["status"] == "waiting"
    assert client.get("/report").json()["info"]["id"] == "a/support/main"
    assert client.get("/log").json()[0]["cause"]["kind"] == "create"
