"""`python -m bench.profile`: where the time of a commit, a step and a rehydration goes."""
