"""The executors of runs and their timing: leases, drives, the runner and the worker."""
