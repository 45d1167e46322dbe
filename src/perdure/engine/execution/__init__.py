"""One execution of a run in this process: its threads and tasks, its writer, and its inbox."""
