"""Values: what a session, message, part, turn, tool call, branch, compaction and snapshot are.

Plain, immutable, typed data with JSON in and out. Nothing here knows a database, a provider or a file.
Times are integer milliseconds UTC in the fields and ISO 8601 in JSON.
"""
