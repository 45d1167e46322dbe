"""Plain values: what a state is made of once its types are taken off; their bytes and ops."""
