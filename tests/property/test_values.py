"""For any plain values: they come back as they were, differences lead from one to the other, what
an undo restores nobody else has touched, and no byte of the log changes unseen."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import perdure
from perdure.core.format import chain
from perdure.core.undo.spared_changes import RestoredPlaces
from perdure.core.values import codec, ops
from perdure.core.values.diff import diff
from perdure.core.values.ops import Append, Delete, Move, Op, Set, Splice, TextSplice
from perdure.core.values.plain_values import copy, same, take
from perdure.errors import Corrupt, PerdureError, UnsupportedFormat
from perdure.state.state_diff import changes
from tests.compat import stranger
from tests.work import work_of

LONG = "the quick brown fox jumps over the lazy dog, again and again and again; "

offsets = st.builds(
    lambda minutes, name: dt.timezone(dt.timedelta(minutes=minutes), *name),
    st.integers(-1439, 1439),
    st.sampled_from([(), (), ("CET",), ("",)]),
)
zones = st.one_of(
    st.none(),
    st.just(dt.UTC),
    offsets,
    st.sampled_from(["UTC", "Europe/Vienna", "America/New_York", "Asia/Kathmandu"]).map(ZoneInfo),
)
texts = st.one_of(
    st.text(max_size=8), st.text(alphabet="\ud800\udfffé𐏿a\0", max_size=4), st.just(LONG)
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    texts,
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 0, 1, 1.0, -0.0]),
    st.binary(max_size=8),
    st.decimals(),
    st.just(Decimal("1.10")),
    st.just(Decimal("-0E+3")),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.datetimes(timezones=zones, allow_imaginary=True).flatmap(
        lambda at: st.sampled_from([at, at.replace(fold=1)])
    ),
    st.times(timezones=st.one_of(st.none(), offsets)),
)


def equals_itself(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ArithmeticError):
        return False
    if type(value) in (tuple, frozenset):
        return all(map(equals_itself, value))
    return bool(value == value)


members = st.recursive(
    scalars.filter(equals_itself),
    lambda inner: st.one_of(
        st.tuples(inner), st.tuples(inner, inner), st.frozensets(inner, max_size=2)
    ),
    max_leaves=3,
)
keys = st.one_of(
    st.sampled_from(["a", "b", "c"]),
    texts,
    members.filter(lambda k: k is not None and type(k) is not bool),
)
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.tuples(inner, inner),
        st.sets(members, max_size=3),
        st.frozensets(members, max_size=3),
    ),
    max_leaves=8,
)


def order(value: Any) -> Any:
    """A value's dicts as lists of pairs: rehydrated states iterate alike."""
    if type(value) is dict:
        return [(key, order(item)) for key, item in value.items()]
    if type(value) in (list, tuple):
        return [order(item) for item in value]
    return None


# -- the codec -------------------------------------------------------------------------------


@given(plain)
@example(dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1))
@example(dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")))
@example({1: "a", (1, "b"): {"\ud800": {2**70}}, 1.5: (float("nan"), [-0.0])})
def test_any_plain_value_comes_back(value):
    back = codec.decode(codec.encode(value))
    assert same(back, value) and same(value, back)
    assert order(back) == order(value)
    assert codec.encode(back) == codec.encode(value)
    assert codec.canonical(back) == codec.canonical(value)


def test_a_number_too_wide_leaves_what_is_beside_it_as_it_was():
    """Arguments of calls are told apart by the digests of these bytes. One that is made again in
    another way, as what a lone surrogate is in was, would be none that a log has."""
    big, torn = {"n": {"a": 2**64, "b": [2**70]}, "m": {"x": [-(2**63) - 1]}}, {"s": "\ud800"}
    for value in (big, [big, {"s": 1}], {"b": big, "t": torn}, {"t": torn, "b": {1: big, "": ()}}):
        assert codec.canonical(value) == stranger.canonical(value)
    assert codec.encode(big).startswith(b"\x82\xa1n\x82\xa1a")


def test_a_local_times_zone_keeps_its_name():
    """datetime.now().astimezone() has an offset with a name; it came back without."""
    for name in ("CET", "", "UTC+01:00", "Ünï"):
        at = dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), name))
        back = codec.decode(codec.encode(at))
        assert back.tzname() == at.tzname() and repr(back.utcoffset()) == repr(at.utcoffset())


