"""The interface of user code: `@agent`, `@step`, `@tool`, `Run` and `AsyncRun`, children and
orders."""
