"""The backend for many machines: a schema in a PostgreSQL database. Start reading at backend.py."""
