"""Search by meaning: the user's embedding function, what is stored of it, and scores."""

# mypy: disable-error-code="arg-type, union-attr"

import asyncio
import importlib.util
import math
import struct
import sys
from functools import cache

import pytest
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

import perdure
from perdure.integrations.langgraph.store import vectors
from perdure.integrations.langgraph.store.memory_store import PerdureStore

DOCS = ("docs",)


class Embed:
    """Counts letters; remembers what it was asked."""

    def __init__(self, letters="abcdefgh"):
        self.letters = letters
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return [[float(text.count(letter)) for letter in self.letters] for text in texts]


def config(embed, **more):
    return {"dims": len(getattr(embed, "letters", "abcdefgh")), "embed": embed, **more}


@pytest.fixture
def base():
    with perdure.open("memory://") as store:
        yield store


def found(store, query, **more):
    return [(item.key, item.score) for item in store.search(DOCS, query=query, **more)]


def test_the_best_first_then_what_has_no_vector(base):
    store = PerdureStore(base, index=config(Embed(), fields=["text"]))
    store.put(DOCS, "a", {"text": "aaa"})
    store.put(DOCS, "ab", {"text": "ab"})
    store.put(DOCS, "b", {"text": "b"})
    store.put(DOCS, "nothing", {"text": "zzz"})
    store.put(DOCS, "not indexed", {"text": "a"}, index=False)
    store.put(DOCS, "no text", {"other": "a"})
    (first, one), (second, half), (_, zero), *rest = found(store, "a")
    assert (first, second) == ("a", "ab")
    assert one == pytest.approx(1) and half == pytest.approx(math.sqrt(0.5)) and zero == 0
    assert [key for key, _ in rest] == ["b", "no text", "not indexed"] or rest[0][1] == 0
    assert {key for key, score in rest if score is None} == {"no text", "not indexed"}
    assert found(store, "a", limit=1, offset=1)[0][0] == "ab"
    assert len(store.search(DOCS, query="")) == 6  # no query
    assert all(score is None for _, score in found(store, None))


def test_vectors_are_stored_beside_the_item(tmp_path):
    embed = Embed()
    with PerdureStore.from_url(tmp_path / "a.db", index=config(embed, fields=["text"])) as store:
        store.put(DOCS, "k", {"text": "abc"})
        before = found(store, "ab")
        assert embed.asked == ["abc", "ab"]
        item = store.store.agent_of(store.store.find("store:docs")).state["docs"]["k"]
        assert item["vectors"] == {"text": struct.pack("<8f", 1, 1, 1, 0, 0, 0, 0, 0)}
    with PerdureStore.from_url(tmp_path / "a.db", index=config(embed)) as store:
        embed.asked.clear()
        assert found(store, "ab") == before
        assert embed.asked == ["ab"]
        assert store.get(DOCS, "k").value == {"text": "abc"}
    with PerdureStore.from_url(tmp_path / "a.db") as store:  # without an index, no query counts
        assert found(store, "ab") == [("k", None)]


def test_fields_and_paths(base):
    embed = Embed()
    store = PerdureStore(base, index=config(embed, fields=["meta.title", "parts[*].text", "n"]))
    value = {"meta": {"title": "abc"}, "parts": [{"text": "d"}, {"text": "e"}], "n": 12, "x": "h"}
    store.put(DOCS, "k", value)
    assert embed.asked == ["abc", "d", "e", "12"]  # fields that are no text are embedded as one
    assert found(store, "e") == [("k", 1.0)]
    embed.asked.clear()
    store.put(DOCS, "k", value, index=["x", "parts[-1].text", "missing"])
    assert embed.asked == ["h", "e"] and found(store, "d")[0][1] == 0
    embed.asked.clear()
    store.put(DOCS, "k", value, index=["$"])  # to LangGraph's stores a field of that name, here
    assert embed.asked == []
    whole = PerdureStore(base, index=config(embed, fields=["$"]), prefix="whole")
    whole.put(DOCS, "k", value)
    assert len(embed.asked) == 1 and '"title": "abc"' in embed.asked[0]
    store.put(DOCS, "k", value, index=[])
    assert found(store, "e") == [("k", None)]
    whole = PerdureStore(base, index=config(embed))
    whole.put(DOCS, "k", {"b": 1, "a": "ü"})
    assert embed.asked[-1] == '{"a": "ü", "b": 1}'


def test_each_text_is_embedded_once(base):
    embed = Embed()
    store = PerdureStore(base, index=config(embed, fields=["a", "b"]))
    store.batch([PutOp(DOCS, str(number), {"a": "same", "b": "same"}) for number in range(5)])
    assert embed.asked == ["same"]
    assert {round(score, 5) for _, score in found(store, "same")} == {1}


