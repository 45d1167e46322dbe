"""How many functions and files one call goes through: what a reader has to follow."""
