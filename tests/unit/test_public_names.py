"""The public names, and what `import recollect` costs."""

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


def loaded(code: str) -> set[str]:
    """Name the modules that a fresh interpreter has after running this."""
    shown = f"{code}\nimport sys\nprint(*sys.modules)"
    # -I: neither the environment nor the current folder adds anything of its own.
    run = subprocess.run([sys.executable, "-I", "-c", shown], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return loaded("import msgspec, apsw")


def test_names_are_sorted_and_unique():
    assert list(recollect.__all__) == sorted(set(recollect.__all__))


@pytest.mark.parametrize("name", recollect.__all__)
def test_every_name_is_there(name):
    assert getattr(recollect, name) is not None


def test_no_public_name_is_left_out():
    public = {
        name
        for name, value in vars(recollect).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    public -= {"TYPE_CHECKING", "Any", "annotations"}
    assert public <= set(recollect.__all__)


def test_star_import_gives_the_names_and_nothing_else():
    names: dict[str, object] = {}
    exec("from recollect import *", names)
    assert set(names) - {"__builtins__"} == set(recollect.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = recollect.nonsense


def test_the_package_is_typed():
    import importlib.resources

    assert importlib.resources.files("recollect").joinpath("py.typed").is_file()


def test_import_loads_msgspec_and_apsw_and_nothing_heavier(bare):
    found = loaded("import recollect")
    assert {"msgspec", "apsw"} <= found
    assert not (HEAVY & found) - bare


def test_opening_and_reading_loads_nothing_heavier_either(bare):
    code = (
        "import recollect\n"
        "with recollect.open(':memory:') as store:\n"
        "    store.session('cli:x').append({'role': 'user', 'content': 'hi'})\n"
        "    store.list_sessions(20)\n"
    )
    assert not (HEAVY & loaded(code)) - bare


def test_a_list_of_sessions_loads_neither_the_formats_nor_the_standard_json(bare):
    code = "import recollect\nwith recollect.open(':memory:') as store: store.list_sessions(20)"
    found = loaded(code) - bare
    assert not {name for name in found if name.startswith("recollect.formats.")}
    assert "json" not in found


def test_the_formats_are_loaded_with_the_first_message():
    message = {"role": "user", "content": "hi"}
    code = f"import recollect\nwith recollect.open(':memory:') as store: store.session('a:b').append({message})"
    assert "recollect.formats.registry" in loaded(code)


def test_third_parties_loaded_are_only_the_two(bare):
    found = {name.partition(".")[0] for name in loaded("import recollect")}
    third = {name for name in found - bare if name not in sys.stdlib_module_names}
    assert third == {"recollect"}


def test_the_async_half_is_loaded_on_first_use():
    code = "import recollect, sys\nassert 'asyncio' not in sys.modules\nrecollect.open_async"
    assert {"asyncio", "recollect.store_async"} <= loaded(code)


def test_the_async_half_can_be_imported_by_name():
    assert "recollect.store_async" in loaded("from recollect import AsyncStore, open_async")
