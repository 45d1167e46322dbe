"""One branch's state in memory, kept in step with its log: the base of agents and runs."""
