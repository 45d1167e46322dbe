"""Faces for other frameworks; each needs its extra, e.g. `pip install perdure[openai-agents]`."""
