"""Side by side with LangGraph's InMemoryStore: the same operations, the same answers.

Left out is what it does by accident: it raises where a field cannot be compared, shows namespaces
that are empty, and begins an item anew with every put. Its order is of insertion, ours by time.
"""

# mypy: disable-error-code="arg-type, union-attr"

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import perdure
from perdure.integrations.langgraph.store.memory_store import PerdureStore

LABELS = st.sampled_from(["a", "b", "a/b", "ü", "%"])
SPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "l", "m", "", "a/b"])
TEXTS = st.sampled_from(["red", "green", "blue sky", "ключ", ""])
WORDS = st.sampled_from(["ruby", "sky", "bread"])  # others: InMemoryStore mixes up equal texts
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-3, 3) | st.sampled_from([0.5, 2.0])},
    optional={
        "color": TEXTS,
        "on": st.booleans() | st.none(),
        "deep": st.fixed_dictionaries({}, optional={"x": st.integers(0, 2), "y": WORDS}),
        "list": st.lists(st.integers(0, 2) | TEXTS, max_size=3, unique=True),
    },
)
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.5])
ORDERS = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "n": NUMBERS
        | st.dictionaries(ORDERS, NUMBERS, min_size=1, max_size=2)
        | st.fixed_dictionaries({"$ne": NUMBERS}),
        "color": TEXTS | st.none() | st.fixed_dictionaries({"$eq": TEXTS}),
        "on": st.booleans() | st.none(),
        "deep": st.fixed_dictionaries({}, optional={"x": st.integers(0, 2)}),
        "list": st.lists(st.integers(0, 2) | TEXTS, max_size=2),
        "missing": st.none() | st.fixed_dictionaries({"$ne": TEXTS}),
    },
)
PUTS = st.builds(
    PutOp,
    SPACES,
    KEYS,
    st.none() | VALUES,
    index=st.sampled_from([None, None, False, ["color"], ["deep.y", "list[*]"], ["$"]]),
    ttl=st.none(),
)
PATHS = st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple)
CONDITIONS = st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), PATHS)
READS = st.one_of(
    st.builds(GetOp, SPACES, KEYS),
    st.builds(
        SearchOp,
        SPACES | st.just(()),
        FILTERS | st.none(),
        limit=st.just(1000),
        offset=st.just(0),
        query=st.none() | TEXTS,
    ),
    st.builds(
        ListNamespacesOp,
        st.none() | st.lists(CONDITIONS, max_size=2).map(tuple),
        max_depth=st.none() | st.integers(1, 3),
        limit=st.just(1000),
        offset=st.just(0),
    ),
)
BATCHES = st.lists(st.lists(READS | PUTS, min_size=1, max_size=6), min_size=1, max_size=8)


def embed(texts):
    """Letters, counted: the more two texts have in common, the more alike they are."""
    return [[float(text.count(letter)) for letter in "redgnblusky "] for text in texts]


def put_one_by_one(peer, batch):
    """InMemoryStore mixes up vectors where two items of a batch have the same text, and keeps those
    of fields that a later put of the item does not have."""
    last = {(op.namespace, op.key): op for op in batch if isinstance(op, PutOp)}
    for op in last.values():
        peer._vectors[op.namespace].pop(op.key, None)
        peer.batch([op])


def plain(op, answer, peer):
    """An answer without what may differ."""
    if isinstance(op, GetOp):
        return answer and (answer.namespace, answer.key, answer.value)
    if isinstance(op, ListNamespacesOp):
        live = {space for space, items in peer._data.items() if items}
        depth = op.max_depth
        return sorted(space for space in answer if space in {one[:depth] for one in live})
    return sorted(
        [
            (
                None if not op.query or item.score is None else round(item.score, 5),
                item.namespace,
                item.key,
                item.value,
            )
            for item in answer
        ],
        key=repr,
    )


def check_order(answer):
    """The scored come first, the best of them foremost."""
    found = [item.score for item in answer]
    scored = [score for score in found if score is not None]
    assert found == scored + [None] * (len(found) - len(scored))
    assert scored == sorted(scored, reverse=True)


@settings(max_examples=60)
@given(BATCHES)
def test_same_answers(batches):
    index = {"dims": 12, "embed": embed, "fields": ["color", "deep.y", "n"]}
    peer = InMemoryStore(index=index)
    with perdure.open("memory://") as base:
        store, other = PerdureStore(base, index=index), PerdureStore(base, index=index)
        for batch in batches:
            asked = [op for op in batch if not isinstance(op, PutOp)]
            answers = store.batch(batch)
            ours = [answers[at] for at, op in enumerate(batch) if not isinstance(op, PutOp)]
            for op, our, their in zip(asked, ours, peer.batch(asked), strict=True):
                assert plain(op, our, peer) == plain(op, their, peer), op
                if isinstance(op, SearchOp) and op.query:
                    check_order(our)
            put_one_by_one(peer, batch)
            store, other = other, store
        for one in (store, other, PerdureStore(base, index=index)):
            found = {(item.namespace, item.key): item.value for item in one.search((), limit=1000)}
            assert found == {
                (space, key): item.value
                for space, items in peer._data.items()
                for key, item in items.items()
            }
        for info in base.agents():
            base.agent_of(info).verify()


@settings(max_examples=15)
@given(st.lists(PUTS, min_size=1, max_size=15), FILTERS, st.integers(1, 4), st.none() | TEXTS)
def test_pages_are_the_whole(puts, wanted, size, query):
    index = {"dims": 12, "embed": embed, "fields": ["color"]}
    with perdure.open("memory://") as base:
        store = PerdureStore(base, index=index)
        store.batch(puts)
        whole = store.search((), filter=wanted, limit=1000, query=query)
        pages = [
            store.search((), filter=wanted, limit=size, offset=at, query=query)
            for at in range(0, len(whole) + 1, size)
        ]
        assert [item for page in pages for item in page] == whole
