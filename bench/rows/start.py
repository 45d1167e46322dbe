"""What `import perdure` costs."""

from __future__ import annotations

from collections.abc import Iterator

from bench.fresh import fresh
from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Workplace

IMPORT_MAX_S = 0.120
BACKEND = "perdure.storage.sqlite.backend"
FIRST_PROGRAM = "perdure.agent, perdure.open, perdure.Schema, perdure.step, perdure.tool"
DEPENDENCIES = "apsw, msgspec, zstandard"
FRAMEWORKS = (
    "pydantic",
    "pydantic_ai",
    "langgraph",
    "langchain",
    "langchain_core",
    "openai",
    "agents",
    "anthropic",
    "autogen",
    "crewai",
    "llama_index",
    "smolagents",
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlalchemy",
    "psycopg",
    "boto3",
    "numpy",
    "opentelemetry",
    "cryptography",
)
FACES = ("rich", "typer", "asyncio")


@row("import")
def import_time(workplace: Workplace) -> Iterator[Line]:
    """`import perdure` in a fresh interpreter, against its three binary dependencies alone.

    Timed inside the process, so without the interpreter's own start; bytecode is cached, files are
    in the page cache. The package loads what is used of it, so what a program pays is the second
    line: the names of the README's first one. A third adds the SQLite backend, which the first
    `open` imports. No framework may come along, neither at `import perdure` nor with the names.
    """
    ways = ("perdure", FIRST_PROGRAM, f"{FIRST_PROGRAM}, {BACKEND}", DEPENDENCIES)
    wall, cpu = ({name: Samples() for name in ways} for _ in range(2))
    for number in range(workplace.sizes.cold_starts * 2 + 1):
        for name in ways:
            answer = fresh("import", name, workplace.bytecode)
            if number:
                wall[name].values.append(float(str(answer["s"])))
                cpu[name].values.append(float(str(answer["cpu"])))
    loaded = set(str(fresh("modules", FIRST_PROGRAM, workplace.bytecode)["modules"]).split())
    also = [name for name in FACES if name in loaded]
    theirs = wall[DEPENDENCIES]
    for name, what, target in (
        (ways[0], "import perdure, median", Target(IMPORT_MAX_S, of="ours")),
        (ways[1], "… and what its first program names, median", None),
        (ways[2], "… and its SQLite backend, median", None),
    ):
        ours = wall[name]
        yield Line(
            what,
            Figure(ours.median),
            Figure(theirs.median, name=DEPENDENCIES),
            ratio(ours, theirs),
            target,
            f"CPU {Figure(cpu[name].median)}; the fastest took {Figure(min(ours.values))}",
            samples=wall,
        )
    frameworks = [name for name in FRAMEWORKS if name in loaded]
    yield Line(
        "frameworks that it imports",
        Figure(len(frameworks), ""),
        None,
        None,
        Target(0, of="ours"),
        f"{', '.join(frameworks) or 'none'}; {len(loaded)} modules in all; of the heavy ones: "
        f"{', '.join(also) or 'none'}",
    )
