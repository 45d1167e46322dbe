"""A healthy agent is never called corrupt: not for what this machine, or this version, lacks."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import io
import pickle
import sys
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import Annotated, Any, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, Field, create_model, field_validator

import perdure
from perdure.cli import plain, words
from perdure.core.format import chain, dictionary, envelope
from perdure.core.schema.invariants import invariant
from perdure.core.values import codec, plain_values
from perdure.core.values.zones import MissingZone, named
from perdure.errors import UnknownZone, Unstorable, UnsupportedFormat
from perdure.storage.log import snapshots
from tests.machine import KEYS, machine

TALLINN, CHATHAM = "Europe/Tallinn", "Pacific/Chatham"
NOON = dt.datetime(2026, 8, 12, 12, 0, 0, 1)


def at(key: str, moment: dt.datetime = NOON) -> dt.datetime:
    return moment.replace(tzinfo=ZoneInfo(key))


class Booking(BaseModel):
    when: dt.datetime
    seats: int = 0


@dataclass
class Trip:
    when: dt.datetime
    stops: list[dt.datetime]
    opens: dt.time | None = None


class Leg(msgspec.Struct):
    when: dt.datetime
    days: set[dt.datetime] = msgspec.field(default_factory=set)


# -- a zone that is not there -------------------------------------------------------------------


def test_a_missing_zone_leaves_the_agent_healthy(place):
    """An agent kept a datetime in a zone. On a slim image without tzdata the whole agent was
    `Corrupt`, with the advice to restore it from a copy."""
    first = place.open().agent("traveller")
    with first.edit() as draft:
        draft["when"], draft["seats"] = at(CHATHAM), 1
    root = first.verify().root
    with machine("UTC"):
        agent = place.open().agent("traveller")
        assert agent.state["seats"] == 1
        when = agent.state["when"]
        assert when.replace(tzinfo=None) == NOON and str(when.tzinfo) == CHATHAM
        assert repr(when).endswith("tzinfo=MissingZone('Pacific/Chatham'))")
        assert agent.verify().root == root and not agent.drift()
        with agent.edit() as draft:
            draft["seats"] += 1
            draft["again"] = draft["when"] + dt.timedelta(days=1)
        fork = agent.fork("what-if", at=2)
        assert fork.state["seats"] == 1 and fork.save(dict(fork.state)) is None
        agent.checkpoint("here")
        agent.undo()
        agent.redo()
        assert [commit.seq for commit in agent.log()]
    agent = place.open().agent("traveller")
    assert agent.state["when"] == at(CHATHAM) and agent.state["seats"] == 2
    assert agent.state["again"] == at(CHATHAM) + dt.timedelta(days=1)
    assert type(agent.state["again"].tzinfo) is ZoneInfo
    agent.verify()


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        (Booking, lambda: Booking(when=at(CHATHAM))),
        (Trip, lambda: Trip(at(CHATHAM), [at(TALLINN)], dt.time(9, tzinfo=ZoneInfo(TALLINN)))),
        (Leg, lambda: Leg(at(CHATHAM), {at(CHATHAM), at(TALLINN)})),
    ],
)
def test_typed_states_too(place, schema, made):
    place.open().agent("typed", schema, initial=made()).save(made())
    with machine("UTC"):
        agent = place.open().agent("typed", schema)
        state = agent.state
        with pytest.raises(UnknownZone, match="'Pacific/Chatham'"):
            state.when.timestamp()
        assert not agent.drift() and agent.save(copy.deepcopy(state)) is None
        with agent.edit() as draft:
            draft.when += dt.timedelta(hours=1)
        agent.verify()
    assert place.open().agent("typed", schema).state.when == made().when + dt.timedelta(hours=1)


def test_equal_clocks_of_two_zones_stand_in_one_set(place):
    """Python asks the zone for the hash of a datetime: a set of them could not be read at all; and
    with one offset for all of the unknown, two members with equal clocks had to be compared."""
    with place.open().agent("keys").edit() as draft:
        draft["members"] = {at(TALLINN), at(CHATHAM)}
        draft["by moment"] = {at(TALLINN): "b", at(CHATHAM): "c"}
    with machine("UTC"):
        agent = place.open().agent("keys")
        assert len(agent.state["members"]) == 2
        assert sorted(agent.state["by moment"].values()) == ["b", "c"]
        again = copy.deepcopy(agent.state)
        assert again == agent.state and agent.save(again) is None
        one = next(iter(agent.state["members"]))
        with agent.edit() as draft:
            draft["members"].remove(one)
            draft["by moment"][one] = "d"
        agent.verify()
    assert len(place.open().agent("keys").state["members"]) == 1


def test_what_needs_the_rules_says_which_are_missing():
    with machine("UTC"):
        when = codec.decode(_written(at_key=CHATHAM))
        other = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        for asked in (
            when.timestamp,
            when.isoformat,
            when.astimezone,
            when.utctimetuple,
            when.tzname,
            lambda: when.astimezone(dt.UTC),
            lambda: str(when),
            lambda: when < other,
            lambda: when == other,
            lambda: when - other,
            lambda: when.tzinfo.fromutc(when),
            lambda: other.astimezone(when.tzinfo),
            lambda: hash(when.replace(hour=3)),
            lambda: dt.datetime.now(when.tzinfo),
            lambda: f"{when:%z}",
            when.timetuple,
        ):
            with pytest.raises(UnknownZone, match=r"Pacific/Chatham.*\n.*tzdata") as raised:
                asked()
            assert raised.value.zone == CHATHAM


def test_what_is_known_can_be_had():
    with machine("UTC"):
        when = codec.decode(_written(at_key=CHATHAM))
        later = when + dt.timedelta(days=1)
        assert later > when and later - when == dt.timedelta(days=1)
        assert (when.year, when.hour, when.microsecond) == (2026, 12, 1)
        assert when.replace(tzinfo=None).isoformat() == "2026-08-12T12:00:00.000001"
        for again in (copy.copy(when), copy.deepcopy(when), pickle.loads(pickle.dumps(when))):
            assert again == when and again.tzinfo is when.tzinfo and plain_values.same(again, when)
        assert hash(when) == hash(codec.decode(_written(at_key=CHATHAM)))
        assert copy.deepcopy({when}) == {when} and copy.deepcopy({when: 1}) == {when: 1}
        packed = pickle.dumps(when)
        assert MissingZone(CHATHAM) is when.tzinfo is not MissingZone(TALLINN)
    assert pickle.loads(packed) == at(CHATHAM)
    assert pickle.loads(packed).tzinfo is ZoneInfo(CHATHAM)


def _written(at_key: str) -> bytes:
    """The bytes of a datetime of a machine that has the zone."""
    head = codec.encode([NOON.isoformat(), 0, at_key])
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(codec.DATETIME, head))


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "Europe",
        "a\0b",
        "Ünknown/Zön",
        "x" * 5000,
        "zone.tab",
        "posixrules\n",
        "a//b",
        "CON",
        "-",
        "[fold=1]",
        "\x1b]0;x\x07",
    ],
)
def test_any_key_is_kept(key):
    """Keys come and go with versions of the database, and files are damaged or cannot be opened."""
    data = _written(at_key=key)
    when = codec.decode(data)
    assert when.replace(tzinfo=None) == NOON
    assert codec.encode(when) == data and codec.canonical({when}) == codec.canonical({when})


def test_a_zone_that_comes_is_found():
    data = _written(at_key=CHATHAM)
    with machine("UTC"):
        assert type(codec.decode(data).tzinfo) is MissingZone
    assert codec.decode(data) == at(CHATHAM)
    assert named(CHATHAM) is ZoneInfo(CHATHAM)


def test_an_hour_that_comes_twice_is_the_same_after_the_cache_of_zones_was_cleared(store):
    """Python takes such an hour in one zone object to differ from itself in another: what was in
    memory was not what the log says."""
    twice = at(TALLINN, dt.datetime(2026, 10, 25, 3, 30)).replace(fold=1)
    agent = store.agent("night")
    with agent.edit() as draft:
        draft["when"] = twice
    ZoneInfo.clear_cache(only_keys=[TALLINN])
    read = store.agent("night")
    assert plain_values.same(read.state, agent.state) and not agent.drift()
    again = twice.replace(tzinfo=ZoneInfo(TALLINN))
    assert again != twice and agent.save({"when": again}) is None
    assert agent.verify() == read.verify()


class Aware(BaseModel):
    when: AwareDatetime
    seats: int = 0


class Later(BaseModel):
    when: Annotated[dt.datetime, Field(gt=dt.datetime(2026, 8, 11, 22, tzinfo=dt.UTC))]


class Checked(BaseModel):
    when: dt.datetime

    @field_validator("when")
    @classmethod
    def _later(cls, when: dt.datetime) -> dt.datetime:
        if when.timestamp() < 0:
            raise ValueError("too early")
        return when


def test_a_constraint_that_any_offset_meets_is_met(place):
    """Pydantic asks an `AwareDatetime` for its offset, only to see that it has one: the state could
    not be read."""
    days = {"clear": 2, "open": 0}  # behind a bound that is in UTC
    for name, day in days.items():
        when = at(CHATHAM, NOON + dt.timedelta(day))
        place.open().agent(name, Later, initial=Later(when=when)).checkpoint("made")
    place.open().agent("aware", Aware, initial=Aware(when=at(CHATHAM))).checkpoint("made")
    with machine("UTC"):
        agent = place.open().agent("aware", Aware)
        assert type(agent.state.when.tzinfo) is MissingZone
        with agent.edit() as draft:
            draft.seats = 2
        with pytest.raises(UnknownZone, match=r"state\.when"), agent.edit() as draft:
            draft.when += dt.timedelta(1)
        assert place.open().agent("clear", Later).state.when.day == 14
        with pytest.raises(UnknownZone, match=r"state\.when.*Chatham"):
            _ = place.open().agent("open", Later).state
        assert place.open().agent("open", perdure.Schema(dict, id="Later")).state["when"].hour == 12
    agent = place.open().agent("aware", Aware)
    assert agent.state == Aware(when=at(CHATHAM), seats=2)


@invariant("when")
def early(state: Any) -> bool:
    return bool(state.when.timestamp() > 0)


def test_what_cannot_be_checked_here_is_not_called_wrong(place):
    """A validator, or an invariant, that asks for the offset: `SchemaError` said that the state
    does not fit."""
    guarded = perdure.Schema(Booking, invariants=[early])
    place.open().agent("v", Checked, initial=Checked(when=at(CHATHAM))).checkpoint("made")
    place.open().agent("i", guarded, initial=Booking(when=at(CHATHAM))).checkpoint("made")
    with machine("UTC"):
        with pytest.raises(UnknownZone):
            _ = place.open().agent("v", Checked).state
        agent = place.open().agent("i", guarded)
        with pytest.raises(UnknownZone), agent.edit() as draft:
            draft.when += dt.timedelta(1)
    assert place.open().agent("v", Checked).state.when == at(CHATHAM)


class Office(msgspec.Struct):
    zone: ZoneInfo


def test_a_zone_by_itself(place):
    """`ZoneInfo` looks up its text: a bare `KeyError` came of reading the state."""
    place.open().agent("o", Office, initial=Office(ZoneInfo(CHATHAM))).checkpoint("made")
    with machine("UTC"):
        with pytest.raises(UnknownZone, match=CHATHAM):
            _ = place.open().agent("o", Office).state
        assert place.open().agent("o", perdure.Schema(dict, id="Office")).state["zone"] == CHATHAM
    assert place.open().agent("o", Office).state == Office(ZoneInfo(CHATHAM))


# -- a zone of somebody's own -------------------------------------------------------------------


def _own_zone(key: str | None) -> ZoneInfo:
    with open(f"/usr/share/zoneinfo/{TALLINN}", "rb") as file:
        return ZoneInfo.from_file(io.BytesIO(file.read()), key=key)


@pytest.mark.parametrize("key", [None, "", "Our/Office", TALLINN])
def test_a_zone_from_a_file_is_refused_where_it_comes_in(store, steady, key):
    """It was stored by a key that no database has, or by one under which that has other rules."""
    agent = store.agent("office", initial={"seats": 1})
    with agent.edit() as draft:
        draft["open"] = True
    when = NOON.replace(tzinfo=_own_zone(key))
    with (
        steady.refuses(agent, Unstorable, match=r"(?s)state\.when.*zoneinfo\.ZoneInfo\("),
        agent.edit() as draft,
    ):
        draft["when"] = when
    with steady.refuses(agent, Unstorable, match=r"state\.days"):
        agent.save({"seats": 1, "days": {when: 1}})


def test_the_line_that_is_shown_is_right():
    when = NOON.replace(tzinfo=_own_zone(TALLINN))
    with pytest.raises(Unstorable) as raised:
        plain_values.take({"when": when})
    line = raised.value.hint.partition(": ")[2]
    import zoneinfo

    right = eval(line, {"value": when, "zoneinfo": zoneinfo})
    assert right == when and plain_values.take({"when": right})


# -- of a newer version --------------------------------------------------------------------------


def _payload(delta: Any) -> chain.Payload:
    data = envelope.seal(msgspec.msgpack.encode([delta, []]), bytes(envelope.SALT_SIZE))
    return chain.Payload(data, envelope.digest(data), b"0" * 16)


def _header(payload: chain.Payload, *more: Any) -> bytes:
    header = [1, "a", 1, 1, b"", "main", [], ["dict", 1, 0], 1, "", 0, ["edit", {}], payload.id]
    return msgspec.msgpack.encode([*header, payload.digest, *more])


@pytest.mark.parametrize(
    ("delta", "more", "match"),
    [
        ([[9, ["x"], 1]], (), "an op of a kind"),
        ([[0, ["x"], msgspec.msgpack.Ext(13, b"any")]], (), "a value of a kind"),
        ([[0, ["x"], 1]], ("a field",), "15 fields"),
    ],
)
def test_what_a_newer_version_wrote_is_not_called_damaged(delta, more, match):
    """An op, a value or a field of a header that came later: `Corrupt`, "restore from a copy"."""
    payload = _payload(delta)
    with pytest.raises(UnsupportedFormat, match=f"agent 'a', commit 1: .*{match}.*\n.*newer"):
        chain.read_commit("a", 1, _header(payload, *more), payload.data)


def test_a_snapshot_of_a_newer_version_is_passed_over(store, monkeypatch):
    """It is a cache: what it was made of is in front of it."""
    agent = store.agent("a", initial={"n": 0})
    for number in range(3):
        with agent.edit() as draft:
            draft["n"] = number
    monkeypatch.setattr(snapshots, "VERSION", snapshots.VERSION + 1)
    agent.checkpoint("here")
    monkeypatch.undo()
    assert store.agent("a").state == {"n": 2}
    with pytest.raises(UnsupportedFormat, match="snapshot version"):
        agent.verify()


def test_no_memory_is_no_damage(monkeypatch):
    """zstd says so in an error of the same kind as that of a broken frame."""
    data = envelope.seal(b"many words " * 100)

    class Tools:
        broken = ArithmeticError

        def size(self, body: bytes) -> int:
            return 1100

        def unpack(self, body: bytes) -> bytes:
            raise ArithmeticError("Allocation error : not enough memory")

        unpack_long = pack = pack_long = unpack

    monkeypatch.setattr(envelope, "_idle", [Tools()])
    with pytest.raises(MemoryError):
        envelope.open_envelope(data, "a commit")
    with pytest.raises(MemoryError):  # an edit raised it as it was: nobody catches zstd's errors
        envelope.seal(b"many words " * 100)


def test_long_numbers_are_read_whatever_python_refuses_to_write(place):
    """`sys.set_int_max_str_digits` bounds how numbers are written, not which there are."""
    place.open().agent("a", initial={"n": 10**6000, "d": Decimal(10) ** 700}).checkpoint("made")
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        agent = place.open().agent("a")
        assert agent.state["n"] == 10**6000 and agent.verify()
        with agent.edit() as draft:
            draft["n"] += 1
    finally:
        sys.set_int_max_str_digits(before)


# -- what prints it ------------------------------------------------------------------------------


def test_it_is_printed_as_far_as_it_is_known():
    """`perdure state` ended with a traceback."""
    with machine("UTC"):
        when = codec.decode(_written(at_key=CHATHAM))
        shown = plain.to_json({"when": when})
        assert shown == {"when": {"$datetime": "2026-08-12T12:00:00.000001[Pacific/Chatham]"}}
        assert words.short(when) == "2026-08-12 12:00:00.000001[Pacific/Chatham]"
        assert words.short([when.timetz()])
    read = plain.from_json(shown)["when"]
    assert read == at(CHATHAM)


# -- on any machine ------------------------------------------------------------------------------

MOMENTS = st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2060, 1, 1))
ZONED = st.builds(
    lambda moment, key, fold: moment.replace(tzinfo=ZoneInfo(key), fold=fold),
    MOMENTS,
    st.sampled_from(KEYS),
    st.integers(0, 1),
)
TIMES = st.builds(
    lambda moment, key: moment.time().replace(tzinfo=ZoneInfo(key)), MOMENTS, st.sampled_from(KEYS)
)
LEAVES = st.one_of(ZONED, TIMES, st.integers(), st.text(max_size=5), MOMENTS, st.just(Decimal("1")))
MEMBERS = st.one_of(ZONED, st.integers(), st.tuples(ZONED, st.text(max_size=3)))
STATES = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.one_of(LEAVES, st.frozensets(MEMBERS, max_size=4), st.sets(MEMBERS, max_size=4)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(MEMBERS, inner, max_size=4),
            st.tuples(inner, inner),
        ),
        max_leaves=8,
    ),
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(STATES, STATES, st.sets(st.sampled_from(KEYS)))
def test_what_one_machine_wrote_any_other_reads(state, other, known):
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial=state)
        with agent.edit() as draft:
            draft["more"] = other
        agent.undo()
        root = agent.verify().root
        data = codec.encode(state), codec.canonical(state)
        with machine(*known):
            read = codec.decode(data[0])
            assert (codec.encode(read), codec.canonical(read)) == data
            assert plain_values.same(read, codec.decode(data[0]))
            there = store.agent("a")
            assert there.verify().root == root and not there.drift()
            assert there.save(copy.deepcopy(there.state)) is None
            _look_everywhere(there, root)
        again = store.agent("a")
        assert plain_values.same(again.state, state) and not again.drift()
        again.verify()


def _look_everywhere(agent: Any, root: str) -> None:
    """What reads, on a machine that may have less; and a way forth and back."""
    assert repr(agent.state) and repr(agent.at(1).state)
    agent.diff(1, agent.seq)
    agent.fork("beside", at=2).verify(anchor=root)
    agent.checkpoint("here")
    with agent.edit() as draft:
        draft["one more"] = 1
    agent.undo()


# -- what this machine, or this program, lacks ----------------------------------------------------

WORDS = "many words that are worth packing, " * 20


def _lacks_zstandard(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)


def _lacks_the_dictionary(monkeypatch: Any) -> None:
    monkeypatch.setattr(dictionary, "_PATH", dictionary._PATH.with_name("gone.zdict"))


def _has_another_dictionary(monkeypatch: Any) -> None:
    monkeypatch.setattr(dictionary, "_PATH", dictionary._PATH.with_name("dictionary.py"))


@pytest.mark.parametrize(
    ("lacks", "match"),
    [
        (_lacks_zstandard, r"lacks zstandard(?s:.*)pip install zstandard"),
        (_lacks_the_dictionary, r"gone\.zdict(?s:.*)reinstall perdure"),
        (_has_another_dictionary, "not as it was released"),
    ],
)
def test_what_packs_and_unpacks_is_missing(place, monkeypatch, lacks, match):
    """A broken installation: the error was a bare one of Python's, and with a damaged file of ours
    every agent of every store was `Corrupt`."""
    store = place.open()
    store.agent("a", initial={"words": WORDS}).checkpoint("made")
    with monkeypatch.context() as patched:
        patched.setattr(envelope, "_idle", [])
        patched.setattr(dictionary, "_loaded", {})
        lacks(patched)
        agent = place.open().agent("a")
        for call in (
            lambda: agent.state,
            agent.verify,
            lambda: list(agent.log()),
            lambda: agent.trim(1),
            lambda: agent.save({"words": WORDS * 2}),
        ):
            with pytest.raises(perdure.StoreUnavailable, match=match) as raised:
                call()
            assert raised.value.outcome == "not_done"
            assert "nothing is wrong with the store" in raised.value.hint
    agent = place.open().agent("a")
    agent.verify()
    assert agent.state == {"words": WORDS}


def _colours(*names: str) -> Any:
    return enum.Enum("Colour", [(name, name) for name in names], module=__name__)


def _things(colour: Any) -> dict[str, Any]:
    fields = {"colour": colour, "n": int}
    return {
        "pydantic": create_model("Thing", colour=(colour, ...), n=(int, ...)),
        "dataclass": make_dataclass("Thing", list(fields.items())),
        "struct": msgspec.defstruct("Thing", list(fields.items())),
        "dict": TypedDict("Thing", fields),  # type: ignore[operator]
    }


@pytest.mark.parametrize("kind", ["pydantic", "dataclass", "struct", "dict"])
def test_a_member_that_vanished_from_an_enum(place, kind):
    """The code lost a member that a state has. The error said what the type wants, and neither
    which agent it is about, nor what to do."""
    before, now = _colours("red", "blue"), _colours("red")
    thing = _things(before)[kind]
    agent = place.open().agent("a", thing, initial=thing(colour=before.blue, n=1))
    agent.save(thing(colour=before.blue, n=2))
    agent = place.open().agent("a", _things(now)[kind])
    for call in (
        lambda: agent.state,
        lambda: agent.checkpoint("c"),
        agent.drift,
        lambda: agent.update(lambda state: None),
    ):
        with pytest.raises(
            perdure.SchemaError, match=r"agent 'a', commit 2, state\.colour: "
        ) as raised:
            call()
        assert "`perdure state a --at 2`" in raised.value.hint
        assert "perdure.Schema(dict, id='Thing')" in raised.value.hint
    with pytest.raises(perdure.SchemaError, match=r"agent 'a', commit 1, state\.colour: "):
        _ = agent.at(1).state
    assert agent.at(1).plain == {"colour": "blue", "n": 1}
    assert agent.verify().commits == 2
    assert agent.diff(1, 2)
    plain = place.open().agent("a", perdure.Schema(dict, id="Thing"))
    with plain.edit("paint it") as draft:
        draft["colour"] = "red"
    mended = place.open().agent("a", _things(now)[kind])
    assert mended.state is not None and mended.diff(1, "main")


@pytest.mark.parametrize("invariants", [False, True])
def test_a_state_whose_time_is_up_is_saved_over(place, invariants):
    """A field that must lie in the future was valid when it was stored, and no more when it was
    read. A whole new value was refused, too, for the old one: nothing through this type put the
    agent right."""
    limit = [0]

    class Offer(BaseModel):
        text: str = ""
        expires: int

        @field_validator("expires")
        @classmethod
        def lies_ahead(cls, value: int) -> int:
            if value <= limit[0]:
                raise ValueError("lies in the past")
            return value

    met: list[object] = []

    def it_says_something(before: Offer | None, after: Offer) -> None:
        met.append(before)
        if after.text == "nothing":
            raise ValueError("it says nothing")

    given = perdure.Schema(Offer, id="Offer", invariants=[it_says_something] if invariants else [])
    agent = place.open().agent("offer", given, initial=Offer(text="10 %", expires=5))
    agent.save(Offer(text="20 %", expires=5))
    limit[0] = 5
    for one in (agent, place.open().agent("offer", given)):
        with pytest.raises(perdure.SchemaError, match="the past"):
            one.save(Offer.model_construct(text="x", expires=4))
    late = place.open().agent("offer", given)
    with pytest.raises(perdure.SchemaError, match=r"commit 2, state\.expires: ") as raised:
        _ = late.state
    assert "or `save` a whole value" in raised.value.hint
    if invariants:
        met.clear()
        with pytest.raises(perdure.SchemaError, match="it says nothing"):
            late.save(Offer(text="nothing", expires=9))
        assert met == [None], "there is no state before that could be shown"
    late.save(Offer(text="30 %", expires=9))
    assert late.state == Offer(text="30 %", expires=9)
    with late.edit("more") as draft:
        draft.text += " off"
    assert late.state.text == "30 % off"
    agent.refresh()
    assert agent.state == late.state
    assert agent.verify().commits == 4
