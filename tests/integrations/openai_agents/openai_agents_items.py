"""Items of every type that the Agents SDK hands to a session."""

from __future__ import annotations

import typing

from agents.items import TResponseInputItem

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def user(text):
    return {"role": "user", "content": text}


def answer(text, item_id=None):
    item = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }
    return item if item_id is None else {"id": item_id, **item}


def call(number, name="weather", arguments='{"city":"Oslo"}'):
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def output(number, text="rain"):
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": text}


ITEMS = {
    "EasyInputMessageParam": [
        user("plain"),
        {"role": "developer", "content": "be short"},
        {"role": "system", "content": "be kind", "type": "message"},
        {"role": "assistant", "content": "An answer that was typed by hand."},
        {"role": "user", "content": []},
    ],
    "Message": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_file", "file_id": "file_1", "filename": "a.pdf"},
            ],
        }
    ],
    "ResponseOutputMessageParam": [
        answer("Hello", "msg_1"),
        {
            "id": "msg_2",
            "type": "message",
            "role": "assistant",
            "status": "incomplete",
            "phase": "commentary",
            "content": [
                {
                    "type": "output_text",
                    "text": "cited",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://example.org",
                            "title": "t",
                            "start_index": 0,
                            "end_index": 5,
                        }
                    ],
                },
                {"type": "refusal", "refusal": "no"},
            ],
        },
    ],
    "ResponseFileSearchToolCallParam": [
        {
            "type": "file_search_call",
            "id": "fs_1",
            "queries": ["q"],
            "status": "completed",
            "results": [{"file_id": "f", "score": 0.5}],
        }
    ],
    "ResponseComputerToolCallParam": [
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "call_cu",
            "action": {"type": "click", "button": "left", "x": 1, "y": 2},
            "pending_safety_checks": [{"id": "s", "code": "c", "message": "m"}],
            "status": "completed",
        },
        {
            "type": "computer_call",
            "id": "cu_2",
            "call_id": "call_cu2",
            "actions": [{"type": "wait"}],
            "pending_safety_checks": [],
            "status": "completed",
        },
    ],
    "ComputerCallOutput": [
        {
            "type": "computer_call_output",
            "call_id": "call_cu",
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
            "acknowledged_safety_checks": [{"id": "s"}],
        },
        {
            "type": "computer_call_output",
            "call_id": "call_cu2",
            "output": {"type": "computer_screenshot", "file_id": "file_2"},
        },
    ],
    "ResponseFunctionWebSearchParam": [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q", "sources": []},
        }
    ],
    "ResponseFunctionToolCallParam": [
        call(1),
        call(2, "transfer_to_billing", "{}"),
        {**call(3), "arguments": '{"trunc'},
    ],
    "FunctionCallOutput": [
        output(1),
        {"type": "function_call_output", "call_id": "call_2", "output": '{"assistant": "Billing"}'},
        {
            "type": "function_call_output",
            "call_id": "call_3",
            "output": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
            ],
        },
    ],
    "ToolSearchCall": [
        {
            "type": "tool_search_call",
            "id": "ts_1",
            "arguments": {"q": 1},
            "execution": "client",
            "call_id": "call_ts",
            "status": "completed",
        }
    ],
    "ResponseToolSearchOutputItemParamParam": [
        {
            "type": "tool_search_output",
            "call_id": "call_ts",
            "execution": "client",
            "status": "completed",
            "tools": [{"type": "function", "name": "f"}],
        }
    ],
    "AdditionalTools": [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True}],
        }
    ],
    "ResponseConfigurationUpdateItemParamParam": [
        {"type": "configuration_update", "id": "cfg_1", "instructions": "new"}
    ],
    "ResponseReasoningItemParam": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "second"}],
            "encrypted_content": "gAAAAB",
        },
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "status": "completed",
        },
        {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "only"},
    ],
    "ResponseCompactionItemParamParam": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAC"}],
    "ImageGenerationCall": [{"type": "image_generation_call", "id": "ig_1", "result": PNG, "status": "completed"}],
    "ResponseCodeInterpreterToolCallParam": [
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "code": "1+1",
            "container_id": "c",
            "outputs": [{"type": "logs", "logs": "2"}],
            "status": "completed",
        }
    ],
    "LocalShellCall": [
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "call_ls",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
            "status": "completed",
        }
    ],
    "LocalShellCallOutput": [
        {"type": "local_shell_call_output", "id": "call_ls", "output": "{}", "status": "completed"}
    ],
    "ShellCall": [
        {
            "type": "shell_call",
            "id": "sh_1",
            "call_id": "call_sh",
            "action": {"commands": ["ls"], "timeout_ms": 1000},
            "status": "completed",
        }
    ],
    "ShellCallOutput": [
        {
            "type": "shell_call_output",
            "call_id": "call_sh",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            "max_output_length": 100,
        }
    ],
    "ApplyPatchCall": [
        {
            "type": "apply_patch_call",
            "id": "ap_1",
            "call_id": "call_ap",
            "operation": {"type": "create_file", "path": "a", "diff": "+a"},
            "status": "completed",
        }
    ],
    "ApplyPatchCallOutput": [
        {"type": "apply_patch_call_output", "call_id": "call_ap", "status": "failed", "output": "no"}
    ],
    "McpListTools": [
        {
            "type": "mcp_list_tools",
            "id": "mcpl_1",
            "server_label": "s",
            "tools": [{"name": "t", "input_schema": {}}],
            "error": None,
        }
    ],
    "McpApprovalRequest": [
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "t", "arguments": "{}"}
    ],
    "McpApprovalResponse": [
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, "reason": None}
    ],
    "McpCall": [
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "s",
            "name": "t",
            "arguments": "{}",
            "output": "ok",
            "error": None,
            "approval_request_id": "mcpr_1",
        }
    ],
    "ResponseCustomToolCallOutputParam": [{"type": "custom_tool_call_output", "call_id": "call_ct", "output": "done"}],
    "ResponseCustomToolCallParam": [
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_ct", "name": "run", "input": "free text"}
    ],
    "CompactionTrigger": [{"type": "compaction_trigger"}],
    "ItemReference": [{"type": "item_reference", "id": "msg_9"}, {"id": "msg_10"}, {"type": None, "id": "msg_11"}],
    "Program": [{"type": "program", "id": "prog_1", "call_id": "call_p", "code": "f()", "fingerprint": "x"}],
    "ProgramOutput": [
        {"type": "program_output", "id": "po_1", "call_id": "call_p", "result": "1", "status": "completed"}
    ],
    "opaque": [
        {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAA"},
        {"role": "tool", "tool_call_id": "call_1", "content": "of chat completions"},
        {"role": "user", "content": 5},
        {"type": "message"},
        {"object": "response", "type": "message", "role": "user", "output": []},
        {"output": [{"type": "message", "role": "user", "content": "x"}]},
        {"recollect.opaque": {"a": 1}},
        {"type": "a type of the future", "id": "x_1", "role": "assistant", "data": {"deep": [1, None, 2.5]}},
        {},
    ],
}
"""Examples of each member of TResponseInputItem, by its class, and of objects that are not items."""

ALL_ITEMS = [item for group in ITEMS.values() for item in group]


def member_names():
    """Return the names of the classes of TResponseInputItem."""
    return {member.__name__ for member in typing.get_args(TResponseInputItem)}
