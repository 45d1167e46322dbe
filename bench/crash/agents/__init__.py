"""The agent that charges a card, under each contestant; each runs in a process of its own."""
