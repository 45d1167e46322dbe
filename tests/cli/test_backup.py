"""`perdure backup`: an operator's copy of a store, while it is in use."""

from __future__ import annotations

from pathlib import Path

import perdure
from tests.cli.operator import Operator


def test_a_backup_is_made_and_looked_into(operator: Operator, tmp_path: Path) -> None:
    with perdure.open(operator.path) as store:
        copy = tmp_path / "copy.db"
        said = operator.see("backup", str(copy))
        assert said.startswith(f"✓ {copy}: 2 agents, ") and said.endswith("; verified\n")
        assert operator.json("backup", str(tmp_path / "two.db"))["agents"] == 2
        assert Operator(copy).see("ls") == operator.see("ls")
        assert store.agent("ticket-43").state["customer"] == "c-8"


def test_what_is_refused(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "there.db").write_text("mine")
    code, said = operator.refused("backup", str(tmp_path / "there.db"))
    assert code == 4 and "is there already" in said
    code, said = operator.refused("backup", str(tmp_path / "none" / "copy.db"))
    assert code == 6
    code, said = Operator(tmp_path / "none.db").refused("backup", str(tmp_path / "copy.db"))
    assert code == 3
    for url, words in (("postgresql://x/y", "pg_dump"), ("memory://x", "memory")):
        code, said = Operator(url).refused("backup", str(tmp_path / "copy.db"))  # type: ignore[arg-type]
        assert code == 2 and words in said
    assert not (tmp_path / "copy.db").exists()
