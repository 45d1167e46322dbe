"""The runs in an agent's log: their rows, their parents, and their signals."""
