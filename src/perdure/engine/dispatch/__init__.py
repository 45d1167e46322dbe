"""Who executes a run, and when: leases, drives, the runner and the worker."""
