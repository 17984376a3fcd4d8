"""A PostgreSQL server for every test that asks for one: started once in each process of the test run, on loopback."""

from __future__ import annotations

import gc
import os
from urllib.parse import urlsplit, urlunsplit

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("recollect.testing")  # before any test imports something of it

LONG = "RECOLLECT_TEST_LONG"
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
"""Words in the reason of a skip that name something scripts/test installs."""


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="also run what takes minutes, and the rest with more examples and larger data",
    )
    parser.addoption(
        "--all",
        action="store_true",
        help="also run what takes a minute; fail a test that is skipped because a package, a browser, npm or PostgreSQL "
        "is missing",
    )


def pytest_configure(config):
    if config.getoption("--long"):
        os.environ[LONG] = "yes"  # for what a module of tests decides when it is loaded
    else:
        # The same examples in each run: a change fails by itself and not by chance. A long run looks for others.
        settings.register_profile("same", derandomize=True, database=None)
        settings.load_profile("same")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with --long"))
        elif item.get_closest_marker("all") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="takes a minute; run with --all"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _required(item.config, report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _required(collector.config, report)


def _required(config, report):
    """With --all, turn a skip for want of something that scripts/test installs into a failure."""
    if config.getoption("--all") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(word in reason for word in PREREQUISITES):
            report.outcome, report.longrepr = "failed", f"Skipped, but --all requires it: {reason}"
    return report


def pytest_collection_finish():
    # Thousands of tests and their modules stay to the end: the garbage collector need not look at them again and again.
    gc.freeze()


@pytest.fixture(scope="session")
def long(pytestconfig):
    """Say whether this is a long run, in which a test may take its time."""
    return pytestconfig.getoption("--long")


@pytest.fixture(scope="session")
def databases():
    """Give what makes databases: on the server that RECOLLECT_TEST_POSTGRES names, or on one of our own."""
    from postgres_server import PASSWORD, Databases, PostgresServer

    named = os.environ.get("RECOLLECT_TEST_POSTGRES")
    server = None
    if named:
        parts = urlsplit(named)

        def url_of(database: str, user: str) -> str:
            host = parts.netloc.rpartition("@")[2]
            login = parts.netloc if user == "postgres" else f"{user}:{PASSWORD.replace('$', '%24')}@{host}"
            return urlunsplit(parts._replace(netloc=login, path=f"/{database}"))
    else:
        # No sync to disk: what a crash of the machine would lose does not matter to a test. Killing the server does.
        server = PostgresServer("fsync=off", "max_connections=300", "shared_buffers=64MB", "jit=off").start()
        url_of = server.url
    made = Databases(url_of)
    try:
        yield made
    finally:
        made.close()
        if server is not None:
            server.remove()


@pytest.fixture
def database(databases):
    """Give the name of a database with the tables in it and nothing in them, for the time of this test."""
    databases.wipe()
    return databases.common


@pytest.fixture
def postgres(databases, database):
    """Give the URL of a store of this test's own, for an ordinary role."""
    return databases.url_of(database, "plain")
