"""What the log of an agent says of its runs: their rows, their parents, and their signals."""
