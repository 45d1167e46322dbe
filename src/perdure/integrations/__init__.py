"""Faces for other frameworks; each needs its extra, as in `pip install perdure[openai-agents]`."""
