"""Classes that nobody registered, and subclasses of plain types: kept, and never imported."""

import asyncio
import collections
import datetime as dt
import decimal
import enum
import logging
import os
import subprocess
import sys
import types
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, RootModel
from typing_extensions import TypedDict

from perdure.core.values import codec
from perdure.errors import Unstorable
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.values import unnamed
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.plain_subclasses import plain_of
from perdure.integrations.langgraph.values.rich_values import Coder
from tests.integrations.langgraph.checkpoints import config, get, put, values_of
from tests.integrations.langgraph.conftest import Place

Lenient = Coder(BUILT_IN, strict=False)


@pytest.fixture(autouse=True)
def _afresh() -> None:
    """As in a process that met nothing yet."""
    unnamed._said.clear()
    unnamed.MET.forget()


def round_trip(value: Any, coder: Coder = Lenient) -> Any:
    return coder.decode(codec.decode(codec.encode(coder.encode(value))))


# -- subclasses of plain types ---------------------------------------------------------------

BASES: tuple[type, ...] = (
    str,
    int,
    float,
    bytes,
    bytearray,
    dict,
    list,
    tuple,
    set,
    frozenset,
    collections.deque,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
)
LIES = {
    name: lambda self, *_: 1 / 0 for name in ("__iter__", "__str__", "__len__", "items", "keys")
}
SUBCLASSES = {base: (type("Sub", (base,), {}), type("Lies", (base,), dict(LIES))) for base in BASES}
PLAIN: dict[type, st.SearchStrategy] = {
    str: st.text(),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(),
    dict: st.dictionaries(st.text(), st.integers()),
    list: st.lists(st.integers()),
    tuple: st.lists(st.integers()),
    set: st.sets(st.integers()),
    frozenset: st.sets(st.integers()),
    bytearray: st.binary(),
    collections.deque: st.lists(st.integers()),
    dt.timedelta: st.integers(0, 9999),
    decimal.Decimal: st.integers(),
}


@given(st.data())
def test_a_subclass_of_a_plain_type_is_kept_as_the_plain_value(data: Any) -> None:
    """`message.text` is a subclass of str: 40 of LangGraph's own tests were refused for it. What
    the subclass says of itself is not asked."""
    base = data.draw(st.sampled_from(list(PLAIN)))
    given_value = data.draw(PLAIN[base])
    expected = base(given_value)
    for cls in SUBCLASSES[base]:
        found = round_trip({"deep": [cls(given_value)]})["deep"][0]
        assert type(found) is base
        assert found == expected


def test_subclasses_of_times_and_ids() -> None:
    day, at = dt.date(2026, 5, 1), dt.datetime(2026, 5, 1, 2, 3, 4, 5, dt.UTC, fold=1)
    for plain, arguments in (
        (day, (2026, 5, 1)),
        (dt.time(1, 2, tzinfo=dt.UTC), (1, 2, 0, 0, dt.UTC)),
        (uuid.UUID(int=7), ("00000000-0000-0000-0000-000000000007",)),
    ):
        found = round_trip(SUBCLASSES[type(plain)][0](*arguments))
        assert (type(found), found) == (type(plain), plain)
    moment = SUBCLASSES[dt.datetime][0](2026, 5, 1, 2, 3, 4, 5, dt.UTC, fold=1)
    found = round_trip(moment)
    assert (type(found), found, found.fold) == (dt.datetime, at, 1)


def test_as_langgraph_keeps_them() -> None:
    """Of each subclass that LangGraph's serializer takes, ours gives a value equal to its one."""
    theirs = JsonPlusSerializer(allowed_msgpack_modules=None)
    text = AIMessage("said").text
    for value in (
        text,
        collections.defaultdict(list, a=[text]),
        collections.OrderedDict(b=1, a=2),
        SUBCLASSES[str][0]("x"),
        SUBCLASSES[int][0](3),
        SUBCLASSES[dict][0](a=1),
        SUBCLASSES[list][0]([1]),
        {SUBCLASSES[str][0]("key"): 1},
        {SUBCLASSES[int][0](1): 2},
    ):
        assert round_trip(value) == theirs.loads_typed(theirs.dumps_typed(value))
    assert type(round_trip(text)) is str
    assert list(map(type, round_trip({SUBCLASSES[str][0]("key"): 1}))) == [str]


