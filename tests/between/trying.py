"""One program: two deeds on stores that chance filled, the second between any two calls of the
first; and what may come of it."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from io import StringIO
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

import perdure
from perdure import Store
from perdure.errors import PerdureError
from perdure.model import from_micros
from perdure.replication import following, migrate, promote
from perdure.storage.log.reader import LogReader
from perdure.storage.standing import read_why
from perdure.transfer.follower import Follower
from perdure.transfer.migration import Migration
from tests.between.acts import MOVES, OTHERS, SOME, Act, Acts, Facts
from tests.between.moments import Moments
from tests.between.picture import Picture, picture
from tests.between.worlds import SIDES, Copies, World, backend_of, impatient
from tests.graphs.watching import watched
from tests.simulation.following import compare, works
from tests.simulation.house import House, logs

WORKS = 0.4
"""The share of moments after which it is tried how the stores go on."""

DEEDS = 6
"""With which a store goes on afterwards."""

POINTS = 6
"""Moments of a pair that are tried, by chance."""

REFUSALS = (
    perdure.Conflict,
    perdure.NotFound,
    perdure.NeedsAttention,
    perdure.RunFailed,
    perdure.Fenced,
    perdure.StoreUnavailable,
)
"""Documented errors with which a deed may be refused."""

Taken = tuple[bool, bool]
Result = tuple[Taken, Mapping[str, Picture]]


class Refused(Struct, frozen=True):
    error: PerdureError


class Pair(Struct, frozen=True):
    """Two deeds, and the stores that they are done to."""

    copies: Copies
    first: Act
    second: Act
    scene: str
    random: Random
    statements: bool = False

    @property
    def name(self) -> str:
        return f"{self.first.name} | {self.second.name} | {self.scene}"


def try_pair(pair: Pair, points: int = POINTS, *, only: int = 0) -> int:
    """Lets the second act at moments of the first, all if `points` is 0; returns their number.

    Raises:
        AssertionError: what came of it is not what may.
    """
    orders, count = _orders(pair)
    numbers = [*range(1, count + 1)]
    if points and len(numbers) > points:
        numbers = sorted(pair.random.sample(numbers, points))
    for number in [only] if only else numbers:
        knows = pair.random.random() < 0.5 and not pair.first.alone
        with watched(pair.name), pair.copies.copied() as world:
            try:
                _try_moment(pair, world, number, orders, knows=knows)
            except BaseException as error:
                error.add_note(f"{pair.name}: at moment {number}, knows={knows}")
                raise
    return len(numbers)


def _orders(pair: Pair) -> tuple[dict[str, Result], int]:
    """Returns what comes of each deed alone, of both in each order, and of none; and the number of
    the first one's calls."""
    found: dict[str, Result] = {}
    moments = Moments(statements=pair.statements)
    for order in ("", "1", "2", "12", "21"):
        with watched(pair.name), pair.copies.copied() as world:
            taken = {}
            for who in order:
                act = pair.first if who == "1" else pair.second
                with moments.counted() if order == "1" else ExitStack():
                    taken[who] = not isinstance(_done(act, world, who), Refused)
                world.close(who)
            found[order] = (taken.get("1", False), taken.get("2", False)), pictures(world)
    return found, len(moments.names)


def _done(act: Act, world: World, who: str) -> Any:
    """Does it; an error that may come is returned, any other one is raised."""
    try:
        return act.do(world, who)
    except REFUSALS as error:
        if getattr(error, "outcome", "not_done") == "unknown":
            raise
        return Refused(error)


def pictures(world: World) -> dict[str, Picture]:
    """Returns what is in each store; nothing of one that is empty, or that nobody may read yet."""
    stores = {side: world.store(side, "look") for side in SIDES if world.exists(side)}
    names = {backend_of(store).url: side for side, store in stores.items()}
    found = {}
    for side, store in stores.items():
        why = read_why(backend_of(store).standing())
        if not _is_empty(store) if why is None else why.kind != "restoring":
            found[side] = picture(store, names)
    return found


def _is_empty(store: Store) -> bool:
    backend = backend_of(store)
    return not (backend.feed("", limit=1).entries or backend.mail("", limit=1).messages)


