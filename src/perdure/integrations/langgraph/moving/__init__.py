"""Threads of LangGraph's own checkpointers become threads of a Perdure store."""
