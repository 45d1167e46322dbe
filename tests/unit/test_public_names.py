"""`perdure`'s public names: each is there, and loads only the room that it lives in."""

import subprocess
import sys

import pytest

import perdure


@pytest.mark.parametrize("name", perdure.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(perdure, name) is not None
    assert name in dir(perdure)


def test_a_wrong_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'perdure' has no attribute 'Agnet'"):
        _ = perdure.Agnet


@pytest.mark.parametrize(
    ("program", "not_loaded"),
    [
        ("import perdure", "msgspec apsw perdure.store perdure.engine asyncio pydantic"),
        ("import perdure; perdure.open", "apsw asyncio pydantic"),
        ("from perdure import Schema", "apsw perdure.store perdure.engine asyncio pydantic"),
        ("import perdure; perdure.agent(dict)", "apsw perdure.store asyncio pydantic"),
    ],
)
def test_a_program_loads_what_it_uses(program: str, not_loaded: str) -> None:
    look = f"{program}; import sys; print(*[n for n in {not_loaded.split()} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_decorator_stays_a_decorator_however_names_are_asked_for() -> None:
    """`perdure.agent` once was a module's name, too: what imported the module hid the decorator."""
    look = "import perdure, perdure.agents, perdure.store; print(callable(perdure.agent))"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True"
