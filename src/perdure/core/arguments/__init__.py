"""Arguments of public calls, checked where they come in: names, words, bounds, exact types."""