def _try_moment(
    pair: Pair, world: World, number: int, orders: Mapping[str, Result], *, knows: bool
) -> None:
    if knows:
        for who in "12":
            for info in world.store("here", who).agents():
                world.store("here", who).agent_of(info).refresh()
    done: dict[str, Any] = {}

    def second() -> None:
        done["2"] = _done(pair.second, world, "2")

    moments = Moments(number, second, statements=pair.statements)
    with moments.counted():
        done["1"] = _done(pair.first, world, "1")
    if not moments.acted:
        return
    name = moments.names[number - 1]
    world.close("1")
    world.close("2")
    said = {who: _said(one) for who, one in done.items()}
    try:
        _check_refused(pair, world, done, orders)
        for who, act in (("1", pair.first), ("2", pair.second)):
            if isinstance(done[who], Refused) and (act.repeats or done[who].error.retry):
                done[who] = _done(act, world, f"{who} again")
                said[who] += f", again: {_said(done[who])}"
                world.close(f"{who} again")
        taken = not isinstance(done["1"], Refused), not isinstance(done["2"], Refused)
        found = taken, pictures(world)
        is_strict = not (
            pair.first.in_parts or (pair.first.repeats and pair.second.takes_what_is_there)
        )
        if is_strict:
            assert found in _allowed(taken, orders), difference(found, orders)
        world.close("look")
        if not is_strict or pair.random.random() < WORKS:
            _check_works(world, pair.random)
    except BaseException as error:
        error.add_note(f"before {name}: first {said['1']}; second {said['2']}")
        raise


def _said(one: Any) -> str:
    return f"{type(one.error).__name__}: {one.error}" if isinstance(one, Refused) else "taken"


def _check_refused(
    pair: Pair, world: World, done: Mapping[str, Any], orders: Mapping[str, Result]
) -> None:
    """What is refused, and is one whole, has done nothing."""
    refused = {who for who, one in done.items() if isinstance(one, Refused)}
    acts = {"1": pair.first, "2": pair.second}
    if not refused or any(acts[who].in_parts or acts[who].repeats for who in refused):
        return
    left = "".join(sorted(set("12") - refused))
    found = pictures(world)
    world.close("look")
    assert found == orders[left][1], "half done: " + difference(((False, False), found), orders)


def _allowed(taken: Taken, orders: Mapping[str, Result]) -> list[Result]:
    alone = {(True, False): "1", (False, True): "2", (False, False): "", (True, True): "12"}
    return [orders["12"], orders["21"], (taken, orders[alone[taken]][1])]


def difference(found: Result, orders: Mapping[str, Result]) -> str:
    lines = [f"taken {found[0]}"]
    for order in ("12", "21", "1", "2", ""):
        taken, wanted = orders[order]
        lines.append(f"  from order {order or '-'}, taken {taken}:")
        for side in found[1].keys() | wanted.keys():
            ours, theirs = found[1].get(side, {}), wanted.get(side, {})
            for name in sorted(ours.keys() | theirs.keys()):
                lines += _parted(f"    {side} {name}", ours.get(name), theirs.get(name))
    return "\n".join(lines)


def _parted(at: str, ours: Any, theirs: Any) -> list[str]:
    if ours == theirs:
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in ours.keys() | theirs.keys()
            for line in _parted(f"{at} {name}", ours.get(name), theirs.get(name))
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for no, both in pairs for line in _parted(f"{at}[{no}]", *both)]
    if isinstance(ours, list) and isinstance(theirs, list):
        ours_alone = [one for one in ours if one not in theirs]
        theirs_alone = [one for one in theirs if one not in ours]
        return [f"{at}: +{ours_alone!r:.400} -{theirs_alone!r:.400}"]
    return [f"{at}: {ours!r:.300} != {theirs!r:.300}"]


def _check_works(world: World, random: Random) -> None:
    """What was begun is finished, copies agree with their source, and in each store that is open
    the runs end."""
    stores = {side: world.store(side, "works") for side in SIDES if world.exists(side)}
    for side, store in stores.items():
        why = read_why(backend_of(store).standing())
        if why is not None and why.kind == "moving-in":
            migrate(why.url, world.urls[side])
        elif why is not None and why.kind == "follows":
            with following(why.url, world.urls[side]) as follower:
                follower.drain()
            with redirect_stdout(StringIO()):
                compare(stores["here"], store)
            if random.random() < 0.3 and _is_open(stores["here"]):
                promote(world.urls[side])
    _check_homes(stores.values())
    for store in stores.values():
        if _is_open(store):
            works(store, House(store, Random(0), names=3, count=10_000), DEEDS)


def _is_open(store: Store) -> bool:
    why = read_why(backend_of(store).standing())
    return why is None or not why.closed


