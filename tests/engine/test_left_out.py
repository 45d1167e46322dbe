"""Arguments that an author keeps out of the log: previews carried keys and addresses into it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import NeedsAttention, Store
from perdure.core.format.envelope import open_envelope
from perdure.core.schema.value_digest import digest
from perdure.testing import kill_at_every_boundary, play, replay
from tests.engine.conftest import Async, CrashError, Crashes, Place

SECRET = "sk-canary-4711"
ADDRESS = "12 Canary Row"
KEY, NEWER = b"k" * 32, "n" * 32


def told(store: Store, run: str) -> str:
    """Returns all that people are told of a run."""
    handle = store.handle(run)
    log = [*store.agent("a").log()]
    records = [commit.records for commit in log]
    return repr([log, records, handle.effects(), handle.report(), handle.why(), handle.info])


def kept(store: Store) -> str:
    """Returns all that a store keeps of an agent, as it is before it is packed."""
    info = store.find("a")
    assert info is not None
    log = [*store.export_log(info)]
    return repr([(one.header, open_envelope(one.payload, "a")) for one in log])


def previews(store: Store) -> list[str]:
    """Returns what people see of the arguments of steps and tool calls."""
    records = [record for commit in store.agent("a").log() for record in commit.records]
    return [one["preview"] for one in records if one["t"] in ("step", "intent")]


def digests(store: Store) -> list[dict[str, str]]:
    records = [record for commit in store.agent("a").log() for record in commit.records]
    return [one["args"] for one in records if one["t"] in ("step", "intent")]


def test_what_is_left_out_is_nowhere(place: Place) -> None:
    """The key that a step was called with, and the address of a customer, were in the log, in what
    `effects` and `why` say, and in the message about the call that a person had to settle."""
    store = place.open(digest_key=KEY)
    tries: list[int] = []

    @perdure.step(record_args=False, retry=perdure.Retry(attempts=2, first=0.0))
    def fetch(key: str, *, page: int = 0) -> str:
        tries.append(page)
        if len(tries) == 1:
            raise ConnectionError("the first time")
        return f"page {page}"

    @perdure.tool(record_args=lambda invoice, address: {"invoice": invoice})
    def send(invoice: str, address: str) -> str:
        if invoice == "in-2":
            raise CrashError(invoice)
        return f"sent {invoice}"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        return [fetch(SECRET, page=1), send("in-1", ADDRESS), send("in-2", ADDRESS)]

    with pytest.raises(CrashError):
        store.run(act, "a")
    with pytest.raises(NeedsAttention, match="'in-2'") as stopped:
        store.run(act, "a")
    said = told(store, "a/act/main") + kept(store) + repr(stopped.value) + str(stopped.value)
    assert "in-1" in kept(store)
    assert previews(store) == ["…", "invoice='in-1'", "invoice='in-2'"]
    for secret in (SECRET, ADDRESS):
        assert secret not in said
        assert digest(secret) not in said  # or who has it tries addresses until one fits
    place.close()
    if place.url.startswith("sqlite"):  # and what is not packed: rows, indexes
        path = Path(place.url.removeprefix("sqlite:///"))
        whole = b"".join(one.read_bytes() for one in path.parent.iterdir() if one.is_file())
        assert b"a/act/main" in whole
        for secret in (SECRET, ADDRESS):
            assert secret.encode() not in whole
            assert digest(secret).encode() not in whole


@pytest.mark.parametrize(
    ("shows", "said"),
    [
        (False, "…"),
        (True, "user='eve', token='t'"),
        (dict, "user='eve', token='t'"),
        (lambda user, token: {"user": user}, "user='eve'"),
        (lambda user, token: {"a b\n": user, 3: 4}, "'a b\\n'='eve', 3=4"),
        (lambda user, token: f"{user}\x1b[2J\nagain", "'eve\\x1b[2J\\nagain'"),
        (lambda user, token: None, "…"),
        (lambda user, token: {"u": 1}["user"], "<record_args: KeyError>"),
        (lambda user, token: {"user": "u" * 90}, "user='" + "u" * 58 + "…"),
    ],
)
def test_people_see_what_the_author_shows(runs: Async, shows: Any, said: str) -> None:
    @perdure.step(record_args=shows)
    def login(*, user: str, token: str) -> int:
        return 1

    @perdure.tool(record_args=shows)
    async def enter(*, user: str, token: str) -> int:
        return 2

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        return await run.call(login, user="eve", token="t") + await enter(user="eve", token="t")

    assert runs.run(act) == 3
    assert previews(runs.store) == [said, said]


def test_a_call_without_arguments_leaves_nothing_out(store: Store) -> None:
    @perdure.step(record_args=False)
    def ping() -> int:
        return 1

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        return ping()

    store.run(act, "a")
    assert previews(store) == [""]


class Vault:
    __perdure_key__ = "vault of eve"

    @perdure.step(record_args=lambda self, door: {"door": door})
    def open(self, door: int) -> int:
        return door


def test_an_object_and_what_a_partial_adds_are_left_out_too(store: Store) -> None:
    def call(url: str, *, key: str) -> str:
        return url

    calling = perdure.tool(record_args=False)(functools.partial(call, key=SECRET))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> tuple[int, str]:
        return Vault().open(3), calling("u")

    assert store.run(act, "a") == (3, "u")
    assert previews(store) == ["door=3", "…"]
    assert SECRET not in kept(store) and "vault of eve" not in kept(store)


def test_a_partial_or_a_wrapper_of_a_step_leaves_out_what_that_does(place: Place) -> None:
    """`run.call(partial(sign_in, key))` was recorded as a step of its own, under the same name:
    with the key in its preview. So was a wrapper by `functools.wraps`."""

    @perdure.step(record_args=False, retry=perdure.Retry(attempts=2, first=0.0))
    def sign_in(key: str, retries: int = 0) -> int:
        tries.append(key)
        if len(tries) == 1:
            raise ConnectionError
        return retries

    @perdure.tool(on_crash="retry", record_args=False)
    def pay(key: str, cents: int) -> int:
        return cents

    @functools.wraps(sign_in)
    def wrapped(*args: Any, **named: Any) -> int:
        return sign_in(*args, **named)

    tries: list[str] = []
    again = perdure.step(functools.partial(sign_in, SECRET))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        bound = functools.partial(functools.partial(sign_in, SECRET), retries=1)
        return [
            run.call(bound),
            run.call(bound, retries=2),
            run.call(functools.partial(pay, SECRET), cents=3),
            run.call(functools.partial(Vault().open), 4),
            run.call(wrapped, SECRET, 5),
            again(retries=6),
            *run.map(functools.partial(sign_in, SECRET), [7]),
        ]

    @perdure.agent(dict)
    async def aact(run: perdure.AsyncRun[dict]) -> int:
        return await run.call(functools.partial(pay, SECRET), cents=3)

    async def main() -> int:
        async with perdure.open_async(place.url) as opened:
            return await opened.run(aact, "b")

    store = place.open()
    assert store.run(act, "a") == [1, 2, 3, 4, 5, 6, 7]
    assert SECRET not in kept(store)
    assert [one.place for one in store.handle("a/act/main").effects()] == ["pay#1"]
    assert asyncio.run(main()) == 3
    assert store.handle("b/aact/main").effects()[0].preview == "…"


def test_calls_are_told_apart_and_changes_noticed(place: Place, crash: Crashes) -> None:
    """A replay has to notice that a call that nobody is shown is another one now."""
    store = place.open(digest_key=KEY)
    secrets = [SECRET, ADDRESS]

    @perdure.step(record_args=False)
    def use(secret: str) -> str:
        crash.note(secret)
        return f"used {len(secret)}"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        used = [use(one) for one in secrets]
        crash("here")
        return used

    crash.arm("here")
    with pytest.raises(CrashError):
        store.run(act, "a")
    first, second = digests(store)
    assert first != second and first["secret"].startswith("k")
    secrets[0] = "another"
    with pytest.raises(NeedsAttention, match=r"other arguments \(secret\)") as changed:
        store.run(act, "a")
    assert "another" not in str(changed.value) and SECRET not in str(changed.value)
    secrets[0] = SECRET
    assert store.run(act, "a") == ["used 14", "used 13"]
    assert crash.calls == [SECRET, ADDRESS]
    assert replay(store, act).check() == ["used 14", "used 13"]


def test_without_a_key_they_are_told_apart_all_the_same(store: Store) -> None:
    @perdure.step(record_args=False)
    def use(secret: str) -> int:
        return len(secret)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        return use(SECRET)

    store.run(act, "a")
    assert digests(store) == [{"secret": f"k:{digest(SECRET)}"}]


FORMS: dict[str, tuple[Any, Any]] = {
    "newer key": (KEY, [NEWER, KEY]),
    "first key": (None, [NEWER]),
    "no key any more": ([NEWER], [KEY, NEWER]),
}


@pytest.mark.parametrize("keys", FORMS.values(), ids=FORMS.keys())
def test_a_run_goes_on_under_other_keys(place: Place, crash: Crashes, keys: Any) -> None:
    """With a new key each run that was under way stopped: its calls had other digests."""

    order = ["a1", "b2", "c3"]

    @perdure.tool(record_args=False, on_crash="fail")
    def pay(secret: str) -> str:
        crash.note(secret)
        return f"paid {secret[:1]}"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        paid = sorted([pay(one) for one in order])
        crash("here")
        return [*paid, pay("d4")]

    crash.arm("here")
    before, after = keys
    kept_open = place.open(digest_key=before)
    with pytest.raises(CrashError):
        kept_open.run(act, "a")
    order.reverse()  # as those of a set may be
    assert place.open(digest_key=after).run(act, "a") == ["paid a", "paid b", "paid c", "paid d"]
    assert crash.calls == ["a1", "b2", "c3", "d4"]


@pytest.mark.parametrize("first", [True, False])
def test_a_deploy_that_leaves_arguments_out_stops_no_run(
    place: Place, crash: Crashes, first: bool
) -> None:
    """`record_args=False` was added, and deployed: the runs under way needed attention. So did
    those of a deploy that was taken back."""
    store = place.open(digest_key=KEY)

    def version(record_args: bool) -> Any:
        @perdure.tool(record_args=record_args, name="pay")
        def pay(secret: str) -> str:
            crash.note(secret)
            return "paid"

        @perdure.agent(dict, name="act")
        def act(run: perdure.Run[dict]) -> list[str]:
            paid = [pay("one"), pay("two")]
            crash("here")
            return [*paid, pay("three")]

        return act

    crash.arm("here")
    with pytest.raises(CrashError):
        store.run(version(first), "a")
    assert store.run(version(not first), "a") == ["paid"] * 3
    assert crash.calls == ["one", "two", "three"]


def test_a_store_without_the_key_stops_the_run_until_it_has_it(
    place: Place, crash: Crashes
) -> None:
    kept_open = place.open(digest_key=KEY)

    @perdure.tool(record_args=False)
    def pay(secret: str) -> str:
        crash.note(secret)
        return "paid"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        paid = pay(SECRET)
        crash("here")
        return paid

    crash.arm("here")
    with pytest.raises(CrashError):
        kept_open.run(act, "a")
    for keys in (None, NEWER):
        with pytest.raises(NeedsAttention, match="digest_key=") as lacking:
            place.open(digest_key=keys).run(act, "a")
        for key in (KEY.decode(), NEWER):
            assert key not in str(lacking.value)
    assert kept_open.run(act, "a") == "paid"
    assert crash.calls == [SECRET]


@pytest.mark.parametrize("record_args", [False, True])
def test_a_payment_before_a_new_key_is_not_made_again_unasked(
    place: Place, crash: Crashes, record_args: bool
) -> None:
    """A run was set back. Its payment has other digests by now: nothing may take that for another
    payment."""

    @perdure.step
    def note() -> int:
        return 1

    def version(record_args: bool) -> Any:
        @perdure.tool(record_args=record_args, name="pay")
        def pay(secret: str) -> str:
            crash.note(secret)
            return "paid"

        @perdure.agent(dict, name="act")
        def act(run: perdure.Run[dict]) -> str:
            note()
            return pay(SECRET)

        return act

    before = place.open(digest_key=KEY)
    assert before.run(version(False), "a") == "paid"
    before.handle("a/act/main").retry("note#1", effects="reuse")
    after = place.open(digest_key=[NEWER, KEY])
    assert after.run(version(record_args), "a") == "paid"
    assert crash.calls == [SECRET]
    after.handle("a/act/main").retry("note#1")
    with pytest.raises(NeedsAttention, match="it was made before") as asked:
        after.run(version(record_args), "a")
    assert record_args or SECRET not in str(asked.value)
    assert crash.calls == [SECRET]


def test_a_killed_program_repeats_nothing(tmp_path: Path) -> None:
    @perdure.tool(record_args=False, on_crash="retry")
    def pay(secret: str) -> str:
        return "paid"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        return [pay(SECRET), pay(ADDRESS)]

    assert all(ending.result == ["paid"] * 2 for ending in kill_at_every_boundary(act))


def test_a_played_run_shows_no_more(store: Store) -> None:
    @perdure.tool(record_args=False)
    def pay(secret: str) -> str:
        raise AssertionError("a stand-in is called")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return pay(SECRET)

    played = play(act, tools={pay: lambda secret: "paid"})
    assert played.result == "paid"
    assert SECRET not in repr(played)


class Lying(str):
    """A text that says that it is longer than it is."""

    def encode(self, *_: Any) -> bytes:
        return b"x" * 40


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (b"short", ValueError),
        ("", ValueError),
        (Lying("short"), ValueError),
        ([], None),
        ([KEY, "short"], ValueError),
        (32, TypeError),
        ([KEY, None], TypeError),
        ({KEY}, TypeError),
        (bytearray(KEY), TypeError),
        ("\ud800" * 20, None),
    ],
)
def test_a_digest_key_that_is_none(key: Any, error: Any) -> None:
    refused = contextlib.nullcontext() if error is None else pytest.raises(error)
    with refused as raised:
        perdure.open("memory://", digest_key=key).close()
    if raised is not None:
        assert "short" not in str(raised.value)


def test_the_environment_has_the_keys(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line opens stores, too: a worker has no code of ours that could pass a key."""

    @perdure.step(record_args=False)
    def use(secret: str) -> int:
        return len(secret)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        return use(SECRET)

    place.open(digest_key=NEWER).run(act, "a")
    monkeypatch.setenv("PERDURE_DIGEST_KEY", f"{KEY.decode()} {NEWER}")
    store = place.open()
    assert replay(store, act).check() == len(SECRET)
    monkeypatch.setenv("PERDURE_DIGEST_KEY", "short")
    with pytest.raises(ValueError, match="PERDURE_DIGEST_KEY") as short:
        place.open()
    assert "'short'" not in str(short.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "record_args= must be True or False"),
        (1, "record_args= must be True or False"),
        ("no", "record_args= must be True or False"),
        (lambda arguments: arguments, "arguments of use"),
        (lambda secret, page: {}, "arguments of use"),
        (lambda: None, "arguments of use"),
    ],
)
def test_what_shows_no_arguments_is_refused_where_it_is_declared(given: Any, problem: str) -> None:
    def use(secret: str, page: int = 0) -> int:
        return page

    for decorator in (perdure.step, perdure.tool):
        with pytest.raises(TypeError, match=problem):
            decorator(record_args=given)(use)


def test_what_must_be_awaited_shows_no_arguments() -> None:
    async def later(secret: str) -> dict[str, str]:
        return {}

    def one_by_one(secret: str) -> Any:
        yield secret

    for given in (later, one_by_one):
        with pytest.raises(TypeError):
            perdure.step(record_args=given)(lambda secret: secret)
