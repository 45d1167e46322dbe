"""Values that change while they are taken: what was taken is what is written, or nothing is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import pytest

import perdure
from perdure.core.arguments import checks
from perdure.core.types.kept_whole import comes_back
from perdure.core.values.plain_values import CopyWalk, Path, take
from perdure.missing import MISSING
from perdure.system.threads import no_thread


class Turning(CopyWalk, kw_only=True):
    """Somebody changes a dict while it is gone through."""

    changed: dict[Any, Any]

    def key(self, key: Any, at: Path, given: Any = MISSING) -> Any:
        self.changed[len(self.changed)] = 1
        return super().key(key, at, given)


def test_a_dict_that_grows_while_it_is_taken_is_refused_by_its_path() -> None:
    """A bare RuntimeError came out, "dictionary changed size during iteration", naming nothing."""
    items: dict[Any, Any] = {"a": 1, "b": 2}
    with pytest.raises(perdure.Unstorable, match=r"state\.in: it changed while it was read"):
        Turning(changed=items).take({"in": items}, ())


class Growing:
    """When it is compared, the list that it is in gets another one."""

    inside: ClassVar[list[Any]] = []

    def __eq__(self, other: object) -> bool:
        self.inside.append(Growing())
        return type(other) is Growing

    __hash__ = None  # type: ignore[assignment]


def test_a_list_that_grows_while_it_is_compared_is_what_was_taken() -> None:
    """It was an IndexError; a dict that lost a key at that moment a ValueError of `zip`."""
    node = perdure.Schema(list[Any], id="list").root
    given: list[Any] = [Growing(), Growing()]
    Growing.inside = given
    comes_back(node, given, [Growing(), Growing()], (), "state")
    assert len(given) == 4


def test_other_threads_change_a_value_while_it_is_committed() -> None:
    """Each commit is one look at it, or is refused: what is read back is what its ops said."""
    shared: dict[str, Any] = {f"k{n}": [n] for n in range(50)}
    stop = threading.Event()

    def change() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            shared[f"x{n % 97}"] = [n] * (n % 7)
            shared.pop(f"x{(n * 31) % 97}", None)
            shared["k3"].append(n)
            del shared["k3"][5:]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with perdure.open("memory://") as store:
            agent = store.agent("a", initial={"shared": {}})
            for _ in range(60):
                _try(lambda: agent.save({"shared": shared}, "as it is"))
                _try(lambda: _put(agent, shared))
            agent.verify()
            assert store.agent("a").state == agent.state
            assert not agent.drift()
    finally:
        stop.set()
        thread.join()


def _put(agent: Any, value: Any) -> None:
    with agent.edit("put") as draft:
        draft["shared"] = value


def _try(call: Any) -> None:
    # It changed while it was read, or is another thing by now than what was taken of it.
    with suppress(perdure.PerdureError):
        call()


def test_take_gives_a_tree_of_its_own() -> None:
    given = {"a": [1, {"b": 2}]}
    taken = take(given)
    given["a"].append(3)
    assert taken == {"a": [1, {"b": 2}]}


def test_what_has_no_stack_left_has_not_changed() -> None:
    """RecursionError is a RuntimeError: one that came while migrations were read was told as
    "it changed while it was read; give a copy of it", and one while a thread began as too many."""

    class Deep(Mapping[str, int]):
        def __getitem__(self, key: str) -> int:
            raise RecursionError

        def __iter__(self) -> Iterator[str]:
            return iter(["a"])

        def __len__(self) -> int:
            return 1

    with pytest.raises(RecursionError):
        checks.mapping(Deep(), "migrations are {major: function}")
    assert isinstance(no_thread(RecursionError()), RecursionError)
    assert isinstance(no_thread(RuntimeError("can't start new thread")), perdure.StoreUnavailable)
