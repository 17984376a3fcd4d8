"""The public names, and the modules that `import recollect` loads."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import recollect

HEAVY = {
    "aiosqlite", "anthropic", "asyncio", "click", "concurrent.futures", "ctypes", "email", "hashlib", "httpx",
    "importlib.metadata", "inspect", "logging", "openai", "pathlib", "pydantic", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "typing_extensions", "unittest", "urllib.parse", "uuid",
}  # fmt: skip


def loaded_modules(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after it ran this code."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    # -I ignores the environment and the current folder, which could load other modules.
    process = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(process.stdout.split())


@pytest.fixture(scope="module")
def baseline() -> set[str]:
    return loaded_modules("import msgspec, apsw")


def test_names_are_sorted_and_unique():
    assert list(recollect.__all__) == sorted(set(recollect.__all__))


@pytest.mark.parametrize("name", recollect.__all__)
def test_every_name_exists(name):
    assert getattr(recollect, name) is not None


def test_no_public_name_is_left_out():
    public = {
        name
        for name, value in vars(recollect).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    public -= {"TYPE_CHECKING", "Any", "annotations"}
    assert public <= set(recollect.__all__)


def test_a_star_import_imports_exactly_the_public_names():
    names: dict[str, object] = {}
    exec("from recollect import *", names)
    assert set(names) - {"__builtins__"} == set(recollect.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = recollect.nonsense  # pyright: ignore[reportAttributeAccessIssue]


def test_the_package_is_typed():
    import importlib.resources

    assert importlib.resources.files("recollect").joinpath("py.typed").is_file()


def test_import_loads_msgspec_and_nothing_heavier():
    modules = loaded_modules("import recollect")
    assert "msgspec" in modules
    assert not ({*HEAVY, "apsw", "psycopg"} & modules) - loaded_modules("import msgspec")


def test_opening_a_file_loads_the_driver_of_sqlite_only():
    modules = loaded_modules("import recollect\nrecollect.open(':memory:').close()")
    assert "apsw" in modules
    assert "psycopg" not in modules


def test_opening_and_reading_loads_nothing_heavier_either(baseline):
    code = (
        "import recollect\n"
        "with recollect.open(':memory:') as store:\n"
        "    store.session('cli:x').append({'role': 'user', 'content': 'hi'})\n"
        "    store.list_sessions(20)\n"
    )
    assert not (HEAVY & loaded_modules(code)) - baseline


def test_a_list_of_sessions_loads_neither_the_formats_nor_the_standard_json(baseline):
    code = "import recollect\nwith recollect.open(':memory:') as store: store.list_sessions(20)"
    modules = loaded_modules(code) - baseline
    assert not {name for name in modules if name.startswith("recollect.formats.")}
    assert "json" not in modules


def test_the_formats_are_loaded_with_the_first_message():
    message = {"role": "user", "content": "hi"}
    code = f"import recollect\nwith recollect.open(':memory:') as store: store.session('a:b').append({message})"
    assert "recollect.formats.registry" in loaded_modules(code)


def test_import_loads_only_msgspec_of_third_parties():
    packages = {name.partition(".")[0] for name in loaded_modules("import recollect")}
    third_party = {name for name in packages - loaded_modules("import msgspec") if name not in sys.stdlib_module_names}
    assert third_party == {"recollect"}


def test_the_async_store_is_loaded_on_first_use():
    code = "import recollect, sys\nassert 'asyncio' not in sys.modules\nrecollect.open_async"
    assert {"asyncio", "recollect.store_async"} <= loaded_modules(code)


def test_the_async_store_can_be_imported_by_name():
    assert "recollect.store_async" in loaded_modules("from recollect import AsyncStore, open_async")
