"""The names of a thread's parts in its agent's log: branches, idempotency keys, configs."""

from __future__ import annotations

import re
import string
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from perdure.core.arguments.checks import iterable
from perdure.core.arguments.names import check_name, shown
from perdure.model import MAIN
from perdure.system import stack_room
from perdure.system.cached import kept_of_one

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

SCHEMA_ID = "langgraph.thread"
SCHEMA_VERSION = (1, 0)
REMOVED = "@removed"
"""The branch whose state says which checkpoints are removed."""

BRANCH_MAX = 180

PLACES_KEPT = 4096
"""Checkpoints whose keys are known: a step asks for those of one some times, and who rebuilds a
channel that is stored as deltas for those of a hundred, again at each turn."""

_TEXT = frozenset({str})
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEY = re.compile("([cw])([0-9]*):([^:]*:(?:[-0-9A-Z_a-z]{22}|=.+))", re.DOTALL)
_BASE64 = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
_SORTED = bytes(sorted((string.ascii_letters + string.digits + "-_").encode()))
_IN_ORDER = bytes.maketrans(_BASE64, _SORTED)
_USUAL = bytes.maketrans(_SORTED, _BASE64)


def branch_of(namespace: str, number: int) -> str:
    """The branch of a namespace's n-th line, from 1. Lines are numbered without gaps, so that they
    can be found by asking for one after the other."""
    if namespace == "":
        name = MAIN
    else:
        name = "ns:" + quote(namespace, safe=":|/@ ,()[]=").replace("~", "%7E")
        if len(name) > BRANCH_MAX:
            name = f"{name[:120]}…{sha256(namespace.encode()).hexdigest()[:32]}"
    return name if number == 1 else f"{name}~{number}"


def is_line_of(namespace: str, branch: str) -> bool:
    """Returns True if `branch_of` gives that name to one of the namespace's lines."""
    first = branch_of(namespace, 1)
    return branch == first or branch.startswith(first + "~")


def checkpoint_key(namespace: str, checkpoint_id: str, number: int) -> str:
    """The key of the commit that put a checkpoint for the n-th time."""
    return key_of("c", place_of(namespace, checkpoint_id), number)


def writes_key(namespace: str, checkpoint_id: str, number: int) -> str:
    """The key of the n-th commit of writes for a checkpoint."""
    return key_of("w", place_of(namespace, checkpoint_id), number)


def key_of(kind: str, place: str, number: int) -> str:
    return f"{kind}{number if number > 1 else ''}:{place}"


def place_of(namespace: str, checkpoint_id: str) -> str:
    """Returns the part that all keys of one checkpoint have in common."""
    space = quote(namespace, safe="|/") if namespace else ""
    return f"{space}:{_pack_id(checkpoint_id)}"


def _pack_id(checkpoint_id: str) -> str:
    """An id for a key, which is stored twice: 22 letters for the 36 of a UUID. They are in the
    order of the bytes, so that keys of later checkpoints come behind those of earlier ones."""
    if _UUID.fullmatch(checkpoint_id):
        data = bytes.fromhex(checkpoint_id.replace("-", ""))
        return b2a_base64(data, newline=False)[:22].translate(_IN_ORDER).decode()
    return "=" + checkpoint_id


def _unpack_id(packed: str) -> str:
    if packed.startswith("="):
        return packed[1:]
    data = a2b_base64(packed.encode().translate(_USUAL) + b"==").hex()
    return f"{data[:8]}-{data[8:12]}-{data[12:16]}-{data[16:20]}-{data[20:]}"


def read_checkpoint_key(key: str | None) -> tuple[str, str] | None:
    """Namespace and id of the checkpoint that a commit with this key put, if it put one."""
    found = read_key(key)
    return read_place(found[2]) if found is not None and found[0] == "c" else None


def read_key(key: str | None) -> tuple[str, int, str] | None:
    """Returns ``"c"`` for a checkpoint or ``"w"`` for writes for one, the number, and `place_of`
    the checkpoint; None for another key."""
    found = _KEY.fullmatch(key) if key is not None else None
    if found is None:
        return None
    kind, number, place = found.groups()
    return kind, int(number or 1), place


@kept_of_one(PLACES_KEPT)
def read_place(place: str) -> tuple[str, str]:
    """The namespace and the id of which this is `place_of`."""
    namespace, _, packed = place.partition(":")
    return unquote(namespace) if namespace else "", _unpack_id(packed)


def made_at(checkpoint_id: str) -> float | None:
    """Returns when an id in LangGraph's form (UUID version 6) was made, in seconds since 1970; None
    for another id."""
    parts = checkpoint_id.split("-")
    if [len(part) for part in parts] != [8, 4, 4, 4, 12] or not parts[2].startswith("6"):
        return None
    try:
        ticks = int(parts[0] + parts[1] + parts[2][1:], 16)
    except ValueError:
        return None
    return ticks / 1e7 - 12_219_292_800