def test_nodes_and_channels_called_by_members_of_an_enum(place: Place) -> None:
    class Name(enum.StrEnum):
        WORK = "work"

    saver = place.open()
    one = {Name.WORK: 1}
    made = {
        "v": 4,
        "id": "1",
        "ts": "t",
        "channel_values": one,
        "updated_channels": list(one),
        "channel_versions": one,
        "versions_seen": {Name.WORK: one},
    }
    at = saver.put(config(), made, {"source": "loop", "step": 0, "parents": {}}, {})  # type: ignore[arg-type]
    saver.put_writes(at, [(Name.WORK, 2)], "task")
    found = get(place.open())
    assert found.checkpoint["versions_seen"] == {"work": {"work": 1}}
    assert found.pending_writes == [("task", "work", 2)]


# -- classes -----------------------------------------------------------------------------------


class Invoice(BaseModel):
    number: str
    cents: int = 0


@dataclass
class Line:
    text: str
    tags: list[str] = field(default_factory=list)


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Pair(NamedTuple):
    left: Any
    right: Any


class Outer:
    class Inner(BaseModel):
        n: int = 1


class Root(RootModel[list[Invoice]]):
    pass


OBJECTS = [
    Invoice(number="R-1"),
    Line("a", ["t"]),
    Color.RED,
    Size.BIG,
    Pair(1, Line("b")),
    Outer.Inner(),
    Root([Invoice(number="R-3")]),
    {Color.RED: [Invoice(number="R-2", cents=2)]},
    {Size.BIG},
]


