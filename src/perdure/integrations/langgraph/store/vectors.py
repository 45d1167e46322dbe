"""Vectors: texts to embed, how embeddings are stored, and how alike two are."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import mul
from typing import Any, Literal

from langgraph.store.base import ensure_embeddings, get_text_at_path, tokenize_path

from perdure.errors import SchemaError
from perdure.integrations.langgraph.store.items import StoredItem, as_json
from perdure.system.late_imports import optional

Vector = Sequence[float]

FLOAT_BYTES = 4

Distance = Literal["cosine", "l2", "inner_product"]
DISTANCES: tuple[Distance, ...] = ("cosine", "l2", "inner_product")
KNOWN = (
    "dims",
    "embed",
    "fields",
    "text_fields",
    "distance_type",
    "ann_index_config",
    "__tokenized_fields",
    "__estimated_num_vectors",
)
"""The index options of LangGraph's stores; `text_fields` is what `SqliteStore` calls `fields`."""


class Embedding:
    """The user's embedding function, and which fields of an item it is given."""

    def __init__(self, index: Mapping[str, Any]) -> None:
        unknown = sorted(index.keys() - KNOWN)
        if unknown:
            raise ValueError(
                f"index[{unknown[0]!r}] is nothing that an index has: there are {', '.join(KNOWN)}"
            )
        distance = index.get("distance_type", "cosine")
        if distance not in DISTANCES:
            raise ValueError(
                f"index['distance_type'] is one of {', '.join(DISTANCES)}, not {distance!r:.60}"
            )
        self.distance: Distance = distance
        fields, text_fields = index.get("fields"), index.get("text_fields")
        if fields and text_fields and fields != text_fields:
            raise ValueError(
                "index['fields'] and index['text_fields'] name the same thing: give one"
            )
        found: Any = fields or text_fields or ["$"]
        self.fields = _paths([found] if isinstance(found, str) else found)
        self.dims = index.get("dims")
        self._model = ensure_embeddings(index.get("embed"))

    def texts(
        self, value: Mapping[str, Any], index: Literal[False] | list[str] | None
    ) -> dict[str, str]:
        """Returns the texts to embed of an item, by path; several texts at one path are
        numbered."""
        if index is False:
            return {}
        found: dict[str, str] = {}
        value = as_json(value)
        for path in self.fields if index is None else _paths(index):
            # As LangGraph's: "$" is the whole item in `fields`, and a field of that name here.
            texts = get_text_at_path(value, path if index is None else tokenize_path(path))
            for number, text in enumerate(texts):
                found[path if len(texts) == 1 else f"{path}.{number}"] = text
        return found

    def embed(self, texts: Iterable[str], queries: Iterable[str]) -> Embedded:
        """Embed each text once."""
        texts, queries = list(texts), list(queries)
        vectors = self._model.embed_documents(texts) if texts else []
        asked = [self._model.embed_query(query) for query in queries]  # `map` might end early
        return self._embedded(texts, vectors, queries, asked)

    async def aembed(self, texts: Iterable[str], queries: Iterable[str]) -> Embedded:
        """Embeds texts and queries; see `embed`."""
        texts, queries = list(texts), list(queries)
        vectors = await self._model.aembed_documents(texts) if texts else []
        asked = await asyncio.gather(*map(self._model.aembed_query, queries))
        return self._embedded(texts, vectors, queries, asked)

    def _embedded(
        self,
        texts: list[str],
        vectors: Sequence[Vector],
        queries: list[str],
        asked: Sequence[Vector],
    ) -> Embedded:
        if len(texts) != len(vectors):
            raise ValueError(
                f"the embedding function was given {len(texts)} texts and returned "
                f"{len(vectors)} vectors"
            )
        for vector in (*vectors, *asked):
            self._check(vector)
        packed = [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]
        return Embedded(
            dict(zip(texts, packed, strict=True)), dict(zip(queries, asked, strict=True))
        )

    def _check(self, vector: Vector) -> None:
        if self.dims is not None and len(vector) != self.dims:
            raise ValueError(
                f"the embedding function returned a vector of {len(vector)} numbers, "
                f"and index['dims'] is {self.dims}"
            )
        if not all(map(math.isfinite, vector)):
            raise ValueError("the embedding function returned a vector with NaN or infinity in it")


class Embedded:
    """Vectors by their texts: `texts` as they are stored, `queries` as they were returned."""

    def __init__(self, texts: Mapping[str, bytes], queries: Mapping[str, Vector]) -> None:
        self.texts = texts
        self.queries = queries


NOTHING = Embedded({}, {})


def _paths(fields: Any) -> list[str]:
    if not isinstance(fields, list | tuple) or not all(isinstance(path, str) for path in fields):
        raise TypeError(
            f"fields to index are a list of paths such as 'messages[*].text', not {fields!r:.60}"
        )
    return list(fields)


def scores(
    query: Vector, entries: Sequence[StoredItem], distance: Distance = "cosine"
) -> list[float | None]:
    """Returns the score of each entry, higher for more alike: the best of its vectors; None if it
    has none. By cosine −1 to 1; by "inner_product" the product; by "l2" the negated distance.

    Raises:
        SchemaError: an entry's vectors are of another length than the query's.
    """
    numpy = _numpy()
    for entry in entries:
        for blob in entry.vectors.values():
            if len(blob) != FLOAT_BYTES * len(query):
                raise SchemaError(
                    f"it was embedded as {len(blob) // FLOAT_BYTES} numbers, the query as "
                    f"{len(query)}: by another model",
                    target=f"namespace {entry.namespace!r}, key {entry.key!r}",
                    hint="put the items again with the new embedding function",
                )
    length = math.sqrt(math.fsum(number * number for number in query))
    if numpy is not None:
        return _scores_numpy(numpy, query, length, entries, distance)
    return [_best(query, length, entry, distance) for entry in entries]


def _best(query: Vector, length: float, entry: StoredItem, distance: Distance) -> float | None:
    unpacked = {
        path: struct.unpack(f"<{len(query)}f", blob) for path, blob in entry.vectors.items()
    }
    if distance == "l2":
        return max((-math.dist(query, vector) for vector in unpacked.values()), default=None)
    dots = {path: sum(map(mul, query, vector)) for path, vector in unpacked.items()}
    if distance == "inner_product":
        return max(dots.values(), default=None)
    norms = entry.norms
    if norms is None:
        norms = entry.norms = {
            path: math.sqrt(sum(map(mul, vector, vector))) for path, vector in unpacked.items()
        }
    return max(
        (dot / product if (product := length * norms[path]) else 0.0 for path, dot in dots.items()),
        default=None,
    )


def _scores_numpy(
    numpy: Any, query: Vector, length: float, entries: Sequence[StoredItem], distance: Distance
) -> list[float | None]:
    blobs = [blob for entry in entries for blob in entry.vectors.values()]
    rows = numpy.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), len(query))
    asked = numpy.asarray(query, dtype="<f4")
    if distance == "l2":
        alike = -numpy.linalg.norm(rows - asked, axis=1)
    else:
        alike = rows @ asked
    if distance == "cosine":
        product = length * numpy.linalg.norm(rows, axis=1)
        alike = numpy.divide(alike, product, out=numpy.zeros_like(alike), where=product > 0)
    found = iter(alike)
    return [max((float(next(found)) for _ in entry.vectors), default=None) for entry in entries]


@cache
def _numpy() -> Any:
    """Returns numpy if it is installed: it is not a dependency of ours. Looked for once: Python
    does not remember what it did not find, and a Ctrl-C in its search may leave its lock taken."""
    return optional("numpy")
