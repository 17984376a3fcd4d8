"""Every key of the page, as its help lists them."""

from __future__ import annotations

HELP: tuple[tuple[str, tuple[tuple[tuple[str, ...], str], ...]], ...] = (
    ("Everywhere", (
        (("Ctrl", "K"), "search everything (Cmd K on a Mac)"),
        (("Alt", "N"), "new chat"),
        (("Alt", "S"), "to the list of conversations, and back"),
        (("Alt", "\u2191"), "the conversation above in the list"),
        (("Alt", "\u2193"), "the conversation below in the list"),
        (("/",), "to the field that you write in"),
        (("?",), "this help"),
        (("Esc",), "close what is open; stop an answer"),
    )),
    ("In the list", (
        (("\u2191", "\u2193"), "another row"),
        (("Home", "End"), "the first row, the last row"),
        (("Enter",), "open"),
        (("F2",), "rename"),
        (("Delete",), "delete; Undo brings it back"),
        (("Shift", "F10"), "the menu of the row"),
        (("\u2192", "\u2190"), "unfold and fold sub-agents"),
        (("\u2190", "\u2192"), "on the edge of the list: its width"),
    )),
    ("In the conversation", (
        (("Enter",), "send"),
        (("Shift", "Enter"), "a new line"),
        (("\u2191",), "in an empty field: edit what you said last"),
        (("Tab",), "through the messages' buttons"),
        (("/",), "at the beginning: a command; the arrows choose"),
    )),
    ("In search", (
        (("\u2191", "\u2193"), "another hit"),
        (("Enter",), "go to the message"),
    )),
)  # fmt: skip