@given(plain)
def test_taking_a_plain_value_copies_it(value):
    try:
        taken = take(value)
    except PerdureError:
        raise AssertionError(f"refused: {value!r}") from None
    assert same(taken, value) and order(taken) == order(value)


@given(plain, plain)
def test_equal_values_have_equal_canonical_bytes_and_others_do_not(a, b):
    assert (codec.canonical(a) == codec.canonical(b)) == same(a, b) or has_nan(a)


def has_nan(value: Any) -> bool:
    """NaNs are the same to us, whatever their bits are."""
    if type(value) is dict:
        return any(map(has_nan, value.values()))
    if type(value) in (list, tuple):
        return any(map(has_nan, value))
    return type(value) is float and math.isnan(value)


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(data):
    with suppress(codec.UndecodableError, UnsupportedFormat):
        codec.decode(data)


@given(plain, st.data())
@settings(max_examples=200)
def test_i10_broken_bytes_decode_or_are_refused(value, data):
    encoded = bytearray(codec.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    with suppress(codec.UndecodableError, UnsupportedFormat):
        codec.decode(bytes(encoded))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda v: [v],
        lambda v: {"k": v},
        lambda v: {1: v},
        lambda v: (v,),
        lambda v: {"\ud800": v},
        lambda v: {"\ud800": [v]},
        lambda v: frozenset({v}),
    ],
)
def test_depth_is_bounded_and_what_passes_comes_back(wrap):
    """Tuples were not counted: a deep one exhausted the stack of whoever read it."""
    value: Any = 1
    taken = None

    def deeper() -> None:
        nonlocal value, taken
        for _ in range(3000):
            taken = take(value)
            value = wrap(value)

    with pytest.raises(perdure.Unstorable, match="levels deep"):
        deeper()
    assert same(codec.decode(codec.encode(taken)), taken)
    codec.canonical(taken)
    assert same(copy(taken), taken)
    assert diff(taken, copy(taken)) == []


# -- differences -----------------------------------------------------------------------------


def related(value: Any) -> st.SearchStrategy[Any]:
    """Values that have much in common with this one."""
    kind = type(value)
    if kind is list:
        return st.one_of(
            st.just(value),
            st.permutations(value),
            st.lists(plain, max_size=3).map(lambda more: [*value, *more]),
            st.integers(0, 3).map(lambda n: value[n:]),
            st.tuples(*map(related, value)).map(list),
            st.tuples(st.integers(0, 4), plain).map(
                lambda p: [*value[: p[0]], p[1], *value[p[0] :]]
            ),
        )
    if kind is dict:
        return st.one_of(
            st.fixed_dictionaries({key: related(item) for key, item in value.items()}),
            st.dictionaries(keys, plain, max_size=2).map(lambda more: {**value, **more}),
            st.permutations(list(value)).map(lambda names: {name: value[name] for name in names}),
            st.sets(st.integers(0, 4)).map(
                lambda gone: {k: v for n, (k, v) in enumerate(value.items()) if n not in gone}
            ),
        )
    if kind is set:
        return st.sets(members, max_size=3).map(lambda other: value ^ other)
    if kind is str:
        return st.tuples(st.integers(0, 99), texts).map(
            lambda p: value[: p[0]] + p[1] + value[p[0] + 2 :]
        )
    return st.one_of(st.just(value), scalars)


pairs = st.one_of(
    st.tuples(plain, plain), plain.flatmap(lambda value: st.tuples(st.just(value), related(value)))
)


