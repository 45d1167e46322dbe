"""What an item's value may be, what an index may say, and filters with dots."""

# mypy: disable-error-code="arg-type, union-attr, operator, type-var"

import asyncio
import collections
import datetime as dt
import decimal
import math
import uuid

import pytest
from langchain_core.messages import AIMessage

import perdure
from perdure.integrations.langgraph.store import vectors
from perdure.integrations.langgraph.store.memory_store import PerdureStore

SPACE = ("docs",)
AT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
VALUE = {
    "at": AT,
    "day": AT.date(),
    "time": dt.time(1, 2),
    "span": dt.timedelta(1),
    "raw": b"x",
    "id": uuid.UUID(int=7),
    "sum": decimal.Decimal("1.10"),
    "pair": (1, ("a", [2])),
    "set": {1, 2},
    "frozen": frozenset({"a"}),
    "big": 2**70,
}


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return str(tmp_path / "memory.db") if request.param == "sqlite" else f"memory://{tmp_path.name}"


def test_values_come_back_as_they_were(url):
    """Datetimes, UUIDs and tuples were refused, though the log keeps them."""
    with PerdureStore.from_url(url) as store:
        store.put(SPACE, "k", VALUE)
        store.put(SPACE, "k", {**VALUE, "pair": (1, 2)})
        store.put(SPACE, "k", VALUE)
        assert store.get(SPACE, "k").value == VALUE
        assert [one.key for one in store.search(SPACE, filter={"at": AT, "pair": [1, ["a", [2]]]})]
        if url.endswith(".db"):
            with PerdureStore.from_url(url) as other:
                found = other.get(SPACE, "k").value
                assert found == VALUE
                assert list(map(type, found.values())) == list(map(type, VALUE.values()))


def test_subclasses_of_plain_types_are_kept_as_these(url):
    """The text of a message, a `defaultdict`, the answer of a graph: refused, with no setting."""
    text = AIMessage("said").text
    with PerdureStore.from_url(url) as store:
        store.put(SPACE, "k", {"text": text, "by": collections.defaultdict(list, {text: [text]})})
        found = store.get(SPACE, "k").value
        assert found == {"text": "said", "by": {"said": ["said"]}}
        assert type(found["text"]) is str
        assert type(found["by"]) is dict
        store.put(SPACE, "k", collections.OrderedDict(a=collections.Counter("aab")))
        assert store.get(SPACE, "k").value == {"a": {"a": 2, "b": 1}}


def test_a_name_with_dots_is_a_path(url):
    """It found nothing; LangGraph's SqliteStore looks inside."""
    with PerdureStore.from_url(url) as store:
        store.put(SPACE, "deep", {"a": {"b": {"c": 3}}})
        store.put(SPACE, "flat", {"a.b.c": 3, "a": {"b": {"c": 4}}})
        store.put(SPACE, "none", {"a": 1})

        def keys(wanted):
            return sorted(one.key for one in store.search(SPACE, filter=wanted))

        assert keys({"a.b.c": 3}) == ["deep", "flat"]
        assert keys({"a.b.c": {"$gt": 2}}) == ["deep", "flat"]
        assert keys({"a.b": {"c": 4}}) == ["flat"]
        assert keys({"a": {"b.c": 3}}) == ["deep"]
        assert keys({"a.x.y": None}) == ["deep", "flat", "none"]


def test_setup_may_be_called_and_awaited(url):
    async def both():
        async with PerdureStore.from_url(url) as store:
            await store.setup()

    with PerdureStore.from_url(url) as store:
        store.setup()
    asyncio.run(both())


def embed(texts):
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


def test_text_fields_are_fields(url):
    """They were ignored: the whole item was embedded."""
    index = {"dims": 3, "embed": embed, "text_fields": ["say"]}
    with PerdureStore.from_url(url, index=index) as store:
        store.put(SPACE, "one", {"say": "aa", "other": "bbb"})
        store.put(SPACE, "two", {"say": "b", "other": "aaaaa"})
        assert store.search(SPACE, query="a")[0].key == "one"


def test_what_json_has_not_is_embedded_as_text(url):
    index = {"dims": 3, "embed": embed}
    with PerdureStore.from_url(url, index=index) as store:
        store.put(SPACE, "one", {**VALUE, "say": "ccc"})
        assert store.search(SPACE, query="c")[0].score == pytest.approx(0.309, abs=0.01)


@pytest.mark.parametrize("without_numpy", [False, True])
def test_distances(url, without_numpy, monkeypatch):
    """`l2` and `inner_product` were refused."""
    if without_numpy:
        monkeypatch.setattr(vectors, "_numpy", lambda: None)
    expected = {
        "cosine": {"near": 1.0, "far": 1.0, "across": 0.0},
        "inner_product": {"near": 1.0, "far": 4.0, "across": 0.0},
        "l2": {"near": 0.0, "far": -3.0, "across": -math.sqrt(2)},
    }
    for distance, wanted in expected.items():
        index = {"dims": 3, "embed": embed, "fields": ["t"], "distance_type": distance}
        with PerdureStore(perdure.open("memory://"), index=index).store as base:
            store = PerdureStore(base, index=index)
            for key, text in (("near", "a"), ("far", "aaaa"), ("across", "b")):
                store.put(SPACE, key, {"t": text})
            store.put(SPACE, "without", {"x": 1})
            found = store.search(SPACE, query="a")
            assert {one.key: one.score for one in found} == {
                "without": None,
                **{key: pytest.approx(score) for key, score in wanted.items()},
            }
            scores = [one.score for one in found[:-1]]
            assert scores == sorted(scores, reverse=True)
