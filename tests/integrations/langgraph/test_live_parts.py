"""Excluded fields and private attributes that are no data, beside LangGraph's own saver."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, model_validator

from perdure.errors import Unstorable
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.values import unnamed
from tests.integrations.langgraph.checkpoints import get, put, values_of
from tests.integrations.langgraph.conftest import Place


class Client:
    def __init__(self, url: str = "") -> None:
        self.url = url


@dataclass
class Pool:
    size: int = 1
    lock: Any = field(default_factory=threading.Lock)


class Guarded(BaseModel):
    url: str = "there"
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _log: Any = PrivateAttr(default=logging.getLogger("guarded"))
    _pool: Pool = PrivateAttr(default_factory=Pool)


class Connected(BaseModel):
    url: str = "there"
    _client: Client = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = Client(self.url)


class ConnectedByInit(BaseModel):
    model_config = ConfigDict(frozen=True)
    url: str = "there"
    _client: Any = PrivateAttr(None)

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)
        self._client = Client(self.url)


class ConnectedByValidator(BaseModel):
    url: str = Field("there", alias="URL")
    client: Any = Field(None, exclude=True)

    @model_validator(mode="after")
    def connect(self) -> Any:
        self.client = Client(self.url)
        return self


class Excluding(BaseModel):
    url: str = "there"
    call: Any = Field(default=print, exclude=True)


class Refusing(BaseModel):
    """Its constructor takes other arguments: LangGraph uses `model_construct` then."""

    url: str
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, host: str, port: int) -> None:
        super().__init__(url=f"{host}:{port}")


class Urls(RootModel[list[str]]):
    _seen: list[str] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)


URLS = Urls(["here"])
URLS._seen = ["there"]


class State(TypedDict):
    v: Any


MODELS: list[Any] = [
    Guarded(url="here"),
    Connected(url="here"),
    ConnectedByInit(url="here"),
    ConnectedByValidator.model_validate({"URL": "here"}),
    Excluding(url="here"),
    Refusing("here", 1),
    URLS,
    {"deep": [Guarded(url="here")]},
]


def parts_of(value: Any) -> Any:
    """The fields and private attributes, with the types of what cannot be compared."""
    if isinstance(value, dict):
        return parts_of(value["deep"][0])
    parts = {**value.__dict__, **(value.__pydantic_private__ or {})}
    return type(value), {
        name: item if isinstance(item, str | list) else (type(item), getattr(item, "url", None))
        for name, item in parts.items()
    }


@pytest.mark.parametrize("value", MODELS, ids=lambda value: type(value).__name__)
def test_a_model_with_a_lock_or_a_client_works_as_with_langgraphs_own_saver(
    place: Place, tmp_path: Path, value: Any
) -> None:
    """A user's model had `_lock: Any = PrivateAttr(default_factory=threading.Lock)`. With
    `SqliteSaver` the graph ran, and a later process had the model with a new lock. With
    `PerdureSaver` the node's step ended with `Unstorable`, as the lock is no data."""

    def stored_and_read(*savers: BaseCheckpointSaver[Any]) -> Any:
        graph: Any = StateGraph(State)
        graph.add_node("work", lambda state: {"v": value})
        graph.add_edge(START, "work")
        thread: Any = {"configurable": {"thread_id": "t"}}
        graph.compile(checkpointer=savers[0]).invoke({"v": None}, thread)
        unnamed.MET.forget()
        return graph.compile(checkpointer=savers[1]).get_state(thread).values["v"]

    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        expected = stored_and_read(theirs, theirs)
    found = stored_and_read(place.open(), place.open())
    if isinstance(value, (ConnectedByValidator, Urls)):  # without the alias, and a list
        expected = value
    assert parts_of(found) == parts_of(expected) == parts_of(value)
    if type(value) is Guarded:
        assert found._lock is not value._lock
        assert found.model_fields_set == {"url"}


class Mixed(BaseModel):
    log: list[str] = []
    secret: Any = Field(default=None, exclude=True)
    _seen: int = PrivateAttr(default=7)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _unset: int = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self.log = [*self.log, "made"]
        self._seen, self._unset = 0, 0


