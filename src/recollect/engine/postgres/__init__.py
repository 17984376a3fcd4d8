"""PostgreSQL through psycopg: a pool of connections, one transaction for an operation, group commit under asyncio."""

import logging

from recollect.errors import StoreUnavailable

try:
    import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import psycopg_pool  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    raise StoreUnavailable(
        "PostgreSQL needs a driver that is not installed. Install it with: pip install 'recollect[postgres]'",
        path="postgresql",
        reason=str(error),
    ) from error

# While a server is away the pool warns at every try, and logging prints warnings that nobody handles into the person's
# terminal. What is wrong is said by our own error. A program that sets up logging still gets them.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
