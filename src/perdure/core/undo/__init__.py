"""Undo and redo, planned on commits alone."""
