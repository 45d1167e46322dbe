"""The typed state of every row and contestant: by itself, as theirs must import nothing else."""

from __future__ import annotations

from pydantic import BaseModel


class Message(BaseModel):
    role: str
    content: str


class Ticket(BaseModel):
    customer: str
    status: str = "pending"
    turns: int = 0
    messages: list[Message] = []
