"""States that a JSON Schema document declares: checked as those of a class are."""

from __future__ import annotations

import datetime as dt
import socket
import sys
from typing import Any

import pytest

import perdure
from perdure.errors import SchemaError
from perdure.store import Store

TICKET: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "status": {"enum": ["pending", "running", "completed"]},
        "messages": {"type": "array", "items": {"$ref": "#/$defs/message"}},
        "cents": {"type": "integer", "minimum": 0},
    },
    "required": ["status"],
    "additionalProperties": False,
    "$defs": {
        "message": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "replies": {"$ref": "#/properties/messages"},
            },
            "required": ["text"],
        }
    },
}
SCHEMA = perdure.Schema.from_json_schema(TICKET, id="ticket")
FIRST = {"status": "pending", "messages": [], "cents": 5}


def test_it_is_checked_at_creation_at_each_write_and_as_it_is_read(store: Store) -> None:
    with pytest.raises(SchemaError, match="'status' is a required property"):
        store.agent("a", SCHEMA).checkpoint("made")
    with pytest.raises(SchemaError, match=r"state\.cents: -1 is less than the minimum of 0"):
        store.agent("a", SCHEMA, initial=FIRST | {"cents": -1}).checkpoint("made")
    assert store.agents() == []
    agent = store.agent("a", SCHEMA, initial=FIRST)
    with agent.edit("more") as draft:
        draft["messages"].append({"text": "hello", "replies": [{"text": "you"}]})
    refused: list[Any] = [
        (lambda draft: draft.update(status="done"), r"state\.status: 'done' is not one of"),
        (lambda draft: draft["messages"].append({"txt": "?"}), r"state\.messages\[1\]: 'text' is"),
        (lambda draft: draft["messages"][0]["replies"].append(3), r"replies\[1\]: 3 is not of"),
        (lambda draft: draft.update(other=1), "'other' was unexpected"),
        (lambda draft: draft.pop("status"), "'status' is a required property"),
        (lambda draft: draft.update(cents=dt.timedelta(1)), r"state\.cents: JSON has no timedelta"),
        (lambda draft: draft.update(cents=float("nan")), r"state\.cents: JSON has no nan"),
        (lambda draft: draft["messages"][0].update({5: "x"}), "a key of a JSON object is a text"),
    ]
    before = agent.seq
    for change, problem in refused:
        with pytest.raises(SchemaError, match=problem):
            agent.update(change)
    with pytest.raises(SchemaError, match=r"state\.messages: .* is not of type 'array'"):
        agent.save(FIRST | {"messages": {}})
    assert agent.seq == before, "nothing was written"
    assert agent.state["messages"][0]["text"] == "hello"
    assert agent.drift() == []
    assert store.agent("a", SCHEMA).state == agent.state
    free: Any = perdure.Schema(dict, id="ticket")
    store.agent("a", free).update(lambda draft: draft.update(status="lost"))
    for handle in (agent, store.agent("a", SCHEMA)):
        with pytest.raises(SchemaError, match=r"agent 'a', commit 3, state\.status: 'lost' is not"):
            handle.update(lambda draft: draft.update(cents=1))
    agent.rollback(2)
    assert agent.refresh()["status"] == "pending"


def test_the_error_names_the_rule(store: Store) -> None:
    agent = store.agent("a", SCHEMA, initial=FIRST)
    with pytest.raises(SchemaError, match=r"rule #/properties/cents/minimum"):
        agent.update(lambda draft: draft.update(cents=-5))


def test_undo_forks_and_diffs_are_those_of_any_state(store: Store) -> None:
    agent = store.agent("a", SCHEMA, initial=FIRST)
    agent.update(lambda draft: draft["messages"].append({"text": "one"}))
    agent.update(lambda draft: draft.update(cents=7))
    fork = agent.fork("b", at=1)
    fork.update(lambda draft: draft.update(status="running"))
    assert [str(change.path) for change in agent.diff("b", "main")] == [
        "state.status",
        "state.messages[0]",
        "state.cents",
    ]
    agent.undo()
    assert agent.state == FIRST | {"messages": [{"text": "one"}]}
    agent.redo()
    assert agent.state["cents"] == 7


def test_a_list_may_be_a_state(store: Store) -> None:
    schema = perdure.Schema.from_json_schema(
        {"type": "array", "items": {"type": "string"}, "maxItems": 2}, id="names"
    )
    agent = store.agent("a", schema)
    agent.update(lambda draft: draft.append("x"))
    with pytest.raises(SchemaError, match=r"state\[1\]: 5 is not of type 'string'"):
        agent.update(lambda draft: draft.append(5))
    agent.update(lambda draft: draft.append("y"))
    with pytest.raises(SchemaError, match="is too long"):
        agent.update(lambda draft: draft.append("z"))
    assert store.agent("a", schema).state == ["x", "y"]


