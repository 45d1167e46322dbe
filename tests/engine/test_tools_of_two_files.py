"""Tools of one name, of modules of one name, that lie in two files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import perdure

TENANT = """
import perdure

def send(cents):
    return f"{cents} of {bank}"

def over(function):
    @perdure.tool(on_crash="fail")
    def pay_by(cents):
        return function(cents)
    return pay_by

@perdure.tool(on_crash="fail")
def pay(cents):
    return send(cents)
"""


@pytest.mark.parametrize("ways", ["modules", "closures"])
def test_tools_of_two_files_of_one_module_name_are_not_taken_for_each_other(
    tmp_path: Path, ways: str
) -> None:
    """Each tenant's folder had a `tools.py`, and the two differed in what was beside the tool only:
    with the code changed, each tenant got the other's receipt."""

    def load(tenant: str) -> Any:
        file = tmp_path / tenant / "tools.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"bank = {tenant!r}\n{TENANT}")
        spec = importlib.util.spec_from_file_location("tools", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    first, again, other = load("A"), load("A"), load("B")
    if ways == "modules":
        pays = [first.pay, again.pay, other.pay]
    else:
        pays = [first.over(one.send) for one in (first, again, other)]

    @perdure.agent
    def pay_all(run: perdure.Run[dict[str, Any]], others: int) -> list[str]:
        return [pays[0](5), pays[1](5), pays[2](others)]

    with perdure.open("memory://") as store:
        assert store.run(pay_all, "a", 7) == ["5 of A", "5 of A", "7 of B"]
        with pytest.raises(perdure.NeedsAttention, match="another tool of this name"):
            store.run(pay_all, "b", 5)
