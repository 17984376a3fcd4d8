"""The values of Recollect: sessions, messages, parts, turns, tool calls, branches, compactions and reports.

They are immutable, typed data with conversion to and from JSON. Nothing here imports a database, a provider or a file.
Times are integer milliseconds UTC in the fields and ISO 8601 in JSON.
"""
