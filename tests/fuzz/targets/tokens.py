"""What people and programs hand in as text: URLs, cursors, names, moments, values as they type."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import perdure
from perdure.cli import naming, plain
from perdure.cli.failures import UsageError
from perdure.storage.answers import Standing
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.locate import locate
from perdure.storage.postgres import address
from perdure.storage.standing import closed_error, read_why
from perdure.system import urls as shown_urls
from perdure.types import Question
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target


def as_text(part: bytes) -> str:
    return part.decode("utf-8", "surrogateescape")


def _urls(parts: Parts, looks: Looks) -> None:
    """Opened where nothing is, so nothing is made; a server is only named, and not asked."""
    os.chdir(_nowhere())
    for url in map(as_text, parts):
        with looks.look(ValueError):
            shown_urls.shown(url)
        with looks.look(ValueError):
            address.parse(url)
        if not shown_urls.is_postgres(url):
            with looks.look(ValueError):
                locate(url, create=False).close()
    assert not os.listdir(_nowhere()), "something was made"


@cache
def _nowhere() -> str:
    return tempfile.mkdtemp(prefix="perdure-fuzz-")


@cache
def stores() -> list[Backend]:
    """A backend in memory and one in a file, with a commit and a message each."""
    made = []
    for url in ("memory://cursors", str(Path(_nowhere(), "cursors.db"))):
        store = perdure.open(url)
        for name in ("a", "b"):
            with store.agent(name).edit("begun") as draft:
                draft["x"] = 1
        made.append(store.runner._context.backend)
    return made


def _cursors(parts: Parts, looks: Looks) -> None:
    for text in map(as_text, parts):
        for backend, own in zip(stores(), own_cursors(), strict=True):
            for cursor in (text, own + text):
                with looks.look():
                    backend.feed(cursor, limit=10)
                with looks.look():
                    backend.mail(cursor, limit=10)
            with looks.look(ValueError):  # no text: bytes of a command line that are no UTF-8
                backend.agents(text, text, 10)
                backend.runs(RunQuery(run_id=text))
                backend.runs(RunQuery(after=text))


@cache
def own_cursors() -> list[str]:
    return [backend.feed("").cursor for backend in stores()]


def _words(parts: Parts, looks: Looks) -> None:
    """A value that was typed is refused, or is one that can be shown again."""
    question = Question("r", "p", "?", {"type": "string"}, perdure.model.from_micros(0))
    for words in map(as_text, parts):
        with looks.look(UsageError):
            naming.age("--older", words)
        with looks.look(UsageError):
            naming.answer_of(question, words)
        with looks.look(UsageError):
            plain.dumps(plain.to_json(naming.value_of("VALUE", words)))


def _standings(parts: Parts, looks: Looks) -> None:
    """Why a store takes no writes, as it stands in one."""
    for text in map(as_text, parts):
        standing = Standing(True, text.encode("utf-8", "replace").decode())
        read_why(standing)
        looks.note(str(closed_error(standing, "a store"))[:20])


urls = Target("urls", _urls)
cursors = Target("cursors", _cursors, prepare=stores)
standings = Target("standings", _standings)
words = Target("words", _words)
