"""Another acts between two calls of the store that one call makes; see docs/reliability.md."""
