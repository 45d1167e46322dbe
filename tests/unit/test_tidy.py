"""The style that a machine can check: sizes, dead files, and what must not be in them."""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.source_tree import ROOT, SOURCE, Module, imports, read_modules

# A file or function that outgrows these is telling us about a missing concept.
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

# Put together here, or this file would hold what it looks for. Where packages come from is
# the business of each machine's pip.
REGISTRY_HOSTS = ["pypi." + "org", "python" + "hosted.org"]
AT_THE_ROOT = {
    *(".gitattributes", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md"),
    *("pyproject.toml", "PKG-INFO"),  # the latter in a source distribution
}
VAGUE = re.compile(r"\W*(What|Whether|How|Where)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.*])/(?:work|tmp)/")


def source_files() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and path.suffix in {".py", ".sql"}:
            yield path


def tracked_files() -> list[Path]:
    """What git has, or is about to; without git, what lies where our files lie."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        folders = ["src", "tests", "docs", "bench", "examples", "requirements", "tools", ".ci"]
        paths = [*ROOT.iterdir(), *(path for name in folders for path in (ROOT / name).rglob("*"))]
    return [path for path in paths if path.is_file() and "__pycache__" not in path.parts]


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules()


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name} has {lines} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def unused(modules: Mapping[str, Module]) -> list[str]:
    """Modules that no other one imports, or names in a string (a table of what to load)."""
    used: set[str] = set()
    for module in modules.values():
        used |= imports(module, modules)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value.partition(":")[0])
    return [
        name
        for name, module in modules.items()
        if name not in used
        and module.path.name not in {"__init__.py", "__main__.py"}
        and name != "perdure.cli"  # pyproject.toml names it
        and not name.startswith(("perdure.testing.", "perdure.integrations."))  # users do
    ]


def test_files_are_short() -> None:
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in source_files()}
    assert {str(path): count for path, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_functions_are_short(modules: dict[str, Module]) -> None:
    found = {name: long_functions(module.tree) for name, module in modules.items()}
    assert {name: functions for name, functions in found.items() if functions} == {}


def vague(tree: ast.Module) -> list[str]:
    """Docstrings, of names too, that ask what they should answer."""
    found = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, one in pairwise([None, *body]) if isinstance(body, list) else ():
            match one:
                case ast.Expr(ast.Constant(str(text))) if VAGUE.match(text):
                    if before is None or isinstance(before, ast.Assign | ast.AnnAssign):
                        found.append(f"line {one.lineno}: {text[:40]}")
    return found


def test_docstrings_say_what_the_caller_gets(modules: dict[str, Module]) -> None:
    """ "Returns the …", "True if …": several hundred began with "What …" or "Whether …"."""
    found = {name: vague(module.tree) for name, module in modules.items()}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_no_dead_files(modules: dict[str, Module]) -> None:
    if "perdure.store" not in modules:
        pytest.skip("built from the bottom up: what is below the store has no user yet")
    assert unused(modules) == []


def test_no_package_registry_is_named() -> None:
    found = [
        f"{path.relative_to(ROOT)} names {host}"
        for path in tracked_files()
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes().lower()
    ]
    assert found == []


def test_no_path_of_a_machine() -> None:
    """Somebody's note to somebody else, with the paths of their machine, lay in the root for a
    day: only the source was looked at."""
    texts = {p: p.read_bytes().decode("utf-8", "replace") for p in tracked_files()}
    assert [str(path) for path, text in texts.items() if MACHINE_PATHS.search(text)] == []


def test_the_root_holds_what_it_is_known_for() -> None:
    at_the_root = {path.name for path in tracked_files() if path.parent == ROOT}
    assert at_the_root <= AT_THE_ROOT


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    body = "    x = 1\n" * FUNCTION_LINES_MAX
    assert long_functions(ast.parse(f"class A:\n  def f():\n{body}")) == ["f has 71 lines"]
    said = ast.parse('"""The a."""\nB = 1\n"""What b is."""\ndef c():\n  """Whether c."""')
    assert vague(said) == ["line 3: What b is.", "line 5: Whether c."]
    assert MACHINE_PATHS.search('"/' + 'tmp/x"')
    assert not MACHINE_PATHS.search("docs" + "/" + "work/x")
    (tmp_path / "perdure").mkdir()
    for name, text in {"store": "", "core": "TABLE = ['perdure.store:open']"}.items():
        (tmp_path / "perdure" / f"{name}.py").write_text(text)
    assert unused(read_modules(tmp_path)) == ["perdure.core"]
