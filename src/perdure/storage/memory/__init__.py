"""The storage port in a dict."""