@pytest.mark.parametrize("serde", [None, JsonPlusSerializer()])
def test_what_is_data_stays_as_it_was(place: Place, serde: Any) -> None:
    """The constructor gives the lock only: not the fields that it changes, nor other attributes."""
    one = Mixed(secret="s")
    one._seen = 9
    del one._unset
    put(place.open(serde=serde), {"v": one})
    found = values_of(place.open(serde=serde))["v"]
    assert (found.log, found.secret, found._seen) == (["made"], "s", 9)
    assert found.model_fields_set == one.model_fields_set
    assert type(found._lock) is type(one._lock)
    assert not hasattr(found, "_unset")
    put(place.open(serde=serde), {"v": found}, get(place.open(serde=serde)).config, 2)
    assert values_of(place.open(serde=serde))["v"]._seen == 9


class Required(BaseModel):
    client: Any = Field(exclude=True)


class Orphan(BaseModel):
    _client: Any = PrivateAttr()
    _other: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._other = Client()


class Unmarked(BaseModel):
    client: Any = None
    _lock: Any = PrivateAttr(default_factory=threading.Lock)


class Keeping(BaseModel):
    _pool: Any = PrivateAttr(default=None)


def test_what_would_not_come_back_is_refused(saver: PerdureSaver, place: Place) -> None:
    orphan = Orphan()
    orphan._client = "data"
    put(saver, {"v": orphan})
    orphan._client = Client()
    for value, where in [
        (Required(client=Client()), r"v\.client"),
        (orphan, r"v\['@private'\]\._client"),
        (Unmarked(client=Client()), r"v\.client"),
    ]:
        with pytest.raises(Unstorable, match=rf"state\.{where}: a .*Client cannot be stored"):
            put(saver, {"v": value})
    keeping = Keeping()
    keeping._pool = Pool(lock=None)
    with pytest.raises(Unstorable, match=r"_pool: .* its type is not registered"):
        put(place.open(strict=True, types=[Keeping]), {"v": keeping})


class Failing(BaseModel):
    url: str = "there"
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def model_post_init(self, context: Any) -> None:
        if self.url == "down":
            raise ConnectionError("nobody answers")


@dataclass
class FailingPool:
    url: str = "there"

    def __post_init__(self) -> None:
        if self.url == "down":
            raise ConnectionError("nobody answers")
        self._lock = threading.Lock()


@pytest.mark.parametrize("cls", [Failing, FailingPool])
@pytest.mark.parametrize("registered", [False, True])
def test_a_constructor_that_fails_leaves_the_data(
    place: Place,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    cls: Any,
    registered: bool,
) -> None:
    """Story: a registered dataclass opened its client in `__post_init__`. While the network was
    away, its thread could not be read, listed or pruned."""
    monkeypatch.setattr(unnamed, "_said", set())
    types = [cls] if registered else ()
    one, saver = cls(url="up"), place.open(types=types)
    at = put(saver, {"v": one})  # its class makes the lock
    one.url = "down"
    put(saver, {"v": one}, at, 2)
    found = values_of(place.open(types=types))["v"]
    assert (type(found), found.url, hasattr(found, "_lock")) == (cls, "down", False)
    assert "its '_lock': nobody answers" in caplog.text


@dataclass
class Lazy:
    kind: str

    def __post_init__(self) -> None:
        if self.kind == "eager":
            self.open()

    def open(self) -> Lazy:
        self.lock = threading.Lock()
        return self


def test_a_part_that_only_some_instances_make(place: Place) -> None:
    """Story: one instance's constructor made a lock; of another, which had got its lock later, it
    was left out, too, and that one's thread could not be read."""
    saver = place.open(types=[Lazy])
    at = put(saver, {"v": Lazy("eager")})
    put(saver, {"v": Lazy("lazy").open()}, at, 2)
    found = values_of(place.open(types=[Lazy]))["v"]
    assert (found.kind, hasattr(found, "lock")) == ("lazy", False)
