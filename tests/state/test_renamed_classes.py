"""A class that was moved to another module, or renamed, reads what it wrote, or an error says how.

States are stored by their fields, under the schema's id, so that no name of a module is in the log.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perdure
from perdure.errors import CallFailed, SchemaError

CODE = """
from dataclasses import dataclass, field
from enum import Enum
from typing import TypedDict
import msgspec
from pydantic import BaseModel

class {color}(Enum):
    RED = "red"

@dataclass
class {line}:
    cents: int = 0

@dataclass
class {data}:
    n: int = 0
    color: {color} = {color}.RED
    lines: list[{line}] = field(default_factory=list)

class {model}(BaseModel):
    n: int = 0
    color: {color} = {color}.RED
    lines: list[{line}] = []

class {struct}(msgspec.Struct):
    n: int = 0
    color: {color} = {color}.RED
    lines: list[{line}] = []

class {typed}(TypedDict):
    n: int
    color: {color}
    lines: list[{line}]

class {error}(Exception):
    pass
"""
NAMES = ("color", "line", "data", "model", "struct", "typed", "error")
KINDS = ("data", "model", "struct", "typed")


def module(name: str, prefix: str) -> Any:
    """The program's classes, under names of their own."""
    made = ModuleType(name)
    sys.modules[name] = made
    code = CODE.format(**{one: f"{prefix}{one.title()}" for one in NAMES})
    exec(compile(code, name, "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.fixture
def old() -> Iterator[Any]:
    yield module("shop_before", "My")
    for name in ("shop_before", "shop_after", "shop_renamed"):
        sys.modules.pop(name, None)


def of(code: Any, kind: str, prefix: str = "My") -> Any:
    return getattr(code, f"{prefix}{kind.title()}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_was_moved_or_renamed_reads_what_it_wrote(
    old: Any, kind: str, tmp_path: Path
) -> None:
    url = str(tmp_path / "s.db")
    state = of(old, kind)(n=1, color=old.MyColor.RED, lines=[old.MyLine(cents=5)])
    with perdure.open(url) as store:
        store.agent("a", of(old, kind), initial=state).checkpoint("begun")
    del sys.modules["shop_before"]
    moved, renamed = module("shop_after", "My"), module("shop_renamed", "Our")
    with perdure.open(url) as store:
        found = store.agent("a", of(moved, kind)).state
        assert found == of(moved, kind)(n=1, color=moved.MyColor.RED, lines=[moved.MyLine(cents=5)])
        ours = of(renamed, kind, "Our")
        with pytest.raises(SchemaError) as refused:
            store.agent("a", ours).refresh()
        said = str(refused.value)
        assert f"'My{kind.title()}', not 'Our{kind.title()}'" in said
        line = f"perdure.Schema(Our{kind.title()}, id='My{kind.title()}')"
        assert line in said
        schema = eval(line, {"perdure": perdure, **vars(renamed)})
        agent = store.agent("a", schema)
        assert agent.state == ours(
            n=1, color=renamed.OurColor.RED, lines=[renamed.OurLine(cents=5)]
        )
        with agent.edit("goes on") as draft:
            if kind == "typed":
                draft["n"] = 2
            else:
                draft.n = 2
        assert store.agent("a", of(moved, kind)).at("begun").state == found
        # And without any of the classes.
        plain = store.agent("a", perdure.Schema(dict, id=f"My{kind.title()}"))
        assert plain.state == {"n": 2, "color": "red", "lines": [{"cents": 5}]}
        plain.verify()


def test_an_error_whose_class_was_moved_says_how_it_comes_back(old: Any, tmp_path: Path) -> None:
    """A tool raised an error of a module that the next version did not have: the run found a
    CallFailed, which named the class alone."""

    @perdure.tool(on_crash="retry")
    def pay() -> None:
        raise old.MyError("declined")

    @perdure.agent(dict, name="f")
    def f(run: perdure.Run[dict]) -> None:
        pay()

    with perdure.open(str(tmp_path / "s.db")) as store:
        with pytest.raises(old.MyError):
            store.run(f, "a")
        del sys.modules["shop_before"]
        handle = store.handle("a/f/main")
        with pytest.raises(CallFailed, match="MyError: declined") as failed:
            handle.result()
        assert "shop_before.MyError is not loaded here" in failed.value.hint
        after = module("shop_after", "My")
        sys.modules["shop_before"] = before = ModuleType("shop_before")
        before.MyError = after.MyError  # type: ignore[attr-defined]
        with pytest.raises(after.MyError, match="declined"):
            handle.result()
