"""Imports go one way, down the layers of DESIGN.md; lazy ones too."""

from collections.abc import Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.source_tree import Module, imports, read_modules

# From the bottom up. A module imports from its own layer and from those below it.
LAYERS = (
    ("visible", "private", "missing"),
    ("errors",),
    ("public_data",),
    ("delta",),
    ("model",),
    ("system",),
    ("core",),
    ("storage",),
    ("state",),
    ("retention",),
    ("verification", "transfer"),
    ("engine",),
    ("agents",),  # with store.py the public sync API; the store hands out agents
    ("store", "replication", "repairing", "backing_up"),
    ("adapters",),  # what integrations stand on
    ("aio",),
    ("types",),
    ("",),  # perdure/__init__.py, the public names
    ("cli", "server", "integrations", "__main__"),
)
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
FACES = LAYERS[-1]
# They talk to the store only.
NOT_FOR_FACES = ("storage", "state", "retention", "verification", "transfer", "engine")
NOT_FOR_TESTING = ("cli", "integrations", "__main__")

# The rooms of a package, from the bottom up; "" is what lies in it without a room. Here imports
# for types only count, too: who names a type has to know what it is.
ROOMS = {
    "perdure.core": ("arguments", "values", "format", "types", "live", "schema", "undo", "draft"),
    "perdure.state": ("runs", "event_loop", ""),
    "perdure.engine": ("journal", "execution", "functions", "control", "dispatch"),
    "perdure.integrations.langgraph": ("values", "threads", "", "store", "moving"),
}


@cache
def our_modules() -> dict[str, Module]:
    return read_modules()


def part_of(name: str) -> str:
    """The file or folder right under perdure/ that a module lies in; "" for perdure itself."""
    return f"{name}.".split(".")[1]


def why_not(importer: str, imported: str) -> str | None:
    part, other = part_of(importer), part_of(imported)
    if other == "testing":
        return None if part == "testing" else "nothing imports testing"
    if part == "testing":
        return "testing does not import faces" if other in NOT_FOR_TESTING else None
    if part in FACES and other in NOT_FOR_FACES:
        return "a face talks to the store only"
    return "imports go down only" if RANKS[other] > RANKS[part] else None


def room_of(name: str, package: str, rooms: Sequence[str]) -> str | None:
    """The room of `package` that a module lies in; None: it lies elsewhere, or is the package."""
    if not name.startswith(f"{package}."):
        return None
    first = name.removeprefix(f"{package}.").split(".")[0]
    return first if first in rooms else ""


def arrows_up(
    modules: Mapping[str, Module], rooms_of: Mapping[str, Sequence[str]] = ROOMS
) -> list[str]:
    found = []
    for package, rooms in rooms_of.items():
        for name, module in modules.items():
            room = room_of(name, package, rooms)
            for imported in (
                () if room is None else sorted(imports(module, modules, for_types=True))
            ):
                other = room_of(imported, package, rooms)
                if other is not None and rooms.index(other) > rooms.index(room or ""):
                    found.append(f"{name} imports {imported}")
    return found


def strangers(modules: Mapping[str, Module]) -> list[str]:
    return [name for name in modules if part_of(name) not in {*RANKS, "testing"}]


def wrong_imports(modules: Mapping[str, Module], *, for_types: bool = False) -> list[str]:
    return [
        f"{name} imports {imported}: {reason}"
        for name, module in modules.items()
        for imported in sorted(imports(module, modules, for_types=for_types))
        if (reason := why_not(name, imported))
    ]


def cycle(modules: Mapping[str, Module], *, for_types: bool = False) -> list[str]:
    graph = {
        name: imports(module, modules, for_types=for_types) for name, module in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_every_module_has_a_layer() -> None:
    assert strangers(our_modules()) == [], "see LAYERS here"


def test_imports_go_down_the_layers() -> None:
    assert wrong_imports(our_modules()) == []


def test_types_are_named_down_the_layers() -> None:
    assert wrong_imports(our_modules(), for_types=True) == []


def test_imports_go_down_the_rooms_of_a_package() -> None:
    assert arrows_up(our_modules()) == []


def test_every_file_of_a_package_with_rooms_lies_in_one() -> None:
    loose = [
        name
        for package, rooms in ROOMS.items()
        for name in our_modules()
        if room_of(name, package, rooms) not in {None, *rooms}
    ]
    assert loose == []


def test_no_import_cycles() -> None:
    assert cycle(our_modules()) == []


def test_no_cycles_of_types() -> None:
    assert cycle(our_modules(), for_types=True) == []


# The rules themselves, tried on small trees.


def tree(folder: Path, **files: str) -> dict[str, Module]:
    """Modules from texts; in their names `__` stands for the folder separator."""
    for name, text in {"__init__": "", **files}.items():
        path = folder / "perdure" / (name if name == "__init__" else name.replace("__", "/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text, "utf-8")
    return read_modules(folder)


@pytest.mark.parametrize(
    ("importer", "text", "imported"),
    [
        ("core__codec", "import perdure.store", "store"),
        ("core__codec", "def lazy():\n    from perdure import store", "store"),
        ("core__codec", "def lazy():\n    from ..store import Store", "store"),
        ("core__codec", "import importlib\nimportlib.import_module('perdure.store')", "store"),
        ("core__codec", "from perdure.testing.clock import Clock", "testing__clock"),
        ("errors", "from perdure.model import Commit", "model"),
        ("model", "from . import core", "core/__init__"),
        ("engine__functions__run", "from perdure.agents import Agent", "agents"),
        ("agents", "from perdure.store import Store", "store"),
        ("store", "from perdure.aio import AsyncStore", "aio"),
        ("store", "from perdure import open", "__init__"),
        ("cli__main", "from perdure.storage.port import Storage", "storage__port"),
        (
            "integrations__flask",
            "from perdure.engine.functions.run import Run",
            "engine__functions__run",
        ),
        ("testing__crash", "from perdure.cli import main", "cli__main"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, importer: str, text: str, imported: str) -> None:
    files = {"cli/__init__": "", "core/__init__": "", "testing/__init__": ""}
    modules = tree(tmp_path, **{**files, imported: "", importer: text})
    assert len(wrong_imports(modules)) == 1


def test_right_imports_pass(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        __init__="from perdure.store import Store",
        store="from .agents import Agent\nimport perdure.engine.functions.run",
        agents="from perdure.core.codec import encode\nfrom perdure.core import ops",
        engine__functions__run="if TYPE_CHECKING:\n    import perdure.store",
        core__codec="import json\nfrom perdure.errors import Corrupt",
        core__ops="from . import codec",
        errors="",
        cli__main="import perdure\nfrom perdure.core import codec\nfrom perdure.store import Store",
        testing__crash="import perdure\nfrom perdure.storage import port",
        storage__port="",
    )
    assert strangers(modules) == []
    assert wrong_imports(modules) == []
    assert cycle(modules) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    modules = tree(
        tmp_path, core__a="from perdure.core import b", core__b="def f():\n  from . import a"
    )
    assert set(cycle(modules)) == {"perdure.core.a", "perdure.core.b"}


def test_an_arrow_up_is_found(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        core__low__a="if TYPE_CHECKING:\n    import perdure.core.high.b",
        core__high__b="from perdure.core.low import a",
    )
    rooms = {"perdure.core": ("low", "high")}
    assert arrows_up(modules, rooms) == ["perdure.core.low.a imports perdure.core.high.b"]


def test_a_stranger_is_found(tmp_path: Path) -> None:
    assert strangers(tree(tmp_path, helpers="")) == ["perdure.helpers"]
