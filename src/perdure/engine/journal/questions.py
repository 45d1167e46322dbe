"""The questions of a run, and the question that an answer is for.

An answer is sent under a name that no other question ever has. A place is not such a name: each
turn counts its calls from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from perdure.core.arguments.names import check_words
from perdure.core.format.records import Record, WaitBegan, WaitEnded
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.left_history import Origins, path_of
from perdure.engine.journal.question_digest import data_in_short, digest_shown
from perdure.errors import Conflict, PerdureError
from perdure.model import Message, RunInfo, from_micros
from perdure.public_data import PublicData, to_micros
from perdure.state.runs.run_reading import BEGINS_ANEW
from perdure.storage.log.reader import SEQ_END, LogReader
from perdure.visible import visible


class Question(PublicData, Struct, frozen=True):
    """A question to a person that a run waits with.

    Attributes:
        schema: the JSON schema of its answer.
        name: the name of this question alone: that of another turn, or a fork, at the same place
            has another; and one that shows other data.
        refused: the number of answers that were refused because they did not fit.
        agent: whose run it is.
        data: what is to be shown with it; None: nothing.
        expires: the moment from which on no answer counts; None: it does not expire.
        digest: of all that is shown: its words, the type of the answer, and the data.
    """

    run: str
    place: str
    question: str
    schema: Mapping[str, Any]
    since: datetime
    name: str = ""
    refused: int = 0
    agent: str = ""
    data: Any = None
    expires: datetime | None = None
    digest: str = ""

    @property
    def key(self) -> str:
        """The first answer counts, and after one that was refused, the first again."""
        return str(self.refused or "")


def _question(began: WaitBegan, name: str, since: datetime, refused: int, agent: str) -> Question:
    words, schema, data = str(began.question), began.schema, began.data
    until = next(one.until for one in began.branches if one.kind == "ask")
    return Question(
        began.run,
        began.place,
        words,
        schema,
        since,
        name,
        refused,
        agent,
        data,
        from_micros(until) if until else None,
        digest_shown(words, schema, data),
    )


# -- which of them an answer is for --------------------------------------------------------------


class OpenQuestions(Struct):
    """The open questions of a run, by place.

    Attributes:
        answered: questions whose answer the run has not taken yet.
        anew: its places may recur: it is in a later turn, or was set back or forked.
        head: seq of the last commit that was read.
    """

    info: RunInfo
    reader: Callable[[], LogReader]
    open: dict[str, Question] = field(default_factory=dict)
    answered: dict[str, Question] = field(default_factory=dict)
    anew: bool = False
    head: int = 0

    @classmethod
    def read(
        cls, info: RunInfo, reader: Callable[[], LogReader], answers: Container[tuple[str, str]]
    ) -> OpenQuestions:
        """Reads the questions of the run's current turn.

        Args:
            answers: the answers in its inbox, by name and key.
        """
        log = reader()
        head = log.ref(info.branch).seq
        path = path_of(log, head, info.turn_at)
        origins = Origins.of(info, path)
        since = {commit.seq: commit.at for commit in path}
        asked = cls(info, reader, anew=info.turn > 1 or origins.back is not None, head=head)
        for entry in Journal.read(info.id, reversed(path), aliases=origins.runs).entries.values():
            began, name = entry.call, name_of(entry.call)
            if name is None or entry.outcome is not None or entry.cut:
                continue
            assert isinstance(began, WaitBegan)
            one = _question(began, name, since[entry.seq], entry.refused, info.agent)
            place = entry.place
            (asked.answered if (name, one.key) in answers else asked.open)[place] = one
        return asked

    def meant(self, question: Question | str | None, now: int) -> Question:
        """The one that an answer is for.

        Args:
            now: the store's time.

        Raises:
            Conflict: it is not asked, or any more; it has expired, or shows something else than the
                one that was given; or it is not clear which one is meant.
        """
        meant = self._chosen(question)
        if question is None and meant.data is not None:
            raise self._refused(
                f"asks {meant.question!r} about data that the answer does not speak of",
                f"say which one was seen: to={meant.name!r}, or one of the run's `questions()`",
            )
        if isinstance(question, Question) and question.digest not in ("", meant.digest):
            raise self._refused(
                f"asks {meant.question!r}, and shows something else by now than was answered",
                "look at its current questions, and decide anew",
            )
        if meant.expires is not None and now >= to_micros(meant.expires):
            when = meant.expires.isoformat(sep=" ", timespec="seconds")
            raise self._refused(
                f"does not hear that any more: {meant.question!r} expired at {when}",
                "the run goes on without an answer",
            )
        return meant

    def _chosen(self, question: Question | str | None) -> Question:
        if isinstance(question, Question):
            if str(question.run) != self.info.id:
                raise self._refused(f"was not asked that: {visible(str(question.run))} was")
            question = question.name or question.place
        if question is not None:
            return self._named(check_words(question, "to=, the question,"))
        if not self.open:
            raise self._refused(f"is {self.info.status}, and asks nothing", NOTHING_HINT)
        if len(self.open) > 1:
            raise self._refused(f"asks several things: {self._asked()}", CHOOSE_HINT)
        return next(iter(self.open.values()))

    def _named(self, said: str) -> Question:
        for one in self.open.values():
            if said == one.name:
                return one
        at = self.open.get(said)
        if at is not None and not self.anew:
            return at
        if at is not None:
            raise self._refused(
                f"may have asked something else at {visible(said)} before",
                f"now it asks {at.question!r}: if that is what the answer is for, give that "
                f"question's name, {at.name!r}",
            )
        answered = next((o for o in self.answered.values() if said in (o.name, o.place)), None)
        if answered is not None:
            raise self._refused(f"was answered already: {answered.question!r}")
        past = self._past(said)
        if past is not None:
            place, words, data = past
            over = f"asks that no more, the question is over: {words!r}{data_in_short(data)}"
            there = self.open.get(place)
            if there is not None and (there.question, there.data) != (words, data):
                now = f"{there.question!r}{data_in_short(there.data)}"
                raise self._refused(
                    f"{over}; what it shows has changed, to {now}",
                    "look at its current questions, and decide anew",
                )
            raise self._refused(
                over,
                "it was answered, its time was up, or the run continued without it; see "
                "its current questions",
            )
        if any(said == one.question for one in self.open.values()):
            # The same words may be asked again: an answer must not reach a later question.
            raise self._refused(
                f"is not answered by a question's words; it asks {self._asked()}", CHOOSE_HINT
            )
        raise self._refused(
            f"is {self.info.status}, and asks nothing at {visible(said)}", NOTHING_HINT
        )

    def _asked(self) -> str:
        asked = [*self.open.values()][:SHOWN_MAX]
        more = ", …" if len(self.open) > SHOWN_MAX else ""
        return ", ".join(f"{one.question!r} ({one.name!r})" for one in asked) + more

    def check_heard(self, question: Question, answer: Message) -> None:
        """Checks that the run has not continued without an answer since this was read: its sender
        must hear of that.

        Raises:
            Conflict: the question was over before the answer came, or its task was cancelled just
                then.
        """
        heard = over = False
        said = answer.key, answer.at_micros, answer.who
        for commit in self.reader().commits(self.head + 1, SEQ_END, damaged_too=True):
            for record in commit.typed:
                kind, here = record.t, record.place == question.place
                if record.run != self.info.id:
                    continue
                if here and kind == "wait-ended":
                    heard = (record.key, record.at, record.who) == said
                    over = not heard
                elif (here and kind == "cancelled") or (kind in _ENDS and not heard):
                    over = True
        if over:
            raise self._refused(
                f"went on without this answer, the question was over: {question.question!r}",
                "its time was up, its task was cancelled, or the run has ended; see what it asks "
                "now",
            )

    def _past(self, name: str) -> tuple[str, str, Any] | None:
        """Returns the place, the words and the data of a past question; None if there was none of
        that name."""
        with suppress(PerdureError):  # it is refused in any case
            for commit in self.reader().commits(self.info.started, SEQ_END, damaged_too=True):
                for record in commit.typed:
                    if not isinstance(record, WaitBegan) or record.run != self.info.id:
                        continue
                    if name_of(record) == name:
                        return record.place, str(record.question), record.data
        return None

    def _refused(self, problem: str, hint: str = "") -> Conflict:
        return Conflict(problem, target=f"run {self.info.id}", hint=hint)


_ENDS = ("run-finished", "run-cancelled", *BEGINS_ANEW)
"""Behind these nothing is asked any more that was asked before."""

CHOOSE_HINT = "say to= one of the run's `questions()`, or its name"

SHOWN_MAX = 10
"""The number of questions that an error lists."""

NOTHING_HINT = "it may have been answered already, or not have come so far"


def name_of(record: Record) -> str | None:
    """The name of the question that a record asks; None: it asks none."""
    if not isinstance(record, WaitBegan) or record.question is None:
        return None
    return next((one.name for one in record.branches if one.kind == "ask"), None)


def left_open(began: Record | None, ended: Record | None) -> WaitBegan | None:
    """The record with which a wait began, where that asks, and has come to its end without the
    answer; None: it does not, or has it.

    Args:
        ended: with which the wait ended; None: it was given up.
    """
    if not isinstance(began, WaitBegan) or name_of(began) is None:
        return None
    answered = isinstance(ended, WaitEnded) and any(
        one.kind == "ask" and one.label == ended.label for one in began.branches
    )
    return None if answered else began


def too_late(run: str, began: WaitBegan, answer: Message) -> WaitEnded:
    """The record of an answer that had come when its question was over without it.

    Args:
        began: the record that asked.
    """
    label = next(one.label for one in began.branches if one.kind == "ask")
    return WaitEnded(
        t="message-refused",
        run=run,
        place=began.place,
        label=label,
        kind="ask",
        key=answer.key,
        who=answer.who,
        at=answer.at_micros,
        value=answer.value,
        problem=f"the run had continued without it: {began.question!r}",
    )
