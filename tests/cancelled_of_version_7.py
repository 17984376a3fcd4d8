"""Messages with tool results whose status version 7 spelled "canceled", as stored and as migration 8 must leave them."""

from __future__ import annotations

OLD, NEW = '"status":"canceled"', '"status":"cancelled"'
_OWN = f"{{{OLD}}}"  # data of a caller
_QUOTED = f'{{"kind":"tool_result",{OLD}}}'.replace('"', '\\"')
_RESULT = '{"kind":"tool_result","call_id":"c",'

UNCHANGED = [
    f'[{{"kind":"text","text":"{_QUOTED}"}}]',
    f'[{{"kind":"data","data":{{"kind":"tool_result","call_id":"c",{OLD}}}}}]',
    f'[{{"kind":"tool_call","call_id":"c","tool":"t","arguments":{_OWN}}}]',
    f'[{{"kind":"tool_call","call_id":"c","tool":"t","arguments_text":"{_QUOTED}"}}]',
    f'[{_RESULT}"data":[{_OWN},{_OWN}]}}]',
    f'[{_RESULT}"status":"error","data":{_OWN}}}]',
    f'[{{"kind":"tool_result","native":{{"x":1,{OLD}}},"call_id":"c","text":"canceled"}}]',
    f'[{{"kind":"tool_result","metadata":{{"x":1,{OLD}}},"call_id":"c","status":"error"}}]',
    f'[{_RESULT}"status":"error","content":[{{"kind":"data","data":{{"kind":"tool_result",{OLD}}}}}]}}]',
    '[{"kind":"text","text":"canceled"}]',
    "[]",
]
"""The parts of messages that the migration must not change."""

CHANGED = [
    (f"[{_RESULT}{OLD}}}]", f"[{_RESULT}{NEW}}}]"),
    # Only the field of the result itself, also if the same text is data.
    (f'[{_RESULT}{OLD},"text":"{_QUOTED}"}}]', f'[{_RESULT}{NEW},"text":"{_QUOTED}"}}]'),
    (f'[{_RESULT}{OLD},"data":[{_OWN},{_OWN}]}}]', f'[{_RESULT}{NEW},"data":[{_OWN},{_OWN}]}}]'),
    (
        f'[{{"kind":"tool_result","native":{_OWN},"metadata":{{"a":[{_OWN}],{OLD}}},"call_id":"c",{OLD},"data":{_OWN}}}]',
        f'[{{"kind":"tool_result","native":{_OWN},"metadata":{{"a":[{_OWN}],{OLD}}},"call_id":"c",{NEW},"data":{_OWN}}}]',
    ),
    # An imported message has the fields in the order of its file.
    (
        f'[{{{OLD},"data":{_OWN},"call_id":"c","kind":"tool_result"}}]',
        f'[{{{NEW},"data":{_OWN},"call_id":"c","kind":"tool_result"}}]',
    ),
    (
        f'[{{"data":{_OWN},"kind":"tool_result",{OLD},"call_id":"c"}}]',
        f'[{{"data":{_OWN},"kind":"tool_result",{NEW},"call_id":"c"}}]',
    ),
    (
        f'[{{"kind":"text","text":"{_QUOTED}"}},{_RESULT}{OLD}}},{_RESULT}"status":"error"}},{_RESULT}{OLD},"text":"x"}}]',
        f'[{{"kind":"text","text":"{_QUOTED}"}},{_RESULT}{NEW}}},{_RESULT}"status":"error"}},{_RESULT}{NEW},"text":"x"}}]',
    ),
    # No other byte changes: numbers, escapes, NUL, lone surrogates and the spaces that mark a text with rare values.
    (
        f'[{_RESULT}{OLD},"data":[1.0,1e5,-0.0,1E400,{"9" * 40},"\\u0000\\u00e9\\/\\ud83d\\ude00é\U0001f600"]}}]',
        f'[{_RESULT}{NEW},"data":[1.0,1e5,-0.0,1E400,{"9" * 40},"\\u0000\\u00e9\\/\\ud83d\\ude00é\U0001f600"]}}]',
    ),
    (f' [{_RESULT}{OLD},"text":"\\ud800 \\udc00"}}]', f' [{_RESULT}{NEW},"text":"\\ud800 \\udc00"}}]'),
    (f'  [{_RESULT}{OLD},"text":"\\ud800\\uffff\\udc00"}}]', f'  [{_RESULT}{NEW},"text":"\\ud800\\uffff\\udc00"}}]'),
    (
        f'[{_RESULT}{OLD},"data":{"[" * 490}{_OWN}{"]" * 490}}}]',
        f'[{_RESULT}{NEW},"data":{"[" * 490}{_OWN}{"]" * 490}}}]',
    ),
    (
        f'[{_RESULT}{OLD},"data":[{",".join([_OWN] * 2_000)}]}}]',
        f'[{_RESULT}{NEW},"data":[{",".join([_OWN] * 2_000)}]}}]',
    ),
]
"""The parts of messages, and the parts that the migration makes of them."""

PARTS = [*((text, text) for text in UNCHANGED), *CHANGED]
STATUSES = ("pending", "running", "success", "error", "canceled")
