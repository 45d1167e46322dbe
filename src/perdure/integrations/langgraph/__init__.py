"""Perdure under LangGraph: `PerdureSaver` keeps threads, `PerdureStore` long-term memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.integrations.langgraph.saver import PerdureSaver

if TYPE_CHECKING:
    from perdure.integrations.langgraph.store.memory_store import PerdureStore

__all__ = ["PerdureSaver", "PerdureStore"]


def __getattr__(name: str) -> Any:
    if name == "PerdureStore":  # for those only who use it
        from perdure.integrations.langgraph.store.memory_store import PerdureStore

        return PerdureStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
