"""What the library needs of its process: threads, locks, stacks, randomness, logs, and shells."""
