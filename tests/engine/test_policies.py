"""Tools after a crash: the declared policy decides, and nothing is ever silently repeated (I5)."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.control import noting
from perdure.errors import CallFailed, Conflict, InDoubt, NeedsAttention, NotFound, RunFailed
from perdure.store import Store
from perdure.testing import boundary, run_with_kills
from tests.engine.conftest import CrashError, Crashes

# -- killed around one tool call ---------------------------------------------------------------

# What a fresh program appends: 1 create and run-started, 2 intent, 3 outcome, 4 run-finished.
BEFORE_INTENT = ["before append 2"]
NOT_IN_EFFECT = ["after append 2", "before tool 1", "at before effect 1"]
IN_EFFECT = ["at after effect 1", "after tool 1", "before append 3"]
RECORDED = ["after append 3", "before append 4", "after append 4"]
EVERYWHERE = [*BEFORE_INTENT, *NOT_IN_EFFECT, *IN_EFFECT, *RECORDED]


def pay(path: str, cents: int) -> str:
    key = perdure.idempotency_key()
    boundary("before effect")
    with open(path, "a") as file:
        file.write(f"{key}\n")
    boundary("after effect")
    return f"paid {cents}"


def look(path: str, cents: int) -> Any:
    if perdure.idempotency_key() in effects(path):
        return f"paid {cents}"
    return perdure.NOT_DONE


def effects(path: str | Path) -> list[str]:
    return Path(path).read_text().split() if Path(path).exists() else []


retry_pay = perdure.tool(on_crash="retry", name="pay")(pay)
probe_pay = perdure.tool(on_crash="probe", probe=look, name="pay")(pay)
fail_pay = perdure.tool(on_crash="fail", name="pay")(pay)
ask_pay = perdure.tool(name="pay")(pay)


def paying(tool: Callable[[str, int], str]) -> Any:
    @perdure.agent(dict, name="shop")
    def shop(run: perdure.Run[dict], path: str) -> str:
        try:
            paid = tool(path, 5)
        except InDoubt as doubt:
            paid = f"doubt: {doubt.target}"
        return paid

    return shop


def program(function: Any) -> Callable[[Path], Any]:
    def scenario(folder: Path) -> Any:
        with perdure.open(folder / "shop.db", durability="os") as store:
            return store.run(function, "a", str(folder / "effects"))

    return scenario


def intents(store: Store) -> list[dict[str, Any]]:
    log = store.agent("a").log()
    return [dict(r) for commit in log for r in commit.records if r["t"] == "intent"]


@pytest.mark.parametrize("where", EVERYWHERE)
def test_i5_retry_calls_again_with_the_same_key_and_a_new_intent(
    tmp_path: Path, where: str
) -> None:
    end = run_with_kills(program(paying(retry_pay)), tmp_path, [where])
    assert end.killed_at == [where] and end.result == "paid 5"
    done = effects(tmp_path / "effects")
    assert len(done) == (2 if where in IN_EFFECT else 1) and len(set(done)) == 1
    with perdure.open(tmp_path / "shop.db") as store:
        found = intents(store)
        doubted = where in NOT_IN_EFFECT + IN_EFFECT
        assert [intent["attempt"] for intent in found] == ([1, 2] if doubted else [1])
        assert {intent["key"] for intent in found} == set(done)
        (effect,) = store.handle("a/shop/main").effects()
        assert (effect.state, effect.attempts, effect.result) == ("done", len(found), "paid 5")


@pytest.mark.parametrize("where", EVERYWHERE)
def test_i5_a_probe_makes_it_exactly_once(tmp_path: Path, where: str) -> None:
    end = run_with_kills(program(paying(probe_pay)), tmp_path, [where])
    assert end.killed_at == [where] and end.result == "paid 5"
    assert len(effects(tmp_path / "effects")) == 1


@pytest.mark.parametrize("where", EVERYWHERE)
def test_i5_fail_raises_in_doubt_and_does_so_again(tmp_path: Path, where: str) -> None:
    scenario = program(paying(fail_pay))
    doubted = where in NOT_IN_EFFECT + IN_EFFECT
    # Killed a second time, after the doubt was recorded and before the run finished.
    second = ["before append 2"] if doubted else []
    end = run_with_kills(scenario, tmp_path, [where, *second])
    assert end.killed_at == [where, *second]
    expected = "doubt: run a/shop/main, call pay#1" if doubted else "paid 5"
    assert end.result == expected
    assert len(effects(tmp_path / "effects")) == (0 if where in NOT_IN_EFFECT else 1)
    assert run_with_kills(scenario, tmp_path, []).result == expected


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("way_out", ["done", "not_done", "cancel"])
def test_i5_i8_ask_stops_until_somebody_settles(tmp_path: Path, where: str, way_out: str) -> None:
    scenario = program(paying(ask_pay))
    end = run_with_kills(scenario, tmp_path, [where])
    before = len(effects(tmp_path / "effects"))
    if where not in NOT_IN_EFFECT + IN_EFFECT:
        assert end.result == "paid 5" and before == 1
        return
    assert end.error is not None and end.error.startswith("NeedsAttention")
    assert "perdure settle a 'pay#1'" in end.error
    assert before == (1 if where in IN_EFFECT else 0), "stopping must not call it"
    again = run_with_kills(scenario, tmp_path, [])
    assert again.error == end.error, "it stays stopped, with the way out"
    with perdure.open(tmp_path / "shop.db") as store:
        handle = store.handle("a/shop/main")
        assert handle.status == "needs_attention"
        assert [effect.state for effect in handle.effects()] == ["in doubt"]
        if way_out == "cancel":
            handle.cancel("enough")
        elif way_out == "done":
            handle.settle("pay#1", done="paid by hand", by="ann")
        else:
            handle.settle("pay#1", not_done=True, by="ann")
    end = run_with_kills(scenario, tmp_path, [])
    after = len(effects(tmp_path / "effects"))
    if way_out == "cancel":
        assert end.error is not None and end.error.startswith("RunFailed") and after == before
    elif way_out == "done":
        assert end.result == "paid by hand" and after == before
    else:
        assert end.result == "paid 5" and after == before + 1


# -- the rest, on both backends ----------------------------------------------------------------


def crashing(crash: Crashes, **options: Any) -> Any:
    """An agent function with one tool, which crashes after it took effect."""

    @perdure.tool(name="send", **options)
    def send(text: str) -> int:
        crash.note((text, perdure.idempotency_key()))
        crash("sent")
        return len(text)

    @perdure.agent(dict)
    def mail(run: perdure.Run[dict], text: str) -> int:
        return send(text)

    return mail


@pytest.mark.parametrize("lost", [False, True])
def test_a_run_knows_of_a_doubt_that_a_framework_caught(
    store: Store, crash: Crashes, lost: bool
) -> None:
    """A framework caught InDoubt, told its model that the tool failed, and the model called it
    again. Nothing told the function, which asks that model, what the framework had caught."""

    @perdure.tool(on_crash="fail")
    def send(text: str) -> Any:
        crash.note(text)
        crash("sent")
        return object() if lost else text

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        assert run.doubt is None
        for _ in range(3):  # as often as the model says so
            with contextlib.suppress(Exception):
                send("hi")
            crash("caught")
            if run.doubt is not None:
                raise run.doubt
        return "sent"

    crash.arm("caught", *([] if lost else ["sent"]))
    for _ in crash.armed[:]:
        with pytest.raises(CrashError):
            store.run(act, "a")
    for _ in range(2):
        with pytest.raises(CallFailed if lost else InDoubt) as doubt:
            store.run(act, "a")
        assert getattr(doubt.value, "took_effect", False) is lost
    assert crash.calls == ["hi"]


def test_a_probe_that_raises_stops_the_run(store: Store, crash: Crashes) -> None:
    answers: list[Any] = [ConnectionError("bank is down"), perdure.NOT_DONE]

    def probe(text: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    mail = crashing(crash, on_crash="probe", probe=probe)
    crash.arm("sent")
    with pytest.raises(CrashError):
        store.run(mail, "a", "hi")
    with pytest.raises(NeedsAttention, match="bank is down") as stopped:
        store.run(mail, "a", "hi")
    assert isinstance(stopped.value.__cause__, ConnectionError)
    assert len(crash.calls) == 1
    assert store.run(mail, "a", "hi") == 2, "the probe answers now: not done, so it is sent"
    assert len(crash.calls) == 2 and len(set(crash.calls)) == 1


@pytest.mark.parametrize("answer", [None, object()])
def test_a_probe_that_answers_nonsense_stops_the_run(
    store: Store, crash: Crashes, answer: Any
) -> None:
    """A probe returned None for "not found", of a call declared to return an int: the run failed
    for good, with the call still in doubt."""
    mail = crashing(crash, on_crash="probe", probe=lambda text: answer)
    crash.arm("sent")
    with pytest.raises(CrashError):
        store.run(mail, "a", "hi")
    with pytest.raises(NeedsAttention, match="neither NOT_DONE nor a result"):
        store.run(mail, "a", "hi")
    store.handle("a/mail/main").settle("send#1", done=2)
    assert store.run(mail, "a", "hi") == 2
    assert len(crash.calls) == 1


def test_settling_what_is_not_in_doubt_is_refused(store: Store, crash: Crashes) -> None:
    mail = crashing(crash)
    crash.arm("sent")
    with pytest.raises(CrashError):
        store.run(mail, "a", "hi")
    handle = store.handle("a/mail/main")
    with pytest.raises(NotFound, match="in doubt: send#1"):
        handle.settle("sned#1", not_done=True)
    with pytest.raises(ValueError, match="either"):
        handle.settle("send#1")
    with pytest.raises(ValueError, match="either"):
        handle.settle("send#1", done=1, not_done=True)
    with pytest.raises(perdure.Unstorable):
        handle.settle("send#1", done=object())
    handle.settle("send#1", done=7, by="ann")
    assert handle.status == "pending"
    assert store.run(mail, "a", "hi") == 7
    with pytest.raises(Conflict, match="settled"):
        handle.settle("send#1", not_done=True)
    (record,) = [r for c in store.agent("a").log() for r in c.records if r["t"] == "outcome"]
    assert (record["by"], record["who"]) == ("person", "ann")


def test_a_cancelled_run_is_not_revived_by_settling(store: Store, crash: Crashes) -> None:
    """Someone settled the doubtful call of a cancelled run, for the record: the run was pending
    again, and went on."""
    mail = crashing(crash)
    crash.arm("sent")
    with pytest.raises(CrashError):
        store.run(mail, "a", "hi")
    handle = store.handle("a/mail/main")
    handle.cancel("not needed any more")
    handle.settle("send#1", not_done=True)
    assert handle.status == "cancelled"
    with pytest.raises(RunFailed, match="not needed any more"):
        store.run(mail, "a", "hi")
    assert len(crash.calls) == 1
    with pytest.raises(Conflict, match="cancelled already"):
        handle.cancel()


@pytest.mark.parametrize("heard", [True, False])
def test_a_run_that_finishes_while_it_is_cancelled_stays_finished(
    store: Store, crash: Crashes, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """`cancel` looked at the run, the run finished, `cancel` wrote over its result. A run that goes
    on meanwhile hears of it; one that is past its last look stays finished."""
    mail = crashing(crash)
    crash.arm("sent")
    with pytest.raises(CrashError):
        store.run(mail, "a", "hi")
    handle = store.handle("a/mail/main")
    handle.settle("send#1", done=2)
    ends: list[Any] = []
    reader = noting.reader_of_run

    def finish_meanwhile(*which: Any) -> Any:
        if not ends:
            ends.append("looking")
            try:
                ends.append(store.run(mail, "a", "hi"))
            except RunFailed as cancelled:
                ends.append(cancelled)
        return reader(*which)

    monkeypatch.setattr(noting, "reader_of_run", finish_meanwhile)
    if not heard:
        monkeypatch.setattr(type(handle), "_send", lambda *message: True)
        with pytest.raises(Conflict, match="done already"):
            handle.cancel("enough")
        assert ends[1] == handle.result(timeout=0) == 2
        return
    handle.cancel("enough")
    assert handle.status == "cancelled" and "enough" in str(ends[1])
    store.agent("a").verify()


def test_a_status_tells_that_it_runs_again(store: Store, crash: Crashes) -> None:
    """A settled run was executing, and its handle said that it needed attention."""
    seen: list[str] = []

    @perdure.tool
    def send() -> int:
        crash("sent")
        return 1

    @perdure.agent(dict)
    def mail(run: perdure.Run[dict]) -> int:
        sent = send()
        seen.append(store.handle(run.id).status)
        return sent

    crash.arm("sent")
    with pytest.raises(CrashError):
        store.run(mail, "a")
    with pytest.raises(NeedsAttention):
        store.run(mail, "a")
    handle = store.handle("a/mail/main")
    assert handle.status == "needs_attention"
    with pytest.raises(NeedsAttention, match="nobody knows whether it took effect"):
        handle.result(timeout=5)
    handle.settle("send#1", done=1)
    assert store.run(mail, "a") == 1
    assert seen == ["running"]


class Opaque:
    pass


@pytest.mark.parametrize(("annotation", "value"), [(Any, Opaque()), (int, "no int")])
def test_a_tool_whose_result_cannot_be_stored_took_effect(
    store: Store, crash: Crashes, annotation: Any, value: Any
) -> None:
    """The tool of type int gave a string: no outcome was recorded, and the run failed in doubt."""

    @perdure.tool(returns=annotation)
    def act() -> Any:
        crash.note("acted")
        return value

    @perdure.agent(dict)
    def caller(run: perdure.Run[dict]) -> str:
        try:
            act()
        except CallFailed as failed:
            crash("caught")
            return failed.problem
        return "stored"

    crash.arm("caught")
    with pytest.raises(CrashError):
        store.run(caller, "a")
    assert "took effect" in store.run(caller, "a")
    assert crash.calls == ["acted"]
    (effect,) = store.handle("a/caller/main").effects()
    assert effect.state == "failed"


def _child(url: str, answers: Any) -> None:
    with perdure.open(url) as store:
        handle = store.handle("a/shop/main")
        try:
            handle.settle("pay#1", not_done=True)
        except Conflict as held:
            answers.send(str(held))
        try:
            handle.cancel()
        except Conflict as held:
            answers.send(str(held))


def test_a_run_that_executes_is_not_settled_by_others_and_leaves_when_it_is_cancelled(
    tmp_path: Path,
) -> None:
    url = str(tmp_path / "shop.db")
    ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)

    @perdure.tool(name="pay")
    def pay_slowly() -> str:
        process = multiprocessing.get_context("spawn").Process(target=_child, args=(url, theirs))
        process.start()
        process.join()
        return "paid"

    @perdure.agent(dict)
    def shop(run: perdure.Run[dict]) -> str:
        paid = pay_slowly()
        after.append(paid)
        return run.call(str.upper, paid)

    after: list[str] = []
    with perdure.open(url) as store:
        with pytest.raises(RunFailed, match="was cancelled: by request"):
            store.run(shop, "a")
        assert ours.poll(0) and "is running on it" in ours.recv()
        assert not ours.poll(0), "cancelling is not refused"
        assert after == ["paid"], "what it was at came to its end"
        (effect,) = store.handle("a/shop/main").effects()
        assert (effect.state, effect.result) == ("done", "paid")
        store.agent("a").verify()