def test_classes_come_back_without_any_setting(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """`create_agent(response_format=Model)` with a checkpointer failed out of the box."""
    put(place.open(), {"all": OBJECTS})
    unnamed.MET.forget()
    found = values_of(place.open())["all"]
    assert found == OBJECTS
    assert list(map(type, found)) == list(map(type, OBJECTS))
    assert not caplog.records
    for one, other in zip(found, OBJECTS, strict=True):  # attributes that == does not look at, too
        assert getattr(one, "__dict__", {}) == getattr(other, "__dict__", {})


def test_a_graph_of_models_and_answers_of_a_schema(place: Place) -> None:
    """Pydantic inputs, and answers to `interrupt(response_schema=…)`, were refused."""

    class State(BaseModel):
        invoice: Invoice
        answer: Any = None

    def ask(state: State) -> dict[str, Any]:
        return {"answer": interrupt("pay?", response_schema=Line)}

    graph: Any = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    thread: Any = {"configurable": {"thread_id": "t"}}
    app = graph.compile(checkpointer=place.open())
    app.invoke(State(invoice=Invoice(number="R-1")), thread)
    app = graph.compile(checkpointer=place.open())
    assert app.invoke(Command(resume={"text": "yes"}), thread)["answer"] == Line("yes")
    assert app.get_state(thread).values["invoice"] == Invoice(number="R-1")


def made_module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    exec(
        "import enum, dataclasses, pydantic\n"
        "class Bill(pydantic.BaseModel):\n    cents: int = 1\n    to: str = ''\n"
        "@dataclasses.dataclass\nclass Note:\n    text: str\n"
        "class Kind(enum.Enum):\n    A = 'a'\n",
        module.__dict__,
    )
    sys.modules[name] = module
    return module


def test_a_class_that_is_not_there_comes_back_as_its_data(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Its data is not lost, nothing is imported, one warning shows the line to add; and who writes
    the data again without the class leaves an object for those who have it."""
    module: Any = made_module("perdure_test_shop")
    try:
        given_values = {
            "bill": module.Bill(cents=5),
            "note": [module.Note("n")],
            "k": module.Kind.A,
        }
        put(place.open(), given_values)
        del sys.modules["perdure_test_shop"]
        unnamed.MET.forget()
        saver = place.open()
        found = values_of(saver)
        assert found == {"bill": {"cents": 5, "to": ""}, "note": [{"text": "n"}], "k": "a"}
        values_of(saver)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 3
        assert "types=[Bill]" in "".join(said)
        assert "types={'perdure_test_shop.Bill': NewName}" in "".join(said)
        assert "perdure_test_shop" not in sys.modules
        found["bill"]["cents"] = 6
        put(saver, found, get(saver).config, version=2)
        sys.modules["perdure_test_shop"] = module
        after = values_of(place.open())
        assert after == {
            "bill": module.Bill(cents=6),
            "note": [module.Note("n")],
            "k": module.Kind.A,
        }
        assert after["bill"].model_fields_set == {"cents"}
    finally:
        sys.modules.pop("perdure_test_shop", None)


def test_a_class_of_a_function_is_named_when_it_is_stored(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    @dataclass
    class Local:
        n: int

    put(place.open(), {"a": [Local(1), Local(2)]})
    assert len(caplog.records) == 1
    assert "Define it in a module" in caplog.text
    assert values_of(place.open()) == {"a": [Local(1), Local(2)]}  # this process still has it
    unnamed.MET.forget()
    assert values_of(place.open()) == {"a": [{"n": 1}, {"n": 2}]}


def test_a_class_that_changed_gives_data_not_an_error(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    module: Any = made_module("perdure_test_shop")
    try:
        put(place.open(), {"note": module.Note("n")})
        unnamed.MET.forget()

        @dataclass
        class Note:
            body: str

        Note.__module__, Note.__qualname__ = "perdure_test_shop", "Note"
        module.Note = Note
        assert values_of(place.open()) == {"note": {"text": "n"}}
        assert "does not fit the class" in caplog.text
    finally:
        sys.modules.pop("perdure_test_shop", None)


def test_no_module_is_asked_for_what_it_would_import(place: Place) -> None:
    """A module's `__getattr__` imports what it is asked for; and a name may lead through anything
    that a module has."""
    module: Any = types.ModuleType("perdure_test_lazy")
    module.__getattr__ = lambda name: pytest.fail(f"asked for {name}")
    module.instance = Line("x")
    module.alias = Invoice
    sys.modules["perdure_test_lazy"] = module
    try:
        for tag in (
            "perdure_test_lazy.Gone",
            "perdure_test_lazy.instance.text",
            "perdure_test_lazy.alias",
            "perdure_test_lazy.instance",
            ".",
            "",
            "os.system",
            "builtins.eval",
            "perdure_test_lazy.",
            "subprocess.Popen",
        ):
            found = Lenient.decode({"@": tag, "number": "1"})
            assert found == {"number": "1"}, tag
    finally:
        del sys.modules["perdure_test_lazy"]


def test_another_process_finds_the_graphs_classes(tmp_path: Path) -> None:
    """The whole story in fresh processes: one writes, one that has the class reads, one has not."""
    (tmp_path / "shop.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Order:\n    n: int\n"
    )
    body = (
        "from perdure.integrations.langgraph import PerdureSaver\n"
        "saver = PerdureSaver.from_url('threads.db')\n"
        "at = {'configurable': {'thread_id': 't', 'checkpoint_ns': ''}}\n"
    )
    write = (
        "import shop\n"
        + body
        + (
            "saver.put(at, {'v': 4, 'id': '1', 'ts': 't', 'channel_values': {'o': shop.Order(7)},"
            "'channel_versions': {'o': 1}, 'versions_seen': {}}, {}, {})\n"
        )
    )
    read = body + "print(saver.get_tuple(at).checkpoint['channel_values'])\n"
    print_modules = "import sys; assert 'shop' not in sys.modules\n"

    def run(code: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip(), done.stderr

    run(write)
    assert run("import shop\n" + read) == ("{'o': Order(n=7)}", "")
    without, said = run(read + print_modules)
    assert without == "{'o': {'n': 7}}"
    assert "types=[Order]" in said


def test_strict_is_what_langgraph_says_it_is() -> None:
    """With ``LANGGRAPH_STRICT_MSGPACK`` the graph tells savers what it declares; there the rest is
    refused."""
    code = (
        "import dataclasses, operator\n"
        "from typing import TypedDict, Any\n"
        "from langgraph.graph import StateGraph, START\n"
        "from perdure.integrations.langgraph import PerdureSaver\n"
        "import perdure\n"
        "@dataclasses.dataclass\nclass A:\n    n: int\n"
        "@dataclasses.dataclass\nclass B:\n    n: int\n"
        "class S(TypedDict):\n    a: A\n    any: Any\n"
        "def app(update):\n"
        "    g = StateGraph(S); g.add_node('n', lambda s: update); g.add_edge(START, 'n')\n"
        "    return g.compile(checkpointer=PerdureSaver.from_url('memory://'))\n"
        "at = {'configurable': {'thread_id': 't'}}\n"
        "good = app({'a': A(1)}); good.invoke({}, at); print(good.get_state(at).values)\n"
        "try:\n    app({'any': B(1)}).invoke({}, at)\n"
        "except perdure.Unstorable as error:\n    print(error)\n"
    )
    env = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert found.stdout.startswith("{'a': A(n=1)}"), found.stderr
    assert "types=[B]" in found.stdout


# -- what a saver is told besides --------------------------------------------------------------


class Cipher:
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(byte ^ 7 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(byte ^ 7 for byte in ciphertext)


class Sealing(JsonPlusSerializer):
    """A user's own way to encrypt."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return kind, Cipher().encrypt(data)[1]


@pytest.mark.parametrize("serde", [EncryptedSerializer(Cipher()), Sealing()])
def test_a_serializer_that_encrypts_is_refused(place: Place, serde: SerializerProtocol) -> None:
    """It was taken without a word, and the messages were readable in the file."""
    with pytest.raises(ValueError, match="cannot seal a store yet"):
        place.open(serde=serde)
    saver = place.open()
    with pytest.raises(ValueError, match="cannot seal a store yet"):
        saver.serde = serde  # as one does it with LangGraph's own


def test_a_strict_saver_takes_what_its_hint_says(place: Place) -> None:
    """The hint named `serde=`, which did not work for models, dataclasses and enums."""
    for value, name in (
        (Invoice(number="1"), "Invoice"),
        (Line("a"), "Line"),
        (Color.RED, "Color"),
    ):
        with pytest.raises(Unstorable, match=rf"types=\[{name}\]") as error:
            put(place.open(strict=True, serde=JsonPlusSerializer()), {"a": value})
        assert "serde=" not in str(error.value)
        put(place.open(strict=True, types=[type(value)]), {"a": value})
    assert values_of(place.open(strict=True, types=[Color])) == {"a": Color.RED}


def test_an_allowlist_makes_no_copy_where_nothing_is_new(place: Place) -> None:
    """A copy took 0.46 ms at each use of a graph, and what a subclass noted in it was lost."""

    class Counting(PerdureSaver):
        calls = 0

    names = {(Invoice.__module__, "Invoice"), ("langchain_core.messages.ai", "AIMessage")}
    saver = Counting(place.open().store, types=[Invoice], strict=True)
    assert saver.with_allowlist(names) is saver
    more = saver.with_allowlist({*names, (Line.__module__, "Line")})
    assert more is not saver
    assert isinstance(more, Counting)
    assert more.with_allowlist({(Line.__module__, "Line")}) is more
    serde = JsonPlusSerializer(allowed_msgpack_modules=[Invoice])
    exotic = Counting(place.open().store, serde=serde, types=[Invoice], strict=True)
    assert exotic.with_allowlist({(Invoice.__module__, "Invoice")}) is exotic


def test_setup_may_be_called_and_awaited(place: Place) -> None:
    """Users of LangGraph's own savers call it: it was no attribute."""

    async def both() -> None:
        async with PerdureSaver.from_url(f"{place.url}") as saver:
            await saver.setup()

    place.open().setup()
    asyncio.run(both())


@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 201, "\ud800"])
def test_a_thread_id_that_cannot_be_is_named(saver: PerdureSaver, bad: str) -> None:
    """The error spoke of the name of an agent."""
    for call in (
        lambda: put(saver, {"n": 1}, config(bad)),
        lambda: saver.get_tuple(config(bad)),
        lambda: list(saver.list(config(bad))),
        lambda: saver.delete_thread(bad),
        lambda: saver.put_writes(config(bad, "1"), [("a", 1)], "t"),
        lambda: saver.copy_thread("t", bad),
        lambda: saver.prune([bad]),
    ):
        with pytest.raises(ValueError, match="thread_id: the name of a thread must have 1 to 200"):
            call()


