"""The library's needs of its process: threads, locks, stacks, logs, and shells."""
