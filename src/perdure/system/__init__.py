"""The library's needs of its process: threads, locks, stacks, randomness, logs, and shells."""
