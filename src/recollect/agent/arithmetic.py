"""Arithmetic on text that a model or a stranger wrote: numbers, operators and a few functions, and nothing else."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any

_LONGEST = 300
_BITS = 4096
"""How large a number may become; 9**9**9 would otherwise keep the machine busy for good."""

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
_NAMES = {"pi": math.pi, "e": math.e}


def calculate(expression: str) -> str:
    """Work out an expression such as `(2 + 3) * 4`; what is not arithmetic is a ValueError that says so."""
    text = expression.strip().replace("^", "**").replace("\u00d7", "*").replace("\u00f7", "/")
    text = _THOUSANDS.sub("", text)
    if len(text) > _LONGEST:
        raise ValueError(f"The expression has {len(text)} characters; at most {_LONGEST} are worked out.")
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} is not arithmetic.") from error
    except ZeroDivisionError as error:
        raise ValueError("Division by zero has no result.") from error
    except (ArithmeticError, TypeError) as error:
        raise ValueError(f"{expression!r} can not be worked out: {error}.") from error
    return _written(value)


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(op=ast.Pow()):
            return _power(_value(node.left), _value(node.right))
        case ast.BinOp() if type(node.op) in _BINARY:
            return _bounded(_BINARY[type(node.op)](_value(node.left), _value(node.right)))
        case ast.UnaryOp() if type(node.op) in _UNARY:
            return _UNARY[type(node.op)](_value(node.operand))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*[_value(argument) for argument in node.args]))
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not arithmetic.")


def _power(base: float, exponent: float) -> int | float:
    if abs(exponent) * max(math.log2(abs(base)), 1) > _BITS if base else False:
        raise ValueError("The result is too large to be worked out here.")
    return _bounded(base**exponent)


def _bounded(value: Any) -> int | float:
    if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > _BITS):
        raise ValueError("The result is too large, or not a number.")
    return value


def _written(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)
