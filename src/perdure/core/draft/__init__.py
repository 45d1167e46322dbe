"""Drafts: what an edit hands out. A change goes into the plain tree, and becomes ops."""