@given(pairs)
@settings(max_examples=300)
@example(({1: "a", 2: "b"}, {1.0: "a", 2: "b"}))
@example(({(1,): "a"}, {(1.0,): "a"}))
@example(({1, (2,)}, {1, (2.0,)}))
@example(({0.0: 1}, {-0.0: 1}))
@example((Decimal("sNaN"), Decimal("sNaN1")))
def test_a_difference_leads_from_one_to_the_other(pair):
    old, new = pair
    untouched = copy(old), copy(new)
    found = diff(old, new)
    assert same(old, untouched[0]) and same(new, untouched[1])
    wired = [chain.from_wire(codec.decode(codec.encode(chain.to_wire(op)))) for op in found]
    made = ops.fold(copy(old), wired)
    assert same(made, new)
    assert codec.encode(made) == codec.encode(new)  # the order of keys, too
    assert (found == []) == (same(old, new) and codec.encode(old) == codec.encode(new))
    assert (list(changes(old, new)) == []) == (found == [])


@given(pairs)
@settings(max_examples=300)
def test_a_difference_can_be_taken_back(pair):
    old, new = pair
    found = diff(old, new)
    root, inverses = copy(old), list[ops.Op]()
    for op in found:
        inverses.insert(0, ops.invert(root, op))
        root = ops.apply(root, ops.own(op))
    assert same(ops.fold(copy(new), inverses), old)


# -- what an undo may restore ------------------------------------------------------------------


@st.composite
def an_op(draw: Any, state: Any) -> Op:
    """Any op that fits a state of nested dicts, lists, texts and numbers."""
    places = list(walk(state))
    path, value = draw(st.sampled_from(places))
    choices: list[st.SearchStrategy[Op]] = []
    if path:
        choices.append(st.builds(Set, st.just(path), small_values))
    if type(value) is dict:
        choices.append(
            st.builds(lambda k, v: Set((*path, k), v), st.sampled_from("abcd"), small_values)
        )
        if value:
            choices.append(st.builds(lambda k: Delete((*path, k)), st.sampled_from(sorted(value))))
    if type(value) is list:
        choices.append(st.builds(Append, st.just(path), small_lists))
        choices.append(splices(path, len(value), Splice, small_lists))
        if value:
            index = st.integers(0, len(value) - 1)
            choices.append(st.builds(Move, st.just(path), index, index))
    if type(value) is str:
        choices.append(splices(path, len(value), TextSplice, st.text("xyz", max_size=3)))
    if type(value) is int:
        choices.append(st.builds(ops.Increment, st.just(path), st.integers(1, 5)))
    op: Op = draw(st.one_of(choices))
    return op


@st.composite
def splices(draw: Any, path: Any, length: int, kind: Any, values: Any) -> Any:
    start = draw(st.integers(0, length))
    return kind(path, start, draw(st.integers(0, length - start)), draw(values))


def walk(value: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path, value
    if type(value) is dict:
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif type(value) is list:
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))


