"""Pure functions on plain values: no input or output, no clock, no storage."""
