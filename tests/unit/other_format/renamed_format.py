"""A format whose module has another name than its entry point."""

from script_format import RULES, put, read, response, write

NAME = "other"
__all__ = ["NAME", "RULES", "put", "read", "response", "write"]
