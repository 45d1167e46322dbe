"""The log's format: headers, envelopes, records, and what retention leaves of them."""
