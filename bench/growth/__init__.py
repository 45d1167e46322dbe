"""How what each public call costs grows with the history behind it: counted, not timed."""
