"""Durable execution: runs that find their place in the code again by replaying the record."""
