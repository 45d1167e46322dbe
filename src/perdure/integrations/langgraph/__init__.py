"""Perdure under LangGraph: `PerdureSaver` keeps threads, `PerdureStore` long-term memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.integrations.langgraph.saver import PerdureSaver
from perdure.system.lazy_names import LazyNames

if TYPE_CHECKING:
    from perdure.integrations.langgraph.store.memory_store import PerdureStore

__all__ = ["PerdureSaver", "PerdureStore"]


_NAMES = LazyNames({"perdure.integrations.langgraph.store.memory_store": "PerdureStore"})


def __getattr__(name: str) -> Any:
    return _NAMES.find(__name__, name)  # for those only who use it
