"""The built-in tools: the time, a calculator, and search in the store. A tool is a plain function, sync or async.

The model sees the function's name, docstring and signature, and receives its result. An exception becomes an error
result and never ends the conversation.
"""

from __future__ import annotations

import ast
import asyncio
import datetime
import inspect
import math
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recollect.model.humanize import escape_unprintable, one_line
from recollect.model.value import format_iso

if TYPE_CHECKING:
    from recollect.store_async import AsyncStore

_MAX_EXPRESSION = 300  # characters of an expression; a longer one is not arithmetic that a model needs
_MAX_BITS = 4096
"""Maximum size of a number in bits. Without it, 9**9**9 would run practically forever."""

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "tan": math.tan, "log": math.log, "exp": math.exp,
    "abs": abs, "round": round, "floor": math.floor, "ceil": math.ceil, "min": min, "max": max,
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e}


def evaluate_arithmetic(expression: str) -> str:
    """Evaluate an expression such as `(2 + 3) * 4`. Raises ValueError if it is not arithmetic."""
    text = expression.strip().replace("^", "**").replace("\u00d7", "*").replace("\u00f7", "/")
    text = _THOUSANDS.sub("", text)
    if len(text) > _MAX_EXPRESSION:
        raise ValueError(f"The expression must have at most {_MAX_EXPRESSION} characters, got {len(text)}.")
    try:
        value = _evaluate(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} is not arithmetic.") from error
    except ZeroDivisionError as error:
        raise ValueError("Division by zero.") from error
    except (ArithmeticError, TypeError) as error:
        raise ValueError(f"{expression!r} cannot be evaluated: {error}.") from error
    return _format_number(value)


def _evaluate(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(op=ast.Pow()):
            return _power(_evaluate(node.left), _evaluate(node.right))
        case ast.BinOp() if type(node.op) in _BINARY:
            return _check_bits(_BINARY[type(node.op)](_evaluate(node.left), _evaluate(node.right)))
        case ast.UnaryOp() if type(node.op) in _UNARY:
            return _UNARY[type(node.op)](_evaluate(node.operand))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            return _check_bits(_FUNCTIONS[name](*[_evaluate(argument) for argument in node.args]))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not arithmetic.")


def _power(base: float, exponent: float) -> int | float:
    if abs(exponent) * max(math.log2(abs(base)), 1) > _MAX_BITS if base else False:
        raise ValueError(f"The result is too large: it must have at most {_MAX_BITS} bits.")
    return _check_bits(base**exponent)


def _check_bits(value: Any) -> int | float:
    if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > _MAX_BITS):
        raise ValueError(f"The result must be a real number of at most {_MAX_BITS} bits.")
    return value


def _format_number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


Tool = Callable[..., Any]
_DEFAULT_HITS = 5  # hits that a model receives by default, at most 300 characters each
_MAX_HIT_TEXT = 300  # characters of a hit: enough to decide which conversation to open, at few tokens


def current_time() -> str:
    """Return the current date and time, with the time zone of this machine."""
    return datetime.datetime.now().astimezone().strftime("%A, %d %B %Y, %H:%M:%S %Z (UTC%z)")


def calculate(expression: str) -> str:
    """Evaluate arithmetic exactly: + - * / // % **, parentheses, sqrt, round, min, max, pi."""
    return evaluate_arithmetic(expression)


def built_in_tools(store: AsyncStore, session: str, within: str | None = None) -> list[Tool]:
    """Return the built-in tools of a conversation in a session.

    The search leaves out this session, whose messages the model already has. `within` limits the search to one session,
    for people without access to the messages of others.
    """

    async def search_conversations(query: str) -> str:
        """Search the messages of earlier conversations, and return the best matches."""
        return await search_text(store, query, exclude=None if within else session, within=within)

    return [current_time, calculate, search_conversations]


async def search_text(
    store: AsyncStore, query: str, limit: int = _DEFAULT_HITS, *, exclude: str | None = None, within: str | None = None
) -> str:
    """Search the store and return the hits as a Markdown list, one hit per line."""
    # Four times as many, because the hits in `exclude` are dropped.
    hits = [hit for hit in await store.search(query, limit=limit * 4, session=within) if hit.session != exclude][:limit]
    lines = [
        f"- {hit.title or escape_unprintable(hit.session)} ({_describe_hit(hit)}): {one_line(hit.text, _MAX_HIT_TEXT)}"
        for hit in hits
    ]
    return "\n".join(lines) or f"No messages match {query!r}."


def _describe_hit(hit: Any) -> str:
    """Return the date, the role and the location of a hit. A title hit has neither a role nor a message."""
    fields = (
        format_iso(hit.created_at_ms)[:10],
        hit.role or "title",
        f"{escape_unprintable(hit.session)} {hit.message or ''}".strip(),
    )
    return ", ".join(fields)


async def call_tool(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Call a tool with the model's arguments. A sync tool runs in a thread: it must not block the event loop."""
    if inspect.iscoroutinefunction(tool):
        return await tool(**arguments)
    return await asyncio.to_thread(tool, **arguments)
