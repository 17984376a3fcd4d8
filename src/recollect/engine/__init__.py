"""Engines: each runs operations on one kind of database, one transaction per operation."""
