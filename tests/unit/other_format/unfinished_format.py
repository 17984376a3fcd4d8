"""A format that lacks a part of the interface."""

NAME = "unfinished"
RULES = None
