"""Runs that outlive their code: they go on where it still fits, and say where it does not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure import Signal, Timer
from perdure.engine.functions import agent_functions
from perdure.errors import NeedsAttention
from perdure.store import Store
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import go, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(agent_functions, "_versions", {})
    yield
    verify_all(place)


@perdure.step
def price(item: str) -> int:
    return len(item)


@perdure.step
def fee(amount: int) -> int:
    return amount // 2


def selling(body: Any, **options: Any) -> Any:
    @perdure.agent(dict, name="sell", **options)
    def sell(run: perdure.Run[dict], item: str) -> Any:
        return body(run, item)

    return sell


def old_way(run: perdure.Run[dict], item: str) -> Any:
    amount = price(item)
    run.wait_for("paid")
    return ["old", amount]


def test_a_changed_function_goes_on_where_its_recorded_steps_match(store: Store) -> None:
    def more(run: perdure.Run[dict], item: str) -> Any:
        amount = price(item)
        run.wait_for("paid")
        return ["new", amount, fee(amount)]

    go(store, selling(old_way), "a", "book")
    store.handle("a/sell/main").signal("paid")
    assert go(store, selling(more), "a", "book") == ["new", 4, 2]


def waiting_for(**waits: Any) -> Any:
    def body(run: perdure.Run[dict], item: str) -> Any:
        amount = price(item)
        return [run.select(**waits).name, amount]

    return body


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (lambda run, item: [run.wait_for("paid"), price(item)], "now calls wait_for:paid#1"),
        (lambda run, item: price(item), r"ended, where it had recorded wait select#1"),
        (waiting_for(paid=Signal("payed"), late=Timer(9)), r"other arguments \(paid\)"),
        (waiting_for(paid=Signal("paid")), r"other arguments \(late\)"),
        (waiting_for(gone=Signal("paid"), late=Timer(9)), r"other arguments \(.*gone.*\)"),
    ],
)
def test_one_that_waits_for_something_else_shows_what_was_recorded_and_what_is_expected(
    store: Store, new: Any, words: str
) -> None:
    """Of a wait only the name was compared: the run went on waiting for what the new code did not
    know, and gave it that."""
    old = waiting_for(paid=Signal("paid"), late=Timer(3600))
    go(store, selling(old), "a", "book")
    handle = store.handle("a/sell/main")
    handle.signal("paid")
    with pytest.raises(NeedsAttention, match=words):
        go(store, selling(new), "a", "book")
    assert handle.status == "needs_attention" and "recorded" in str(handle.info.problem)
    assert go(store, selling(old), "a", "book") == ["paid", 4]


def test_for_how_long_it_waits_at_most_may_change(store: Store) -> None:
    go(store, selling(waiting_for(paid=Signal("paid"), late=Timer(3600))), "a", "book")
    store.handle("a/sell/main").signal("paid")
    new = selling(waiting_for(paid=Signal("paid"), late=Timer(60)))
    assert go(store, new, "a", "book") == ["paid", 4]


def patched(run: perdure.Run[dict], item: str) -> Any:
    amount = price(item)
    if run.patched("fee"):
        amount += fee(amount)
    run.wait_for("paid")
    return [amount, run.patched("later")]


def test_patched_keeps_runs_that_were_past_it_on_the_old_way(store: Store, crash: Crashes) -> None:
    go(store, selling(old_way), "a", "book")
    store.handle("a/sell/main").signal("paid")
    assert go(store, selling(patched), "a", "book") == [4, True], "past one, and not the other"

    go(store, selling(patched), "b", "book")
    store.handle("b/sell/main").signal("paid")
    assert go(store, selling(patched), "b", "book") == [6, True]


def test_patched_says_the_same_again_after_a_crash(place: Place, crash: Crashes) -> None:
    def body(run: perdure.Run[dict], item: str) -> Any:
        found = [run.patched("one")]
        price(item)
        crash("after")
        return [*found, run.patched("two")]

    crash.arm("after")
    with pytest.raises(CrashError):
        go(place.open(), selling(body), "a", "book")
    assert go(place.open(), selling(body), "a", "book") == [True, True]


def test_a_patch_is_removed_when_no_old_run_is_left(store: Store) -> None:
    """The docs say to remove the call then; but each unfinished run of the new kind had recorded
    it, and stopped where the function did not come to it any more."""

    def without(run: perdure.Run[dict], item: str) -> Any:
        amount = price(item)
        amount += fee(amount)
        run.wait_for("paid")
        return [amount]

    def in_task(run: perdure.Run[dict], item: str) -> Any:
        return run.map(lambda one: with_patch(run, one), [item])[0]

    def in_task_without(run: perdure.Run[dict], item: str) -> Any:
        return run.map(lambda one: without(run, one), [item])[0]

    def with_patch(run: perdure.Run[dict], item: str) -> Any:
        return patched(run, item)[:1]

    go(store, selling(with_patch), "a", "book")
    store.handle("a/sell/main").signal("paid")
    assert go(store, selling(without), "a", "book") == [6]
    go(store, selling(in_task), "b", "book")
    store.handle("b/sell/main").signal("paid")
    assert go(store, selling(in_task_without), "b", "book") == [6]


def test_an_asynchronous_run_outlives_its_patch(runs: Async, crash: Crashes) -> None:
    def act_of(body: Any) -> Any:
        return perdure.agent(dict, name="act")(body)

    async def with_patch(run: perdure.AsyncRun[dict]) -> Any:
        amount = 4 + (await run.call(fee, 4) if run.patched("fee") else 0)
        crash("behind it")
        return amount

    async def without(run: perdure.AsyncRun[dict]) -> Any:
        return 4 + await run.call(fee, 4)

    crash.arm("behind it")
    runs.crash(act_of(with_patch))
    assert runs.run(act_of(without)) == 6


def test_a_loop_does_not_change_its_way_in_the_middle(place: Place, crash: Crashes) -> None:
    """An old run was told False, False and, where its loop came to what was not recorded, True; and
    then True from the first time on, for the answer was found by its number."""

    def loop(run: perdure.Run[dict], item: str) -> Any:
        for _ in range(2):
            price(item)
        run.wait_for("paid")
        return None

    def new(run: perdure.Run[dict], item: str) -> Any:
        found = []
        for number in range(4):
            found.append(run.patched("fee"))
            price(item)
            if number == 1:
                run.wait_for("paid")
        crash("behind the loop")
        return [found, run.patched("fee"), run.patched("other")]

    store = place.open()
    go(store, selling(loop), "a", "book")
    store.handle("a/sell/main").signal("paid")
    crash.arm("behind the loop", "behind the loop")
    for _ in range(2):
        with pytest.raises(CrashError):
            go(store, selling(new), "a", "book")
    assert go(store, selling(new), "a", "book") == [[False] * 4, False, True]


def test_the_next_turn_of_an_old_run_is_new(store: Store) -> None:
    def turns(run: perdure.Run[dict], item: str) -> Any:
        run.wait_for("paid")
        return None

    def new(run: perdure.Run[dict], item: str) -> Any:
        found = run.patched("fee")
        run.wait_for("paid")
        return run.again("next") if item == "first" else [found]

    go(store, selling(turns), "a", "first")
    handle = store.handle("a/sell/main")
    handle.signal("paid")
    handle.signal("paid")
    go(store, selling(new), "a", "first")
    assert go(store, selling(new), "a", "first") == [True]


def test_old_runs_go_to_old_code_and_new_runs_to_new(place: Place) -> None:
    def new_way(run: perdure.Run[dict], item: str) -> Any:
        run.wait_for("paid")
        return ["new", price(item)]

    store = place.open()
    old = selling(old_way, version="1")
    go(store, old, "a", "book")
    new = selling(new_way, version="2")
    go(store, new, "b", "book")
    for agent in ("a", "b"):
        store.handle(f"{agent}/sell/main").signal("paid")
    assert go(place.open(), new, "a", "book") == ["old", 4]
    assert go(place.open(), new, "b", "book") == ["new", 4]
    assert [run.version for run in store.runs()] == ["1", "2"]
    assert go(place.open(), new, "a", "book") == ["old", 4], "recorded"


def test_without_the_old_code_new_code_goes_on_if_it_replays_that_and_fits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(store, selling(old_way, version="1"), "a", "book")
    go(store, selling(old_way, version="1"), "b", "book")
    monkeypatch.setattr(agent_functions, "_versions", {})  # another process, without the old code
    for agent in ("a", "b"):
        store.handle(f"{agent}/sell/main").signal("paid")
    other = selling(lambda run, item: run.wait_for("paid"), version="2", replays=["1"])
    with pytest.raises(NeedsAttention, match="where it had recorded step price#1"):
        go(store, other, "a", "book")
    fits = selling(
        lambda run, item: [price(item), run.wait_for("paid")], version="3", replays=["1"]
    )
    assert go(store, fits, "b", "book") == [4, None]
    assert [run.version for run in store.runs()] == ["1", "3"], "of the one that recorded last"
    assert go(store, selling(old_way, version="1"), "a", "book") == ["old", 4]


def test_an_old_turn_ends_under_its_version(store: Store) -> None:
    def turning(name: str) -> Any:
        def body(run: perdure.Run[dict], item: str) -> Any:
            run.wait_for("paid")
            return run.again("x") if item == "book" else [name, item]

        return body

    go(store, selling(turning("old"), version="1"), "a", "book")
    new = selling(turning("new"), version="2")
    ends = []
    for number in range(2):
        store.handle("a/sell/main").signal("paid", number)
        ends.append(go(store, new, "a", "book"))
    assert ends == [None, ["old", "x"]]


def put_back(
    store: Store, *, edits_anew: bool
) -> tuple[Callable[..., Any], Callable[..., Any], perdure.Schema[Any]]:
    """A run that waits under version 1 of its schema; returns the function of then, that of a
    program that is deployed now, and the schema of now."""
    first = perdure.Schema(dict, id="sale", version=1)
    second = perdure.Schema(
        dict, id="sale", version=2, migrations={1: lambda old: {"things": old["items"]}}
    )

    @perdure.agent(first, name="sell")
    def old(run: perdure.Run[dict], item: str) -> Any:
        with run.edit("put in") as draft:
            draft["items"].append(item)
        price(item)
        run.wait_for("paid")
        return "by the old code"

    @perdure.agent(second, name="sell")
    def new(run: perdure.Run[dict], item: str) -> Any:
        with run.edit("put in") as draft:
            draft["things"].append(item)
        price(item if edits_anew else "another")
        run.wait_for("paid")
        fee(4)
        if edits_anew:
            with run.edit("put in more") as draft:
                draft["things"].append("fee")
        return "by the new code"

    store.agent("a", first, initial={"items": []}).save({"items": []})
    go(store, old, "a", "book")
    store.handle("a/sell/main").signal("paid")
    return old, new, second


def test_a_bad_deploy_with_a_new_major_version_can_be_taken_back(store: Store) -> None:
    """The wake of a run by the new code committed the migration, before it was known whether that
    code goes on with the run. It did not, and the old code, put back, could not read the agent."""
    old, bad, second = put_back(store, edits_anew=False)
    with pytest.raises(NeedsAttention):
        go(store, bad, "a", "book")
    assert store.agent("a", second).state == {"things": ["book"]}
    store.handle("a/sell/main").resume()
    assert go(store, old, "a", "book") == "by the old code"


def test_the_first_new_call_commits_the_migration(store: Store) -> None:
    _, new, second = put_back(store, edits_anew=True)
    assert go(store, new, "a", "book") == "by the new code"
    log = list(store.agent("a", second).log())
    kinds = [(commit.cause.kind, commit.schema_version[0]) for commit in log]
    assert kinds[-5:] == [
        ("run-resumed", 1),
        ("migrate", 2),
        ("step", 2),
        ("edit", 2),
        ("run-finished", 2),
    ]
    assert store.agent("a", second).state == {"things": ["book", "fee"]}
    store.agent("a", second).checkpoint("sold")


@pytest.mark.parametrize("bound", [False, True])
def test_two_agent_functions_of_one_body_are_two(store: Store, bound: bool) -> None:
    """The second declaration replaced the first: a refund was started, and a charge was run."""

    def body(run: perdure.Run[dict], *, text: str = "none") -> str:
        return f"{run.id}: {text}"

    one: Any = functools.partial(body, text="bound") if bound else body
    refund = perdure.agent(dict, name="refund", version="1")(one)
    charge = perdure.agent(dict, name="charge", version="2")(one)
    said = "bound" if bound else "none"
    assert store.run(refund, "a") == f"a/refund/main: {said}"
    assert store.run(charge, "a") == f"a/charge/main: {said}"
    assert {run.version for run in store.runs("a")} == {"1", "2"}
    assert bound or (charge.__doc__ == body.__doc__ and charge.__qualname__ == body.__qualname__)


def test_an_object_is_one_agent_function(store: Store) -> None:
    class Body:
        def __call__(self, run: perdure.Run[dict]) -> str:
            return run.id

    one = Body()
    assert store.run(perdure.agent(dict, name="refund")(one), "a") == "a/refund/main"
    with pytest.raises(TypeError, match="is an agent function already, 'refund'"):
        perdure.agent(dict, name="charge")(one)
