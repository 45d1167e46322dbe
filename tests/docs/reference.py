"""docs/reference/: every public name with its signature, its docstring, and an example.

``python -m tests.docs.reference`` writes it anew, of the docstrings and of the files in examples/.
There a line ``# %% Agent.undo Agent.redo`` begins the example of these names, and what stands
before the first such line is what all others of the page need. The pages' blocks are executed by
test_snippets.py, from top to bottom.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import perdure.errors
from tests.source_tree import ROOT, SOURCE

FOLDER = ROOT / "docs" / "reference"
EXAMPLES = Path(__file__).parent / "examples"
LINE_MAX = 88

CALLED = {"Clock", "ContextCodec", "Conversation", "Schema", "Worker"}
"""Classes that users call; of others the signature is the business of who makes them. Structs and
those of integrations have theirs, too."""

INTERNAL = {
    *("AgentAt.read", "AsyncAgent.drive", "AsyncAgent.look", "Child.end", "Child.ended"),
    *("Child.waiting", "Clock.advance_to", "Clock.store_on", "Commit.typed", "Follower.catch_up"),
    *("Follower.check_complete", "Follower.complete", "Options.order"),
    *("Options.runner", "Pending.close", "Pending.send", "Pending.throw", "Question.key"),
    *("Run.executor._scope", "RunHandle.typed", "Store.runner", "Ticket.settle"),
    *(f"RunSession.{name}" for name in ("add_items", "clear_session", "get_items", "pop_item")),
}
"""What is public for other rooms of the library, or for a framework that calls it by itself."""


@dataclass(frozen=True)
class Page:
    file: str
    title: str
    said: str
    module: str
    names: tuple[str, ...]

    @property
    def examples(self) -> Path:
        return EXAMPLES / self.file.replace(".md", ".py").replace("-", "_")


def errors() -> tuple[str, ...]:
    return tuple(
        name
        for name in perdure.__all__
        if getattr(perdure.errors, name, None) and name != "UnknownZone"
    )


def exported(module: str) -> tuple[str, ...]:
    return tuple(importlib.import_module(module).__all__)


PAGES = (
    Page(
        "state.md",
        "State",
        "Stores, agents, and what describes a state. The guide: [State](../state.md).",
        "perdure",
        (
            *("open", "Store", "Agent", "increment", "move", "Schema", "invariant"),
            *("transitions", "Ephemeral", "SnapshotPolicy", "CheckpointPolicy", "GroupPolicy"),
            "Guards",
            *("Cause", "MISSING", "backup", "repair"),
        ),
    ),
    Page(
        "runs.md",
        "Runs",
        "Durable execution. The guides: [Runs](../runs.md), [Waiting](../waiting.md), "
        "[Retries](../retries.md).",
        "perdure",
        (
            *("step", "tool", "agent", "Run", "Signal", "Timer", "Ask", "RunHandle"),
            *("Worker", "Retry", "NOT_DONE", "idempotency_key", "fencing_token", "heartbeat"),
            *("lifespan", "resource", "Ticket"),
            *("save_progress", "save_progress_async", "saved_progress", "sql_transaction"),
            *("transaction", "unrecorded"),
        ),
    ),
    Page(
        "async.md",
        "Async",
        "The same for coroutines. The guide: [Async](../async.md).",
        "perdure",
        ("open_async", "AsyncStore", "AsyncAgent", "AsyncRun", "AsyncRunHandle"),
    ),
    Page(
        "errors.md",
        "Errors",
        "What is raised. [What to do about each](../errors.md).",
        "perdure",
        ("PerdureError", *(name for name in errors() if name != "PerdureError"), "UnknownZone"),
    ),
    Page(
        "testing.md",
        "Testing",
        "For tests of agent functions, and of backends. The guide: [Testing](../testing.md).",
        "perdure.testing",
        (
            *("play", "Played", "PlayedCall", "kill_at_every_boundary", "RunEnding"),
            *("PhysicalCall", "boundary", "kill_program_at_every_boundary", "run_with_kills"),
            *("Ending", "Clock", "run_until_waiting", "recorded_runs", "replay", "Replayed"),
            *("Difference", "BackendContract"),
        ),
    ),
    Page(
        "replication.md",
        "Copies and moves",
        "The guide: [Copies and moves](../replication.md).",
        "perdure.replication",
        (
            *("following", "Follower", "follow", "promote", "migrate", "restore", "Lag", "Step"),
            *("Promoted", "Moved", "Restored", "Aside", "Divergence", "DivergedError"),
            *("IncompleteError", "DoneBeforeError", "ClosedError"),
        ),
    ),
    Page(
        "langgraph.md",
        "LangGraph",
        "The guides: [LangGraph](../langgraph.md), [its store](../langgraph-store.md).",
        "perdure.integrations.langgraph",
        exported("perdure.integrations.langgraph"),
    ),
    Page(
        "openai-agents.md",
        "OpenAI Agents",
        "The guide: [OpenAI Agents](../openai-agents.md).",
        "perdure.integrations.openai_agents",
        (
            *("PerdureSession", "PerdureRunStates", "ContextCodec", "RunSession", "RecordedModel"),
            *("Conversation", "SavedRun"),
        ),
    ),
    Page(
        "types.md",
        "Types",
        "The types of what calls give, for annotations; shown by the call that gives them.",
        "perdure.types",
        exported("perdure.types"),
    ),
)


@dataclass
class Entry:
    """One name of a page, and the members of a class."""

    name: str
    signature: str
    doc: str
    gives: str = ""
    members: list[Entry] = field(default_factory=list)


# -- what stands in the source -------------------------------------------------------------


@cache
def tree_of(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def definition(module: str, name: str) -> ast.AST | None:
    """The last one of that name, behind its overloads."""
    body: list[ast.stmt] = tree_of(module).body
    found: Any = None
    for part in name.split("."):
        found = None
        for node in body:
            if getattr(node, "name", None) == part:
                found = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id == part for one in targets):
                    found = node
        body = getattr(found, "body", [])
    return found  # type: ignore[no-any-return]


def parameters(
    node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, *, bound: bool
) -> list[str]:
    every = node.args
    parts: list[str] = []
    positional = [*every.posonlyargs, *every.args]
    defaults = [None] * (len(positional) - len(every.defaults)) + list(every.defaults)
    for number, (one, default) in enumerate(zip(positional, defaults, strict=True), 1):
        parts.append(parameter(one, default, module))
        if number == len(every.posonlyargs):
            parts.append("/")
    if every.vararg:
        parts.append("*" + parameter(every.vararg, None, module))
    elif every.kwonlyargs:
        parts.append("*")
    for both in zip(every.kwonlyargs, every.kw_defaults, strict=True):
        parts.append(parameter(*both, module))
    if every.kwarg:
        parts.append("**" + parameter(every.kwarg, None, module))
    parts = parts[1:] if bound else parts
    if parts[:1] == ["/"]:
        parts = parts[1:]
    return [part for part in parts if not part.startswith("_")]


def parameter(one: ast.arg, default: ast.expr | None, module: str) -> str:
    said = f"{one.arg}: {plain(one.annotation)}" if one.annotation else one.arg
    if isinstance(default, ast.Name) and default.id.isupper() and default.id != "MISSING":
        value = getattr(importlib.import_module(module), default.id)  # a constant of the file's
        default = ast.parse(repr(value).replace("datetime.", "")).body[0].value  # type: ignore[attr-defined]
    if default is not None:
        said += f" = {plain(default)}"
    return said


def plain(node: ast.AST | None) -> str:
    return "None" if node is None else ast.unparse(node).replace("builtins.", "").replace("'", '"')


def wrapped(head: str, parts: list[str], end: str) -> str:
    line = f"{head}({', '.join(parts)}){end}"
    if len(line) <= LINE_MAX:
        return line
    return "\n".join([f"{head}(", *(f"    {part}," for part in parts), f"){end}"])


def function_entry(name: str, thing: Any, node: Any, module: str, *, bound: bool) -> Entry:
    returned = plain(node.returns)
    word = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    if any("contextmanager" in ast.unparse(one) for one in node.decorator_list):
        returned = re.sub(r"Iterator\[(.*)\]", r"AbstractContextManager[\1]", returned)
    said = wrapped(word + name, parameters(node, module, bound=bound), f" -> {returned}")
    return Entry(name, said, docstring(thing), returned)


def docstring(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def fields(node: ast.ClassDef, within: str) -> list[str]:
    """Those of a struct or dataclass, as parameters."""
    found = []
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            name = one.target.id
            if name.startswith("_") or f"{within}.{name}" in INTERNAL:
                continue
            said = f"{name}: {plain(one.annotation)}"
            if one.value is not None:
                default = plain(one.value)
                factory = re.search(r"default_factory=(\w+)", default)
                said += f" = {factory[1] + '()' if factory else default}"
            found.append(said)
    return found


def class_entry(name: str, thing: type, called: bool) -> Entry:
    node = definition(thing.__module__, thing.__qualname__)
    assert isinstance(node, ast.ClassDef)
    said = f"class {name}"
    start: Any = next((one for one in node.body if getattr(one, "name", "") == "__init__"), None)
    is_data = hasattr(thing, "__struct_fields__") or hasattr(thing, "__dataclass_fields__")
    if start is not None and called:
        said = wrapped(said, parameters(start, thing.__module__, bound=True), "")
    elif is_data:
        said = wrapped(said, fields(node, name), "")
    if issubclass(thing, BaseException):
        bases = [base.__name__ for base in thing.__bases__]
        said = f"class {name}({', '.join(bases)})"
    entry = Entry(name, said, "" if thing.__doc__ is None else docstring(thing))
    entry.members = [
        member
        for key in members(thing)
        if (member := member_entry(name, thing, key, is_data)) is not None
    ]
    return entry


WHOLE = {
    "BackendContract",
    "RecordedModel",
    "Retry",
    "Schema",
    "SnapshotPolicy",
    "CheckpointPolicy",
    "Guards",
    "GroupPolicy",
}
"""Classes that users make, or derive from, and of which they call nothing."""


BEHIND = {"Housekeeping", "GoingBack"}
"""Bases that are a part of a class in a file of its own: their members stand behind the others."""


def members(thing: type) -> list[str]:
    """Public ones, those of its bases within the library first."""
    if thing.__name__ in WHOLE or issubclass(thing, BaseException):
        return []
    found: dict[str, None] = {}
    bases = thing.__mro__[::-1]
    for base in sorted(bases, key=lambda base: base.__name__ in BEHIND):
        if base.__module__.startswith("perdure"):
            found |= dict.fromkeys(key for key in vars(base) if not key.startswith("_"))
    return list(found)


def member_entry(name: str, thing: type, key: str, is_data: bool) -> Entry | None:
    full = f"{name}.{key}"
    home = next(base for base in thing.__mro__ if key in vars(base))
    node: Any = definition(home.__module__, f"{home.__qualname__}.{key}")
    if full in INTERNAL or node is None or isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    value = inspect.getattr_static(thing, key)
    if isinstance(value, property) or type(value).__name__ == "cached":
        doc = docstring(value)
        return Entry(full, f"{full}: {plain(node.returns)}", doc, plain(node.returns))
    static = isinstance(value, staticmethod)
    made = function_entry(key, getattr(thing, key), node, home.__module__, bound=not static)
    made.name = full
    made.signature = made.signature.replace(f"def {key}(", f"def {full}(", 1)
    return made


def entry(page: Page, name: str) -> Entry:
    thing = getattr(importlib.import_module(page.module), name)
    if inspect.isclass(thing) and thing.__module__.startswith("perdure"):
        called = name in CALLED or "integrations" in page.module
        return class_entry(name, thing, called)
    if inspect.isfunction(thing):
        node = definition(thing.__module__, thing.__qualname__)
        return function_entry(name, thing, node, thing.__module__, bound=False)
    return constant_entry(page, name, thing)


def constant_entry(page: Page, name: str, thing: Any) -> Entry:
    """A value or an alias, with the words below it in the source."""
    home = page.module
    for room in (perdure._NAMES, perdure.types._NAMES):
        home = room._home.get(name, home)
    while definition(home, name) is None:
        home = next(
            str(one.module)
            for one in tree_of(home).body
            if isinstance(one, ast.ImportFrom) and name in {alias.name for alias in one.names}
        )
    body = tree_of(home).body
    node = definition(home, name)
    at = body.index(node)  # type: ignore[arg-type]
    said = body[at + 1] if at + 1 < len(body) else None
    words = ""
    if isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant):
        words = inspect.cleandoc(str(said.value.value))
    return Entry(name, plain(node), words or docstring(type(thing)))


# -- a docstring as Markdown ---------------------------------------------------------------

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises(?: \(when called\))?|Every .* raises):$")
ITEM = re.compile(r"^([\w.*]+(?:, [\w.*]+)*): ")
ERROR = re.compile(r"(?<=[.;]) (?=([A-Z]\w+): )")


def is_error(name: str) -> bool:
    return hasattr(builtins, name) or hasattr(perdure.errors, name) or name.endswith("Error")


def items(lines: list[str], errors: bool) -> Iterator[str]:
    """The entries of a section, each on one line."""
    text: list[str] = []
    for line in [*lines, ""]:
        if text and (not line.startswith(" ") or not line):
            whole = " ".join(part.strip() for part in text)
            parts = ERROR.split(whole) if errors else [whole]
            # `split` gives the names of the errors between the parts, too.
            yield from parts[::2] if len(parts) > 1 and is_error(parts[1]) else [whole]
            text = []
        if line:
            text.append(line)


def markdown(doc: str) -> str:
    out: list[str] = []
    lines = doc.splitlines()
    while lines:
        line = lines.pop(0)
        head = SECTION.match(line)
        if head is None:
            out.append(line)
            continue
        inside = []
        while lines and (lines[0].startswith("    ") or (not lines[0] and is_inside(lines))):
            inside.append(lines.pop(0)[4:])
        out += [f"**{head[1]}**", ""]
        if head[1] == "Returns":
            out.append(" ".join(part.strip() for part in inside))
        for item in items(inside, "aises" in head[1]) if head[1] != "Returns" else ():
            names = ITEM.match(item)
            if names is not None:
                quoted = ", ".join(f"`{name}`" for name in names[1].split(", "))
                item = f"{quoted}: {item[names.end() :]}"
            out.append(f"- {item}")
        out.append("")
    text = re.sub(r"``([^`]+)``", r"`\1`", "\n".join(out))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def is_inside(lines: list[str]) -> bool:
    return len(lines) > 1 and lines[1].startswith("    ")


# -- pages ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    names: tuple[str, ...]
    code: str


def examples(page: Page) -> tuple[str, list[Example]]:
    """What all need, and each example."""
    if not page.examples.exists():
        return "", []
    first, *cells = page.examples.read_text("utf-8").split("\n# %% ")
    found = []
    for cell in cells:
        names, _, code = cell.partition("\n")
        found.append(Example(tuple(names.split()), code.strip()))
    body = ast.parse(first).body
    if body and isinstance(body[0], ast.Expr):  # the file's docstring
        first = "\n".join(first.splitlines()[body[0].end_lineno or 0 :])
    return first.strip(), found


def anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.lower())


@cache
def entries() -> dict[str, list[Entry]]:
    return {page.file: [entry(page, name) for name in page.names] for page in PAGES}


@cache
def places() -> dict[str, str]:
    """Where each name stands; of those that are at two, the first."""
    found: dict[str, str] = {}
    for file, tops in entries().items():
        for top in tops:
            for one in [top, *top.members]:
                found.setdefault(one.name, f"{file}#{anchor(one.name)}")
    return found


@cache
def givers() -> dict[str, list[str]]:
    """Which calls give a type."""
    found: dict[str, list[str]] = {}
    for file, tops in entries().items():
        for top in tops:
            for one in [top, *top.members] if file != "types.md" else ():
                for name in dict.fromkeys(re.findall(r"\w+", one.gives)):
                    found.setdefault(name, []).append(one.name)
    return found


def linked(text: str, top: str, itself: str, signature: str) -> str:
    """With links from names in backticks to where they stand."""

    def link(found: re.Match[str]) -> str:
        name = found[1].removeprefix("perdure.")
        place = places().get(f"{top}.{name}") or places().get(name)
        own = name in {top, itself} or f"{top}.{name}" == itself or f"{name}: " in signature
        return found[0] if place is None or own else f"[{found[0]}]({place})"

    text = re.sub(r"(?<![`\[])`([\w.]+)`(?!`)", link, text)
    return re.sub(r"docs/([\w-]+\.md)", r"[docs/\1](../\1)", text)


def shown(one: Entry, top: str, level: str, page: Page, by_name: dict[str, Example]) -> list[str]:
    lines = [f"{level} `{one.name}`", "", "```pyi", one.signature, "```", ""]
    if one.doc:
        lines += [linked(markdown(one.doc), top, one.name, one.signature), ""]
    if page.file == "types.md":
        calls = [name for name in givers().get(one.name, []) if not name.startswith("Async")]
        if calls:
            given = ", ".join(f"[`{name}`]({places()[name]})" for name in calls)
            lines += [f"Given by {given}.", ""]
    example = by_name.get(one.name)
    if example is not None and example.names[0] == one.name:
        lines += ["```python", example.code, "```", ""]
    elif example is not None:
        lines += [f"Example: [`{example.names[0]}`](#{anchor(example.names[0])}).", ""]
    return lines


MADE = "<!-- made by tests/docs/reference.py -->"


def page_text(page: Page) -> str:
    first, cells = examples(page)
    by_name = {name: cell for cell in cells for name in cell.names}
    lines = [MADE, "", f"# {page.title}", "", page.said, ""]
    if page.module != "perdure":
        lines += [f"From `{page.module}`.", ""]
    if first:
        lines += ["The examples below stand on this:", "", "```python", first, "```", ""]
    for top in entries()[page.file]:
        lines += shown(top, top.name, "##", page, by_name)
        for member in top.members:
            lines += shown(member, top.name, "###", page, by_name)
    return "\n".join(lines).rstrip() + "\n"


ALIASES = (
    ("Where", "perdure.state.commit_lookup"),
    ("Durability", "perdure.model"),
    ("RunStatus", "perdure.model"),
    ("CrashPolicy", "perdure.engine.journal.call"),
    ("Again", "perdure.engine.journal.left_history"),
    ("Progress", "perdure.verification.verify"),
    ("Scenario", "perdure.testing.boundaries"),
)
"""What signatures call by a name that is no public one."""


def index_text() -> str:
    lines = [MADE, "", "# Reference", ""]
    lines += [
        "Every public name: its signature, what it does, what it raises, and an example. Each",
        "example is executed by the tests, a page from top to bottom.",
        "",
    ]
    lines += ["| page | names |", "| --- | --- |"]
    for page in PAGES:
        names = ", ".join(f"[`{name}`]({page.file}#{anchor(name)})" for name in page.names)
        lines.append(f"| [{page.title}]({page.file}) | {names} |")
    lines += ["", "## Words of signatures", "", "| word | it stands for |", "| --- | --- |"]
    for name, module in ALIASES:
        node: Any = definition(module, name)
        body = tree_of(module).body
        at = body.index(node) + 1
        words = ""
        if at < len(body) and isinstance(body[at], ast.Expr):
            words = ": " + " ".join(str(ast.literal_eval(body[at].value)).split())  # type: ignore[attr-defined]
        lines.append(f"| `{name}` | `{plain(node.value)}`{words} |".replace(" | ", " \\| "))
        lines[-1] = re.sub(r"^\| (`\w+`) \\\| ", r"| \1 | ", lines[-1])
    lines.append("| `Seconds` | `float \\| timedelta` |")
    lines.append("| `DigestKey` | `str \\| bytes \\| Sequence[str \\| bytes]` |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Each file as it has to be."""
    return {FOLDER / "README.md": index_text()} | {
        FOLDER / page.file: page_text(page) for page in PAGES
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, "utf-8")
