"""What user code meets: `@agent`, `@step`, `@tool`, `Run` and `AsyncRun`, children and orders."""
