"""SQLite through apsw: the file and its connections, one writer, group commit under asyncio."""
