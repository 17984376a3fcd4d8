"""PostgreSQL through psycopg: a pool of connections, one transaction for an operation, group commit under asyncio."""

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
