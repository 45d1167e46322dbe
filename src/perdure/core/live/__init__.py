"""The live typed object of a state, kept in step with ops."""
