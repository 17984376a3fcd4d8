"""The conformance suite of Recollect: the tests that every engine passes, through the sync and the async store.

The tests use only the interface of recollect.Store, no SQL and no files. They need two pytest fixtures:

- `database`: a recollect_conformance.database.DatabaseUnderTest, which opens stores on the database under test;
- `store`: a store that is open on it.

To test an AsyncStore, open it with recollect_conformance.blocking.BlockingAdapter, which adapts it to the interface of
a Store. A complete conftest.py:

    import pytest

    import recollect

    pytest.register_assert_rewrite("recollect_conformance")

    from recollect_conformance.blocking import BlockingAdapter
    from recollect_conformance.database import DatabaseUnderTest

    @pytest.fixture(params=["sync", "async"])
    def database(request, tmp_path):
        path = tmp_path / "test.db"
        with BlockingAdapter() as adapter:
            def connect(owner):
                if request.param == "sync":
                    return recollect.open(path, owner=owner)
                return adapter.open(recollect.open_async(path, owner=owner))
            with DatabaseUnderTest(connect) as database:
                yield database
                database.verify()

    @pytest.fixture
    def store(database):
        return database.open()

A test module that runs the complete suite:

    from recollect_conformance import suite

    globals().update(suite.classes())

To run a part of the suite, import test classes by name, for example from recollect_conformance.branches. After every
test, verify() reads the complete database, reopens it and compares. Only the modules with tests import pytest.
"""
