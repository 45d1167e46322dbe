"""The record of a run, by place: its calls, values and failures, and how replay reads them."""
