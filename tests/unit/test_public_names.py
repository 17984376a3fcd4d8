"""The public names, and the modules that `import recollect` loads."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
import subprocess
import sys
import types

import pytest

import recollect

PACKAGE = pathlib.Path(recollect.__file__).parent
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


def test_the_root_has_few_names():
    assert len(recollect.__all__) <= 45


@pytest.mark.parametrize("name", recollect.types.__all__)
def test_every_type_exists(name):
    assert getattr(recollect.types, name) is not None
    assert name not in recollect.__all__


def test_the_types_are_sorted_and_the_names_for_type_checkers():
    source = pathlib.Path(recollect.types.__file__).read_text(encoding="utf-8")
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    names = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert recollect.types.__all__ == sorted(names)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = recollect.types.nonsense  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_the_types_loads_no_other_module():
    assert loaded_modules("import recollect.types") - loaded_modules("import recollect") == {"recollect.types"}
    assert "recollect.store_async" not in loaded_modules("from recollect.types import Page, SessionTurns")


def test_importing_recollect_loads_no_group_of_methods():
    groups = ("maintenance", "session_groups", "tools", "watch")
    assert not {f"recollect.store.{name}" for name in groups} & loaded_modules("import recollect")


USERS_OF_THE_STORE = [
    path for name in ("agent", "channels", "cli", "server") for path in sorted(PACKAGE.joinpath(name).rglob("*.py"))
]
HANDLES = [recollect.AsyncStore, recollect.AsyncSession, recollect.AsyncTurn, recollect.types.AsyncStream]


def private_names(cls):
    """Return the private methods and attributes of a class."""
    names = {name for kind in cls.__mro__[:-1] for name in vars(kind)}
    names |= {name for kind in cls.__mro__[:-1] for name in re.findall(r"self\.(_\w+)", inspect.getsource(kind))}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


PRIVATE_NAMES = set().union(*map(private_names, HANDLES))


@pytest.mark.parametrize("path", USERS_OF_THE_STORE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_is_above_the_store_uses_public_methods_only(path):
    assert find_private_uses(path.read_text(encoding="utf-8")) == []


def find_private_uses(source):
    """Return the expressions that use a private member of a store, a session or a turn."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in PRIVATE_NAMES
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_private_uses_are_found():
    assert {"_run", "_follow", "_scope", "_engine", "_set_info", "_set_counts", "_open_handle"} <= PRIVATE_NAMES
    assert find_private_uses("session.store._run(op)\nself._session._set_info(x)\nself._run()") == [
        "session.store._run", "self._session._set_info",
    ]  # fmt: skip


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