small_values = st.recursive(
    st.one_of(st.integers(0, 9), st.text("pqr", min_size=1, max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
small_lists = st.lists(small_values, max_size=3)
small_states = st.dictionaries(st.sampled_from("abc"), small_values, min_size=1, max_size=3)


@st.composite
def histories(draw: Any, earlier_max: int) -> Any:
    """A state, ops of the commit to undo, one later op, each fitting what is there by then."""
    state = draw(small_states)
    now = copy(state)
    earlier = []
    for _ in range(draw(st.integers(1, earlier_max))):
        op = draw(an_op(now))
        earlier.append(op)
        now = ops.apply(now, ops.own(op))
    assume(not same(now, state))
    return state, earlier, draw(an_op(now))


@given(histories(1))
@settings(max_examples=400)
def test_what_is_spared_can_be_restored(made):
    """Where the later op touches no place of the earlier, taking that back leaves all that the
    later one did: its inverse then leads to the start."""
    state, (earlier,), later = made
    places = RestoredPlaces()
    places.add(ops.apply(copy(state), ops.own(earlier)), earlier)
    if places.touched_by(later):
        return
    back = ops.invert(state, earlier)
    both = ops.fold(copy(state), [ops.own(earlier), ops.own(later)])
    undone = ops.apply(both, back)
    if later.path == earlier.path or type(earlier) not in (Splice, Move, TextSplice):
        assert same(undone, ops.apply(copy(state), ops.own(relocated(later, earlier))))


def relocated(later: Op, earlier: Op) -> Op:
    """The later op as it would have been without the earlier one: a stretch behind it moves."""
    if later.path != earlier.path:
        return later
    grown = 0
    if isinstance(earlier, Splice):
        grown = len(earlier.values) - earlier.removed
    elif isinstance(earlier, TextSplice):
        grown = len(earlier.text) - earlier.removed
    elif isinstance(earlier, Append):
        grown = len(earlier.values)
    if isinstance(later, Splice):
        return Splice(later.path, later.index - grown, later.removed, later.values)
    if isinstance(later, TextSplice):
        return TextSplice(later.path, later.index - grown, later.removed, later.text)
    if isinstance(later, Move):
        return Move(later.path, later.source - grown, later.target - grown)
    return later


@given(histories(4))
@settings(max_examples=400)
def test_an_undo_leaves_what_came_later(made):
    """Through the whole plan, with commits of several ops: what the later commit set is still set,
    and when it is taken back, too, all is as in the beginning. Else the undo is refused."""
    state, earlier, later = made
    base = {"state": state}

    def inside(op: Op) -> Op:
        return chain.from_wire(
            [chain.to_wire(op)[0], ["state", *op.path], *chain.to_wire(ops.own(op))[2:]]
        )

    with perdure.open("memory://") as store:
        agent = store.agent("a", initial=base)
        agent.checkpoint("start")
        working = agent._working
        cause = perdure.Cause("edit", group="g")
        working.commit_delta([inside(op) for op in earlier], cause)
        working.commit_delta([inside(later)], perdure.Cause("edit", group="later"))
        changed = copy(agent.at("main").plain)
        working.commit_delta([Set(("mark",), 1)], cause)
        try:
            agent.undo()
        except perdure.Conflict:
            assert same(agent.at(agent.seq).plain, {**changed, "mark": 1})
            return
        assert "mark" not in agent.state
        assert same(agent.at("main").plain, agent._working.plain)
        undone = copy(agent.at("main").plain)
        try:
            agent.undo()
        except perdure.Conflict:  # in its way stands the first undo: they are out of order
            assert same(agent.at("main").plain, undone)
        else:
            assert same(agent.at("main").plain, base)
            agent.redo()
        agent.redo()
        assert same(agent.at("main").plain, {**changed, "mark": 1})
        agent.verify()


def test_two_deletions_at_one_place_are_taken_back_in_order_only():
    """Of "ppq" the second p was deleted, then the q. The first deletion was taken back, then the
    second: the q came back in front of the p, as both had left nothing behind to go by."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"text": "ppq"})
        working = agent._working
        for group in ("first", "second"):
            cut = TextSplice(("text",), 1, 1, "")
            working.commit_delta([cut], perdure.Cause("edit", group=group))
        working.commit_delta([Set(("mark",), 1)], perdure.Cause("edit", group="first"))
        agent.undo()
        assert agent.state == {"text": "pp"}
        with pytest.raises(perdure.Conflict):
            agent.undo()
        assert agent.state == {"text": "pp"}


# -- every byte of the log -----------------------------------------------------------------------


def test_i11_any_changed_byte_of_the_log_is_found():
    """Header or payload: reading it says so, or verify does. Of the last header only the anchor
    knows; a store's own page checksums come on top."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"items": [1], "text": LONG})
        with agent.edit("why", group="g", tags=["t"], key="k") as draft:
            draft["items"].append({"x": (1, 2)})
        agent.fork("side").save({"items": []})
        agent.checkpoint("cp")
        with agent.edit() as draft:
            draft["text"] += "!"
        root = agent.verify().root
        commits = store._context.backend._agents[0].commits  # type: ignore[attr-defined]
        for index, stored in enumerate(list(commits)):
            for part in (0, 1):
                for at in range(len(stored[part])):
                    for bit in (1, 0x10, 0x80):
                        damaged = bytearray(stored[part])
                        damaged[at] ^= bit
                        commits[index] = tuple(
                            bytes(damaged) if n == part else stored[n] for n in (0, 1)
                        )
                        with pytest.raises((Corrupt, UnsupportedFormat)):
                            store.agent("a").verify(anchor=root)
                        read_all(store, len(commits))
            commits[index] = stored
        agent.verify(anchor=root)


WIDE = b"caf\xe9".decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("refused", [2**70, WIDE])
@pytest.mark.parametrize(
    "around",
    [
        lambda value, refused: (refused, value),
        lambda value, refused: {1: value, refused: 2},
        lambda value, refused: frozenset([value, refused]),
        lambda value, refused: frozenset([(refused, value)]),
        lambda value, refused: [refused, {"a": (value, {2: refused})}],
    ],
)
def test_what_msgpack_refuses_costs_the_same_at_each_level(around: Any, refused: Any) -> None:
    """Story: a linked list of amounts in wei, as tuples, was encoded three times anew at each level
    of it: twenty of them took hours, with the agent's lock held, and a hundred are allowed."""

    def nested(depth: int) -> Any:
        value: Any = None
        for _ in range(depth):
            value = around(value, refused)
        return value

    def both(value: Any) -> None:
        assert same(codec.decode(codec.encode(value)), value)
        codec.canonical(value)

    little, much = nested(4), nested(8)
    both(little)
    assert work_of(lambda: both(much)) < 5 * work_of(lambda: both(little))  # once more: 27
    both(nested(40))


def test_a_large_set_is_compared_in_proportion() -> None:
    """Story: each member that went was looked for in the list of those that came: a save that
    replaced a hundred thousand ids held the agent's lock for four minutes."""

    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    came: Any = {Counted(f"b{at}") for at in range(500)}
    diff({Counted(f"a{at}") for at in range(500)}, came)
    assert Counted.compared < 5_000


def test_decimals_are_computed_and_written_alike_whatever_a_program_sets() -> None:
    """Story: a program traps Inexact in `decimal.DefaultContext`, as Python's docs advise. A sum
    that others had committed did not fit there: a healthy log was called corrupt. And with
    `capitals` at 0 the same number was written otherwise, and a checkpoint's hash was another."""
    made = "from decimal import Decimal as D, getcontext\n"
    say = "print(add(D(1) / D(3), D(1) / D(7)), encode(D('1E+5')))"
    sets = "import decimal\nc = decimal.DefaultContext\nc.traps[decimal.Inexact] = True\n"
    sets += "c.capitals, c.Emax = 0, 384\n"
    library = (
        "from perdure.core.values.ops import add\nfrom perdure.core.values.codec import encode\n"
    )
    undo = "getcontext().traps[decimal.Inexact] = False\n"
    plain, set_up = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for code in (made + library + say, sets + made + library + undo + say)
    )
    assert plain.stdout == set_up.stdout


def read_all(store: Any, count: int) -> None:
    """Reading a damaged log ends, and raises nothing but our own errors."""
    for seq in range(1, count + 1):
        with suppress(PerdureError):
            _ = store.agent("a").at(seq).plain


def test_a_commit_that_names_itself_as_its_parent_is_corrupt():
    """One flipped bit in a parent's number made reading the state go round for ever."""

    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 1})
        agent.save({"n": 2})
        commits = store._context.backend._agents[0].commits  # type: ignore[attr-defined]
        fields = chain.read_header(commits[1][0], "")
        for parents in ([2], [3], [0], [None], ["x"], [-1]):
            fields[6] = parents
            commits[1] = (chain._encode(fields), commits[1][1])
            with pytest.raises(Corrupt, match="commit 2"):
                store.agent("a").refresh()
