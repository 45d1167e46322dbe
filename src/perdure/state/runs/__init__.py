"""What an agent's log says of its runs: their rows, their parents, and their signals."""
