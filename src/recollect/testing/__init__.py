"""The conformance suite, shipped, so that anyone can test an engine.

The tests are written once, against the interface of recollect.Store, and ask nothing about SQL or files. They take
two fixtures: `place` (a recollect.testing.place.Place, where the data is) and `store` (a store that is open on it). An
AsyncStore is tested through recollect.testing.portal, which gives it the look of a Store. In a conftest.py:

    import pytest

    pytest.register_assert_rewrite("recollect.testing")

    from recollect.testing.place import Place
    from recollect.testing.portal import Portal

    @pytest.fixture(params=["sync", "async"])
    def place(request, tmp_path):
        path = tmp_path / "talks.db"
        with Portal() as portal:
            def connect(owner):
                if request.param == "sync":
                    return recollect.open(path, owner=owner)
                return portal.opened(recollect.open_async(path, owner=owner))
            with Place(connect) as place:
                yield place
                place.verify()

    @pytest.fixture
    def store(place):
        return place.open()

and in a test module all of the tests, or the classes of some modules (recollect.testing.branches, ...) by name:

    from recollect.testing import suite

    globals().update(suite.classes())

verify() reads all there is, opens the store again and compares, after every test. This room holds tests and what
they need; only the modules with tests import pytest.
"""
