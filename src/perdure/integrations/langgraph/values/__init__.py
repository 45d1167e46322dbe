"""Rich values of a graph as plain ones, and back."""
