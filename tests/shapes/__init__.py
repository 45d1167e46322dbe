"""Shapes of classes and their values, by chance: what goes in comes out whole, or is refused."""
