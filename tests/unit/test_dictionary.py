"""The dictionary that short bodies are packed with."""

from __future__ import annotations

import re
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from perdure.core.format import dictionary, envelope
from perdure.core.values import codec
from perdure.errors import Corrupt, UnsupportedFormat

ROOT = Path(__file__).resolve().parents[2]
HEAD = envelope.OVERHEAD
BODY = codec.encode(
    [
        [[2, ["values", "messages"], [{"@": "HumanMessage", "content": "Where is my money?"}]]],
        [{"t": "lg", "p": 17, "a": 1_795_284_815_867_182, "u": True, "m": ["loop", 18]}],
    ]
)


def test_it_is_the_one_that_the_page_of_the_format_describes() -> None:
    """Stores need these very bytes for as long as they live."""
    page = (ROOT / "docs/format.md").read_text("utf-8")
    said = re.search(r"dictionary-1\.zdict.*SHA-256 `([0-9a-f]{64})`", page)
    data = (ROOT / "src/perdure/core/format/dictionary-1.zdict").read_bytes()
    assert said is not None
    assert said[1] == sha256(data).hexdigest()
    assert len(data) == 4096


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 500, 16 * 1024, 16 * 1024 + 1, 100_000])
@pytest.mark.parametrize("kind", ["text", "noise"])
def test_bodies_of_any_size_come_back(size: int, kind: str) -> None:
    words = b"the state of a run and what it was called for " * 3000
    noise = b"".join(sha256(number.to_bytes(4, "big")).digest() for number in range(4000))
    body = (words if kind == "text" else noise)[:size]
    sealed = envelope.seal(body)
    assert envelope.open_envelope(sealed, "it") == body
    assert len(sealed) <= HEAD + len(body)
    features = int.from_bytes(sealed[3:5], "big")
    packed = kind == "text" and size >= 64
    assert features == (0 if not packed else 3 if size <= 16 * 1024 else 1)


def test_what_commits_have_alike_takes_little() -> None:
    assert len(envelope.seal(BODY)) - HEAD < 0.7 * len(BODY)


def test_a_body_that_was_packed_without_a_dictionary_is_read() -> None:
    import zstandard

    body = BODY * 5
    packed = zstandard.ZstdCompressor(level=1).compress(body)
    old = b"Pd\x01\x00\x01\x01" + bytes(envelope.SALT_SIZE) + packed
    assert envelope.open_envelope(old, "it") == body


@pytest.mark.parametrize("number", [b"\x00", b"\x02", b"\xff"])
def test_another_dictionary_is_refused(number: bytes) -> None:
    sealed = envelope.seal(BODY)
    with pytest.raises(UnsupportedFormat, match=f"dictionary {number.hex()}"):
        envelope.open_envelope(sealed[:HEAD] + number + sealed[HEAD + 1 :], "it")


def test_an_envelope_that_ends_before_its_dictionary_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="dictionary none"):
        envelope.open_envelope(envelope.seal(BODY)[:HEAD], "it")


@pytest.mark.parametrize("features", [2, 4, 7, 8])
def test_features_that_nobody_writes_are_refused(features: int) -> None:
    sealed = bytearray(envelope.seal(BODY))
    sealed[3:5] = features.to_bytes(2, "big")
    with pytest.raises(UnsupportedFormat, match="features"):
        envelope.open_envelope(bytes(sealed), "it")


def test_a_broken_frame_is_found() -> None:
    with pytest.raises(Corrupt, match="zstd"):
        envelope.open_envelope(envelope.seal(BODY)[: HEAD + 1] + b"no frame", "it")


def test_threads_pack_and_unpack_at_once() -> None:
    dictionary._loaded.clear()  # the first to come loads it
    go = threading.Barrier(8)
    problems: list[BaseException] = []

    def work(number: int) -> None:
        go.wait()
        try:
            for count in range(200):
                body = BODY + str(number * count).encode() * 9
                assert envelope.open_envelope(envelope.seal(body), "it") == body
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_threads_that_come_and_go_share_the_tools() -> None:
    bodies = [f"{number} ".encode() * size for number in range(8) for size in (10, 500, 20_000)]
    wrong: list[bytes] = []

    def work() -> None:
        for body in bodies:
            if envelope.open_envelope(envelope.seal(body), "it") != body:
                wrong.append(body)

    before = len(envelope._idle)
    for _ in range(5):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert 0 < len(envelope._idle) <= max(before, 6)


def test_tools_are_given_back_by_who_fails() -> None:
    sealed = envelope.seal(b"word " * 100)
    before = list(envelope._idle)
    with pytest.raises(Corrupt):
        envelope.open_envelope(sealed[:-5], "it")
    with pytest.raises(TypeError):
        envelope.seal(["no bytes"] * 100)  # type: ignore[arg-type]
    assert envelope._idle == before
