"""What stands in the log: headers, envelopes, records, and what retention leaves of them."""
