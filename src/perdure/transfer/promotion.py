"""The end of following: a follower becomes a store of its own, in the place of the other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from perdure.errors import Conflict
from perdure.public_data import PublicData, from_micros
from perdure.storage.capabilities import Backend, Shipment
from perdure.storage.standing import Aside, OvertakenError, Why, read_why
from perdure.system import shell
from perdure.system.urls import same_store
from perdure.transfer.arriving_messages import forget_untaken
from perdure.transfer.follower import (
    TRIES,
    Follower,
    stand_with_the_store,
)
from perdure.transfer.given_tokens import raise_tokens
from perdure.transfer.incomplete import DoneBeforeError, incomplete
from perdure.transfer.own_words import own_words
from perdure.transfer.preconditions import refuse_moving
from perdure.transfer.removal_at_copy import RemovalAtCopy
from perdure.transfer.standing_words import standing_words


class Promoted(PublicData, Struct, frozen=True):
    """The result of a promotion.

    Attributes:
        lossless: True if its source was closed first, and everything shipped. Otherwise what the
            source acknowledged after `latest` is not here.
        commits, messages: the numbers shipped at the end.
        latest_micros: time of the latest commit that came from the source, in microseconds since
            1970; 0: none came. `latest` is the same as a datetime.
        incomplete: agents of which it lacks parts that could not be taken.
    """

    source: str
    lossless: bool
    commits: int
    messages: int
    latest_micros: int
    incomplete: tuple[Aside, ...] = ()

    @property
    def latest(self) -> datetime | None:
        """The time of the latest commit that came from the source, in UTC; None: none came."""
        return from_micros(self.latest_micros) if self.latest_micros else None


def promote(target: Backend, source: Backend | None, *, take_incomplete: bool = False) -> Promoted:
    """Makes a follower a store of its own, whose fencing tokens are above all that the source gave.

    Args:
        source: closed first, so that its writers are told where it went; then the rest is shipped,
            so nothing acknowledged is lost. None: the source is lost, and so is what was not
            shipped yet.
        take_incomplete: goes on although some agents are set aside: each continues from its last
            commit that is here.

    Raises:
        DoneBeforeError: it was promoted before.
        Conflict: it follows nobody.
        IncompleteError: agents are set aside. The source is as open as it was, unless the last
            shipment is the reason.
        DivergedError: the source has other commits than the follower.
        StoreUnavailable: it may be half done; make the call again.
    """
    why = read_why(target.standing())
    if why is None or why.kind != "follows":
        words = standing_words(why) if why is not None else "follows nobody"
        done = why is not None and why.kind == "promoted"
        raise (DoneBeforeError if done else Conflict)(
            words,
            target=f"store {target.url}",
            hint="only a follower, made by `perdure replicate`, is promoted",
        )
    commits = messages = 0
    aside = why.aside
    if source is not None:
        follower = Follower(source, target)
        follower.begin(resync=not same_store(follower.why.url, why.url))  # it has moved
        if not take_incomplete:
            commits, messages = follower.catch_up()
            follower.check_complete("the source is still open, and nothing was promoted")
        _close_for_good(source, target.url)
        more = follower.complete()
        commits, messages, why = commits + more[0], messages + more[1], follower.why
        aside = follower.aside
        if not take_incomplete:
            follower.check_complete("the source is closed, and nothing was promoted")
    elif aside and not take_incomplete:
        raise incomplete(aside, "nothing was promoted")
    if source is None or aside:
        forget_untaken(target, {one.agent for one in aside} if source is not None else None)
    if source is None:  # what a follower that was killed left to be removed
        removal = RemovalAtCopy(target, target, restores=False)
        removal.purge()
        removal.trim(why.untidy)
    raise_tokens(target, source)
    why = _open(target, why, aside)
    return Promoted(why.url, source is not None, commits, messages, why.at, aside)


def _open(target: Backend, before: Why, aside: Iterable[Aside]) -> Why:
    """Opens the follower; returns how it stood. Somebody may still have shipped into it, but nobody
    else may have decided what becomes of it. In the same transaction the logs of incomplete agents
    say what retention had removed: until then they are beginnings of the source's.

    Raises:
        Conflict: somebody has.
    """
    for left in reversed(range(TRIES)):
        now = target.standing()
        why = read_why(now)
        if why is None or why.kind != "follows" or not same_store(why.url, before.url):
            words = standing_words(why) if why is not None else "follows nobody"
            raise Conflict(
                f"{words}, since a moment ago",
                target=f"store {target.url}",
                hint="another process was at it, too; nothing more was done",
            )
        own = replace(why, kind="promoted", feed="", mail="", aside=(), untidy=())
        try:
            stand_with_the_store(target, now)
            if said := own_words(target, (one.agent for one in aside)):
                target.ship(Shipment(said, standing=own.standing(), after=now))
            else:
                target.stand(own.standing(), after=now)
            return why
        except OvertakenError:
            if not left:
                raise
    raise AssertionError("unreachable")


def _close_for_good(source: Backend, to: str) -> None:
    standing = source.standing()
    before = read_why(standing)
    here = before is not None and before.kind == "moved" and same_store(before.url, to)
    if before is not None and before.closed and not here:
        hint = (
            "a source that is not a primary cannot hand over; promote without it, as if it were "
            "lost, or promote it first"
        )
        if before.kind == "moved":  # there is a primary: another one beside it would be two
            follow = shell.perdure("replicate", before.url, to, resync=True)
            hint = (
                f"it continues as {before.url}: follow that one, `{follow}`, then promote this one"
            )
        raise Conflict(standing_words(before), target=f"store {source.url}", hint=hint)
    refuse_moving(before, source.url, to)
    source.stand(Why("moved", to).standing(), after=standing)