def test_migrations_and_invariants_are_as_of_a_class(store: Store) -> None:
    store.agent("a", SCHEMA, initial=FIRST).checkpoint("made")
    euros = {"type": "object", "properties": {"euros": {"type": "number"}}, "required": ["euros"]}

    def fewer(before: Any, after: Any) -> bool:
        return before is None or after["euros"] <= before["euros"]

    def declared(migrate: Any) -> Any:
        return perdure.Schema.from_json_schema(
            euros, id="ticket", version=2, migrations={1: migrate}, invariants=[fewer]
        )

    wrong = store.agent("a", declared(lambda old: {"euro": old["cents"] / 100}))
    with pytest.raises(SchemaError, match="'euros' is a required property"):
        wrong.update(lambda draft: draft.update(more=1))
    agent = store.agent("a", declared(lambda old: {"euros": old["cents"] / 100}))
    with pytest.raises(SchemaError, match="fewer"):
        agent.update(lambda draft: draft.update(euros=1))
    agent.update(lambda draft: draft.update(euros=0))
    assert [commit.cause.kind for commit in agent.log()][-2:] == ["migrate", "edit"]


@perdure.agent(SCHEMA)
def answering(run: perdure.Run[Any]) -> str:
    with pytest.raises(SchemaError, match="'done' is not one of"), run.edit("wrong") as draft:
        draft["status"] = "done"
    with run.edit("right") as draft:
        draft["status"] = "completed"
    return str(run.state["status"])


def test_a_run_may_have_such_a_state(store: Store) -> None:
    assert store.options(initial=FIRST).run(answering, "r") == "completed"
    assert store.agent("r", SCHEMA).state["status"] == "completed"


def test_the_document_is_given_back() -> None:
    given = SCHEMA.json_schema()
    assert given == TICKET
    given["properties"].clear()
    assert SCHEMA.json_schema() == TICKET == SCHEMA.json_schema(exact=False)
    own = perdure.Schema.from_json_schema(SCHEMA.json_schema(), id="again")
    assert own.json_schema() == TICKET


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"type": "nope"}, r"document\.type: it is no valid JSON Schema"),
        ({"type": "string"}, r"document\.type: a state is an object or an array"),
        ({"properties": {"a": 1}}, r"document\.properties\.a: "),
        ({"properties": {"a": {"pattern": "("}}}, r"document\.properties\.a\.pattern: "),
        ({"$ref": "#/$defs/no"}, "is no place in the document"),
        ({"$ref": "#no"}, "is no place in the document"),
        ({"$ref": "https://example.com/x.json"}, "references are never fetched"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "references are never fetched"),
        ({"allOf": [{"$ref": "#"}]}, "lead around without end"),
        ({"$schema": "https://example.com/mine"}, "does not know the dialect"),
        ({"$schema": 5}, "does not know the dialect"),
        ({"const": {1: 2}}, "a key of a JSON object is a text"),
        ({"const": dt.date(2026, 1, 1)}, "JSON has no date"),
        ({"const": float("inf")}, "JSON has no inf"),
    ],
)
def test_a_wrong_document_is_refused_where_it_is_declared(
    document: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("it looked outside")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(SchemaError, match=problem):
        perdure.Schema.from_json_schema(document, id="x")


def test_references_within_the_document_are_followed() -> None:
    documents: list[dict[str, Any]] = [
        {
            "$id": "https://example.com/a",
            "$defs": {"n": {"$id": "b", "type": "object"}},
            "$ref": "b",
        },
        {"$defs": {"n": {"$anchor": "here"}}, "properties": {"a": {"$ref": "#here"}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"n": {"type": "integer"}},
            "properties": {"a": {"$ref": "#/definitions/n"}},
        },
        {"properties": {"$ref": {"type": "string"}}, "default": {"$ref": "nowhere"}},
    ]
    for document in documents:
        perdure.Schema.from_json_schema(document, id="x").build({"a": 1})


def test_a_text_is_no_document() -> None:
    wrong: list[Any] = ["{}", None, True, [], 5]
    for given in wrong:
        with pytest.raises(TypeError, match="must be a dict"):
            perdure.Schema.from_json_schema(given, id="x")
    with pytest.raises(TypeError, match="exact="):
        SCHEMA.json_schema(exact=1)  # type: ignore[arg-type]


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ImportError, match=r"pip install 'perdure\[jsonschema\]'"):
        perdure.Schema.from_json_schema(TICKET, id="x")
