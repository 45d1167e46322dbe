"""State schemas: a type in a version, its rules, and what identifies its values."""
