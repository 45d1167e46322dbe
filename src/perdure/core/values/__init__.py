"""Plain values: what a state is made of once its types are taken off; bytes and ops of them."""
