"""The SQLite engine, on apsw: connections, one writer, group commit under asyncio."""