def _check_homes(stores: Iterable[Store]) -> None:
    """No agent that moved is open in two stores (I4), and what its source has is here."""
    for here, there in permutations(stores, 2):
        for info in here.agents():
            why = read_why(backend_of(here).standing(info.no) or backend_of(here).standing())
            if why is not None and why.kind == "moved" and why.url == there.url:
                arrived = backend_of(there).agent(info.name, info.incarnation)
                assert arrived is not None, f"{info.name} is nowhere"
                ours = backend_of(here).read(info.no, 1, info.seq)
                theirs = backend_of(there).read(arrived.no, 1, info.seq)
                heads = [row.header for row in ours], [row.header for row in theirs]
                assert heads[0] == heads[1], f"{info.name} is another one"


# -- what chance makes ---------------------------------------------------------------------------


def scene_of(seed: int) -> str:
    return ("alone", "followed", "moving")[seed % 3]


def filler(seed: int, scene: str) -> Any:
    def fill(world: World) -> None:
        random = Random(f"between {seed}")
        store = world.store("here", "base")
        house = House(store, random, names=3)
        house.go_on(random.randint(5, 30))
        if scene == "followed":
            follower = Follower(backend_of(store), backend_of(world.store("there", "base")))
            follower.begin()
            for _ in range(random.randint(1, 3)):
                follower.step(limit=random.choice((3, 10, 1000)))
        if scene == "moving":
            _move_some(world, random)
        with suppress(perdure.StoreUnavailable):
            house.go_on(random.randint(0, 12))

    return fill


class _Enough(Exception):
    pass


def _move_some(world: World, random: Random) -> None:
    left = itertools.count(random.randint(0, 2), -1)

    def moved(_: Any) -> None:
        if next(left) <= 0:
            raise _Enough

    here, there = (backend_of(world.store(side, "base")) for side in ("here", "there"))
    with suppress(_Enough):
        Migration(here, there).run(moved, moved)


def facts_of(world: World) -> Facts:
    store = world.store("here", "look")
    infos = logs(backend_of(store))
    ends = {info.name: info.seq for info in infos if not info.deleted}
    return Facts(
        ends,
        {
            info.name: [one.name for one in store.agent_of(info).branches() if not one.deleted]
            for info in infos
            if not info.deleted
        },
        sorted({info.name for info in infos} - ends.keys()),
        store.runs(),
        _guest(),
        [
            from_micros(commit.at_micros)
            for info in infos
            if not info.purged
            for commit in LogReader(backend_of(store), info).commits()
        ],
        backend_of(store).url.startswith("sqlite"),
    )


def _guest() -> Sequence[Any]:
    with perdure.open("memory://") as store:
        guest = House(store, Random(1), names=1, count=100)
        guest.names = ["guest-1"]
        guest.edit("guest-1")
        guest.begin_waiting("guest-1")
        guest.signal("guest-1")
        guest.checkpoint("guest-1")
        (info,) = store.agents()
        return [*store.export_log(info)]


def try_program(
    seed: int,
    store: str,
    points: int = POINTS,
    only: str = "",
    moment: int = 0,
    *,
    statements: bool = False,
) -> Counter[str]:
    """Makes stores and two deeds of a seed, and tries them. Returns the number of moments, by the
    names of the deeds.

    Args:
        statements: the second acts between two statements, not only between two calls.
    """
    random = Random(f"pair {seed} {only}")
    scene = scene_of(seed)
    kinds = {side: random.choice((store, store, "memory", "sqlite")) for side in SIDES}
    kinds["here"] = store
    with tempfile.TemporaryDirectory() as folder:
        with watched(f"the begin of seed {seed}"):
            copies = Copies(Path(folder), kinds, filler(seed, scene))
        try:
            with copies.copied() as world:
                facts = facts_of(world)
            acts = Acts(facts, random)
            firsts = [only] if only else [*MOVES, *SOME]
            first = acts.choose(firsts)
            if first is None:
                return Counter()
            seconds = [*SOME, *OTHERS]
            if first.executes:  # who holds a branch keeps others waiting, who keep it
                seconds = [one for one in seconds if one not in ("run", "serve", "close")]
            if first.is_told:
                seconds.remove("close")
            second = acts.choose(seconds)
            assert second is not None
            pair = Pair(copies, first, second, f"{scene}, {kinds}", random, statements)
            waits = statements and "postgres" in kinds.values()
            with impatient() if waits else ExitStack():
                tried = try_pair(pair, points, only=moment)
            return Counter({f"{first.name.split()[0]}|{second.name.split()[0]}": tried})
        finally:
            copies.remove()
