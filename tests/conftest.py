"""Command-line options of the test run, and fixtures for a PostgreSQL server, started once per process on loopback."""

from __future__ import annotations

import gc
import os
from urllib.parse import urlsplit, urlunsplit

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("recollect_conformance")  # must precede the first import of the package

LONG = "RECOLLECT_TEST_LONG"
INTEGRATION = "RECOLLECT_TEST_INTEGRATION"
"""The integration whose framework this environment has; scripts/integrations sets it."""

PREREQUISITES = (
    "could not import",
    "No module named",
    "Chromium",
    "npm",
    "node",
    "PostgreSQL",
    "pgbouncer",
    "fiu",
    "sqlite3",
)
"""Words in the reason of a skip that name a program or package which scripts/test installs."""


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="also run tests that take minutes, and run the others with more examples and larger data",
    )
    parser.addoption(
        "--all",
        action="store_true",
        help="also run tests that take a minute; fail a test that is skipped because a package, a browser, npm or "
        "PostgreSQL is missing",
    )


def pytest_configure(config):
    if config.getoption("--long"):
        os.environ[LONG] = "yes"  # for test modules that choose their examples on import
    else:
        # The same examples in each run, so that only a change of the code can fail a test. A long run tries others.
        settings.register_profile("same", derandomize=True, database=None)
        settings.load_profile("same")


def pytest_ignore_collect(collection_path):
    if collection_path.parent.name == "integrations" and collection_path.is_dir():
        return collection_path.name != os.environ.get(INTEGRATION)
    return None


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with --long"))
        elif item.get_closest_marker("all") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="runs with --all"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _fail_required_skip(item.config, report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _fail_required_skip(collector.config, report)


def _fail_required_skip(config, report):
    """Turn a skip because of a missing prerequisite into a failure if the run has --all."""
    if config.getoption("--all") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(word in reason for word in PREREQUISITES):
            report.outcome, report.longrepr = "failed", f"Skipped, but --all requires it: {reason}"
    return report


def pytest_collection_finish():
    # Thousands of tests and their modules live until the end: without this, every collection would visit them.
    gc.freeze()


@pytest.fixture(scope="session")
def long(pytestconfig):
    """Return whether this is a long run, in which a test may take minutes."""
    return pytestconfig.getoption("--long")


@pytest.fixture(scope="session")
def databases():
    """Return a factory of databases, on the server that RECOLLECT_TEST_POSTGRES names or on a new one."""
    from postgres_server import PASSWORD, Databases, PostgresServer

    server_url = os.environ.get("RECOLLECT_TEST_POSTGRES")
    server = None
    if server_url:
        parts = urlsplit(server_url)

        def url_of(database: str, user: str) -> str:
            host = parts.netloc.rpartition("@")[2]
            login = parts.netloc if user == "postgres" else f"{user}:{PASSWORD.replace('$', '%24')}@{host}"
            return urlunsplit(parts._replace(netloc=login, path=f"/{database}"))
    else:
        # Without fsync, a crash of the machine loses data, which no test depends on. A killed server loses none.
        server = PostgresServer("fsync=off", "max_connections=300", "shared_buffers=64MB", "jit=off").start()
        url_of = server.url
    server_databases = Databases(url_of)
    try:
        yield server_databases
    finally:
        server_databases.close()
        if server is not None:
            server.remove()


@pytest.fixture
def database_name(databases):
    """Return the name of a database with all tables and no rows, for one test."""
    databases.wipe()
    return databases.common


@pytest.fixture
def database(database_name):
    """Return `database_name`; in tests/conformance, `database` is the fixture of the suite instead."""
    return database_name


@pytest.fixture
def postgres(databases, database_name):
    """Return the URL of an empty store for this test, for a role without special rights."""
    return databases.url_of(database_name, "plain")
