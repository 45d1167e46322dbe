"""One file for each row of the table, or for a few that share their measurement."""
