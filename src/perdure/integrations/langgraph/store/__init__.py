"""LangGraph's long-term memory in a Perdure store."""