def test_only_the_last_put_of_a_batch_is_embedded(base):
    embed = Embed()
    store = PerdureStore(base, index=config(embed, fields=["t"]))
    store.batch(
        [
            PutOp(DOCS, "k", {"t": "a"}),
            PutOp(DOCS, "k", {"t": "b"}),
            PutOp(DOCS, "l", {"t": "c"}),
            PutOp(DOCS, "l", None),
        ]
    )
    assert embed.asked == ["b"]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ([[1.0] * 7], "vector of 7 numbers, and index\\['dims'\\] is 8"),
        ([], "given 1 texts and returned 0 vectors"),
        ([[math.nan] * 8], "NaN"),
    ],
)
def test_an_embedding_function_that_errs_writes_nothing(base, returned, problem):
    store = PerdureStore(base, index=config(lambda texts: returned))
    with pytest.raises(ValueError, match=problem):
        store.put(DOCS, "k", {"a": 1})
    assert base.agents() == []


def test_another_model_is_noticed(base):
    PerdureStore(base, index=config(Embed())).put(DOCS, "k", {"a": 1})
    store = PerdureStore(base, index=config(Embed("abc")))
    with pytest.raises(perdure.SchemaError, match=r"as 8 numbers, the query as 3.*\n.*put the"):
        store.search(DOCS, query="a")
    store.put(DOCS, "k", {"a": 1})
    assert len(store.search(DOCS, query="a")) == 1


def test_configurations_that_cannot_be(base):
    with pytest.raises(ValueError, match="embed"):
        PerdureStore(base, index={"dims": 8})
    with pytest.raises(ValueError, match="cosine, l2, inner_product"):
        PerdureStore(base, index=config(Embed(), distance_type="hamming"))
    with pytest.raises(ValueError, match="'feilds'"):
        PerdureStore(base, index=config(Embed(), feilds=["text"]))
    with pytest.raises(ValueError, match="give one"):
        PerdureStore(base, index=config(Embed(), fields=["a"], text_fields=["b"]))
    with pytest.raises(TypeError, match="paths"):
        PerdureStore(base, index=config(Embed(), fields=[1]))
    store = PerdureStore(base, index=config(Embed()))
    with pytest.raises(TypeError, match="paths"):
        store.put(DOCS, "k", {}, index="text")


def test_an_async_embedding_function(base):
    embed = Embed()

    async def aembed(texts):
        await asyncio.sleep(0)
        return embed(texts)

    store = PerdureStore(base, index=config(aembed, dims=8))

    async def use():
        await store.aput(DOCS, "k", {"t": "abc"})
        await store.aput(DOCS, "l", {"t": "h"})
        return [item.key for item in await store.asearch(DOCS, query="hhh")]

    assert asyncio.run(use()) == ["l", "k"]
    assert asyncio.run(use()) == ["l", "k"]


def test_numpy_is_looked_for_once_where_it_is_not_there(base, monkeypatch):
    """Each search looked for numpy in vain, in all folders. Ctrl-C came in there: the lock of
    Python's own imports stayed taken, and every later import of any thread waited for ever."""
    looked = []

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "numpy":
                looked.append(name)
                raise ModuleNotFoundError(name=name)

    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.setattr(vectors, "_numpy", cache(vectors._numpy.__wrapped__))
    store = PerdureStore(base, index=config(Embed()))
    store.put(DOCS, "a", {"text": "abc"})
    for _ in range(3):
        assert [one.key for one in store.search(DOCS, query="abc")] == ["a"]
    assert looked == ["numpy"]


def test_without_numpy_and_with_it_scores_are_the_same(base, monkeypatch):
    """And the same as LangGraph's."""
    store = PerdureStore(base, index=config(Embed(), fields=["t[*]"]))
    peer = InMemoryStore(index=config(Embed(), fields=["t[*]"]))
    texts = [["abc", "dd"], ["a"], [], ["zzz", "hgh"], ["zz"]]
    for one in (store, peer):
        for number, text in enumerate(texts):
            one.put(DOCS, str(number), {"t": text})
    wanted = {item.key: item.score for item in peer.search(DOCS, query="abh")}
    kinds = [None]
    if importlib.util.find_spec("numpy"):
        kinds.append(importlib.import_module("numpy"))
    for kind in kinds:
        monkeypatch.setattr(vectors, "_numpy", lambda kind=kind: kind)
        for _ in range(2):  # the second time from what was kept of the first
            assert dict(found(store, "abh")) == pytest.approx(wanted)
        assert dict(found(store, "zz")) == dict.fromkeys("0134", 0) | {"2": None}
