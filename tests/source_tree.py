"""Reads the library's source files, and what each imports, without importing any."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    name: str  # "perdure.core.codec"; a package's __init__.py has the package's name
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """What its relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def read_modules(source: Path = SOURCE) -> dict[str, Module]:
    """Every module of the package `perdure` under `source`, by its dotted name."""
    modules = {}
    for path in sorted((source / "perdure").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text("utf-8"), str(path)))
    return modules


def imports(module: Module, modules: Mapping[str, Module], *, for_types: bool = False) -> set[str]:
    """The modules of the package that `module` imports, wherever in the file it does.

    Imports inside functions and `import_module("perdure.…")` count; those under
    `if TYPE_CHECKING` do with `for_types`.
    """
    found = set()
    for node in ast.walk(module.tree) if for_types else _running(module.tree):
        for name in _named(node, module):
            target = _known(name, modules)
            if target and target != module.name:
                found.add(target)
    return found


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _named(node: ast.AST, module: Module) -> Iterator[str]:
    """The dotted names that an import may mean: a module, or a name inside of one."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            start = node.module or ""
            if node.level:
                base = module.package.split(".")
                base = base[: len(base) - node.level + 1]
                start = ".".join([*base, node.module] if node.module else base)
            yield from (f"{start}.{alias.name}" for alias in node.names)
        case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
            if ast.unparse(func).split(".")[-1] in {"import_module", "__import__"}:
                yield name


def _known(name: str, modules: Mapping[str, Module]) -> str | None:
    """The module that `name` is or lies in; a folder without __init__.py is its files only."""
    while name.split(".")[0] == "perdure":
        if name in modules:
            return name
        name = name.rpartition(".")[0]
    return None
