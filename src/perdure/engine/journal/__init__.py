"""What a run recorded, by place: its calls, values and failures, and how replay reads them."""
