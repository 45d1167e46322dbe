"""One branch's state in memory, in step with its log: what agents and runs both stand on."""