def _configurable(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    try:
        found = None if config is None else config.get("configurable")
    except AttributeError as error:
        raise TypeError(
            'a config is a dict, {"configurable": {"thread_id": "…"}}, not ' + shown(config)
        ) from error
    # By its type first: an `isinstance` of an abstract class takes longer than all else here.
    return found if type(found) is dict or isinstance(found, Mapping) else {}


def thread_id_of(config: Mapping[str, Any] | None) -> str:
    """The thread that a config names.

    Raises:
        ValueError: it names none, or not one that an agent can be called.
    """
    found = _configurable(config).get("thread_id")
    if found is None:
        raise ValueError(
            'the config names no thread: pass config={"configurable": {"thread_id": "…"}}'
        )
    return checked(said(found, "thread_id"))


@kept_of_one(1024)
def checked(thread_id: str) -> str:
    """A thread's id, which is its agent's name.

    Raises:
        ValueError: no agent can be called that.
    """
    try:
        return check_name(thread_id, "a thread")
    except ValueError as error:
        raise ValueError(
            f"no thread_id: {error}. For a longer one, pass its digest: "
            "hashlib.sha256(thread_id.encode()).hexdigest()"
        ) from None


def plainly_named(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """A checkpoint whose channels and nodes are called by texts, also where a graph has members of
    an enum for them."""
    versions, seen = checkpoint.get("channel_versions") or {}, checkpoint.get("versions_seen") or {}
    if _TEXT.issuperset(map(type, chain(versions, seen, checkpoint["channel_values"]))):
        return checkpoint
    made = dict(checkpoint)
    for part in ("channel_values", "channel_versions"):
        made[part] = {plain_name(name): item for name, item in made.get(part, {}).items()}
    made["versions_seen"] = {
        plain_name(node): {plain_name(name): item for name, item in found.items()}
        for node, found in seen.items()
    }
    if made.get("updated_channels") is not None:
        made["updated_channels"] = [plain_name(name) for name in made["updated_channels"]]
    return made


def plain_name(name: Any) -> Any:
    """A name as the text that it is."""
    return str.__str__(name) if isinstance(name, str) else name


def channel_of(name: Any) -> str:
    """Returns the name of a channel as plain text. Writes of several tasks are one commit: a
    failure there would affect those of others.

    Raises:
        TypeError: it is not a text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a channel is called by a text, not {shown(name)}")
    return str.__str__(name)


def several(given: Iterable[Any], of: str) -> Iterable[Any]:
    """Returns several ids; refuses a single text, which would be taken for its letters: their
    threads would be deleted.

    Raises:
        TypeError: it is a single text, or not iterable.
    """
    if isinstance(given, str | bytes):
        raise TypeError(f"{of} are several, e.g. [{shown(given)}], not {shown(given)}")
    return iterable(given, of)


def said(value: Any, name: str) -> str:
    """Returns a value as text; a text unchanged.

    Raises:
        ValueError: it has no text, e.g. a list in itself.
    """
    if type(value) is str:
        return value
    try:
        return str(value)
    except RecursionError as error:
        stack_room.pass_on(error)
        raise ValueError(f"{name} is not a text, and nested too deep to be shown as one") from error


def address_of(config: Mapping[str, Any] | None) -> tuple[str, str, str | None]:
    """Returns the thread, the namespace and the checkpoint that a config names; see `thread_id_of`,
    `namespace_of` and `checkpoint_id_of`. Fast for the configs that LangGraph hands over at each
    step."""
    found = _configurable(config)
    thread, space, at = (
        found.get("thread_id"),
        found.get("checkpoint_ns"),
        found.get("checkpoint_id"),
    )
    if type(thread) is str and (space is None or space == "") and (at is None or type(at) is str):
        return checked(thread), "", text_of(at, "checkpoint_id") if at else None
    return thread_id_of(config), namespace_of(config), checkpoint_id_of(config)


def has_namespace(config: Mapping[str, Any] | None) -> bool:
    """Returns True if a config names a namespace, even that of the graph itself."""
    return config is not None and _configurable(config).get("checkpoint_ns") is not None


def namespace_of(config: Mapping[str, Any] | None) -> str:
    found = _configurable(config).get("checkpoint_ns")
    return "" if found is None or found == "" else text_of(found, "checkpoint_ns")


def checkpoint_id_of(config: Mapping[str, Any] | None) -> str | None:
    found = _configurable(config).get("checkpoint_id")
    return None if found is None or found == "" else text_of(found, "checkpoint_id")


def text_of(value: Any, name: str) -> str:
    """An id as text.

    Raises:
        ValueError: it is empty, or no text.
    """
    text = said(value, name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the config's {name} is not a valid text: it has a lone surrogate"
        ) from None
    if not text:
        raise ValueError(f"an empty {name}")
    return text


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }
