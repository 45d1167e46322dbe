"""Imports at first use: in one way, with one error; and again, once there is room."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perdure.system.late_imports import NotLoadedError, loading, optional
from tests.source_tree import read_modules

FOR_ONE_PROGRAM = ("perdure.cli", "perdure.testing")
"""Rooms whose programs end with their errors."""

MIDWAY = """
import asyncio_parts, sys
from perdure.system.late_imports import NotLoadedError, loading

class Short:
    left = int(sys.argv[1])

    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if self.left == 0:
            raise OSError(24, "Too many open files")

sys.meta_path.insert(0, Short())
for _ in range(2):
    try:
        with loading:
            import asyncio
    except NotLoadedError:
        print("refused")

async def one():
    return 1

print(asyncio.run(one()))
""".replace("asyncio_parts, ", "")


def unguarded(node: ast.AST, *, late: bool = False) -> Iterator[ast.AST]:
    """The imports inside functions that no ``with loading`` guards."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.With) and any(
            ast.unparse(item.context_expr) == "loading" for item in child.items
        ):
            continue
        if late and isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        if isinstance(child, ast.Call) and ast.unparse(child.func).endswith("import_module"):
            yield child
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from unguarded(child, late=late or inside)


def test_each_import_inside_a_function_is_answered_in_our_words() -> None:
    """A module that was first needed where no descriptor was free raised OSError out of calls, and
    inside a run that was the function's own error, for good."""
    found = [
        f"{module.path.name}:{one.lineno}: {ast.unparse(one)}"
        for name, module in read_modules().items()
        if not name.startswith(FOR_ONE_PROGRAM)
        for one in unguarded(module.tree)
        if isinstance(one, ast.stmt | ast.expr)
    ]
    assert found == []


@pytest.mark.parametrize("module", [2, 30, 60, 70])
def test_asyncio_is_whole_after_an_import_that_ended_midway(module: int) -> None:
    """Python forgets a package whose import failed, and keeps its parts: asyncio, imported again
    then, does not find them as its own, and each import of it raised NameError for good."""
    done = subprocess.run(
        [sys.executable, "-c", MIDWAY, str(module)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["refused", "1"], "")


@pytest.mark.parametrize(
    "error",
    [
        OSError(24, "Too many open files"),
        OSError(5, "Input/output error"),
        MemoryError(),
        ModuleNotFoundError("No module named 'perdure.store'", name="perdure.store"),
        ImportError("libfoo.so: cannot open shared object file: Too many open files"),
    ],
)
def test_what_cannot_be_loaded_now_may_be_tried_again(error: BaseException) -> None:
    with pytest.raises(NotLoadedError) as caught, loading:
        raise error
    assert caught.value.retry
    assert caught.value.outcome == "not_done"
    assert caught.value.__cause__ is error


def test_what_is_not_installed_stays_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), loading:
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401
    assert optional("no_such_package") is None
