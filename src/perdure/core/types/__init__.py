"""The types of a state as a tree of nodes: values taken apart, built, and compared."""