def test_metadata_is_found_by_paths_and_has_no_tuples(saver: PerdureSaver) -> None:
    """`filter={"a.b": …}` found nothing; LangGraph's counters came back as tuples."""
    at = put(saver, {"n": 1}, tags={"team": {"name": "x"}}, counted=(1, [(2, 3)]))
    assert get(saver).metadata["counted"] == [1, [[2, 3]]]  # type: ignore[typeddict-item]
    put(saver, {"n": 2}, version=2, **{"tags.team": "flat"})  # type: ignore[arg-type]
    assert [one.config for one in saver.list(config(), filter={"tags.team.name": "x"})] == [at]
    assert not list(saver.list(config(), filter={"tags.team.other.deep": "x"}))
    assert len(list(saver.list(config(), filter={"tags.team": "flat"}))) == 1


def test_a_parent_chain_with_a_cycle_ends(place: Place) -> None:
    """A checkpoint that was put again behind its own child made walks go on for ever, under the
    thread's lock."""
    saver = place.open()
    a = put(saver, {"n": 1}, id="1-a")
    b = put(saver, {"n": 2}, a, id="1-b")
    put(saver, {"n": 3}, b, id="1-a")
    own = put(saver, {"n": 4}, config("own"), id="1-c")
    put(saver, {"n": 5}, own, id="1-c")  # its own parent
    for reader in (saver, place.open()):
        for at in (a, b, own):
            assert reader.get_tuple(at)
            thread = at["configurable"]["thread_id"]
            assert reader.get_tuple(config(thread))
            assert len(list(reader.list(config(thread)))) in (1, 2)
            history = reader.get_delta_channel_history(config=at, channels=["gone"])
            assert history["gone"]["writes"] == []
    saver.prune(["t"])
    put(saver, {"n": 6}, b, id="1-d")
    assert values_of(place.open()) == {"n": 6}


class Reply(TypedDict):
    text: str


def test_the_text_of_a_message_in_a_graph(place: Place) -> None:
    graph: Any = StateGraph(Reply)
    graph.add_node("say", lambda state: {"text": AIMessage("said").text})
    graph.add_edge(START, "say")
    thread: Any = {"configurable": {"thread_id": "t"}}
    graph.compile(checkpointer=place.open()).invoke({"text": ""}, thread)
    found = graph.compile(checkpointer=place.open()).get_state(thread).values["text"]
    assert (type(found), found) == (str, "said")


def test_warnings_are_one_for_each_class(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "perdure.langgraph")
    for _ in range(3):
        Lenient.decode([{"@": "gone.One"}, {"@": "gone.One"}, {"@": "gone.Two"}])
    assert len(caplog.records) == 2


def test_plain_of_leaves_others_alone() -> None:
    for value in (Color.RED, Size.BIG, Pair(1, 2), object(), Line("a"), None):
        if value is not None:
            assert type(plain_of(value)) is object
