"""The PostgreSQL engine, on psycopg: a connection pool, one transaction per operation, group commit under asyncio."""

import logging

from recollect.errors import StoreUnavailable

try:
    import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import psycopg_pool  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    raise StoreUnavailable(
        "The PostgreSQL driver is not installed. Install it with: pip install 'recollect[postgres]'",
        path="postgresql",
        reason=str(error),
    ) from error

# While a server is unreachable, the pool logs a warning at each attempt, which Python's logging prints to stderr if the
# program has not set it up. Recollect's own error has the reason. A program that sets up logging still gets them.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
