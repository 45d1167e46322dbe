"""Copies of a store and moves between two, behind one log that grows, or beside as many agents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bench.growth.calls import Does, Measure, call, often
from bench.growth.places import Place, slide
from perdure import replication

SOON = timedelta(hours=1)


def _along(*names: str, what: str = "") -> Callable[[Does], Does]:
    """The same call on both histories: in proportion to either."""

    def register(does: Does) -> Does:
        for history in ("log", "agents"):
            beside = " beside as many agents" if history == "agents" else ""
            call(*names, history=history, growth="linear", what=(what or names[0]) + beside)(does)
        return does

    return register


@_along("replication.following", "Follower.drain", what="replication.following, all of a store")
def replicate(place: Place, measure: Measure) -> None:
    def follow() -> None:
        with replication.following(place.url, place.other) as follower:
            follower.drain()

    measure(follow)


@call("Follower.step", "Follower.catch_up", history="log", what="Follower.step, one more commit")
def step(place: Place, measure: Measure) -> None:
    agent = place.agent()
    with replication.following(place.url, place.other) as follower:
        follower.drain()

        def one(number: int) -> None:
            slide(agent, number)
            follower.step()

        often(measure, one)


@call("replication.following", history="log", what="replication.following, again, and no news")
def follow_on(place: Place, measure: Measure) -> None:
    def again(_: int) -> None:
        with replication.following(place.url, place.other) as follower:
            follower.drain()

    often(measure, again)


@call(
    "Follower.step",
    "Follower.lag",
    history="agents",
    growth="linear",
    what="Follower.step, one more commit, and Follower.lag beside as many agents",
)
def step_beside(place: Place, measure: Measure) -> None:
    agent = place.agent()
    with replication.following(place.url, place.other) as follower:
        follower.drain()

        def one(number: int) -> None:
            slide(agent, number)
            follower.step()
            follower.lag()

        often(measure, one)


@_along("replication.promote", what="replication.promote, of a follower that has all")
def promote(place: Place, measure: Measure) -> None:
    with replication.following(place.url, place.other) as follower:
        follower.drain()
    measure(lambda: replication.promote(place.other))


@_along("replication.promote", what="replication.promote, the source is lost")
def promote_without(place: Place, measure: Measure) -> None:
    with replication.following(place.url, place.other) as follower:
        follower.drain()
    measure(lambda: replication.promote(place.other, source_is_lost=True))


@_along("replication.migrate")
def migrate(place: Place, measure: Measure) -> None:
    measure(lambda: replication.migrate(place.url, place.other))


@_along("replication.restore")
def restore(place: Place, measure: Measure) -> None:
    measure(lambda: replication.restore(place.url, place.other, datetime.now(UTC) + SOON))
