"""The contract of the storage port, as tests: `perdure.testing.BackendContract` is all of it."""
