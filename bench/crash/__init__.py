"""The crash comparison: one agent that charges a card, killed at each moment of the call.

`python -m bench.crash` kills it under each contestant, starts it again as that contestant's own
documentation says, and looks at the card company's ledger. docs/crash-comparison.md has the method.

    company    the card company: a process of its own, with a durable ledger
    card       how the agent's process calls it, and where that process kills itself
    nursery    starts the agent's processes
    tracer     kills a process in place of its k-th write
    agents/    the agent, once under each contestant
    trial      one kill, and all starts after it, as observed
    contestants, table   who takes part; what is printed and written
"""
