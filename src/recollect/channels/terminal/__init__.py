"""Conversations in a terminal: input, the streamed answer, the session picker; and the same for pipes.

    conversation.py  TerminalConversation: the loop, the menus, and messages from other windows
    screen.py        Screen: output for a person; plain.py: plain text for pipes and JSON lines for programs
    prompt.py        the input line and its menus; picker.py: choosing a session
    type_ahead.py    keys that are pressed before a prompt reads them; sanitize.py: text that is safe for a terminal

Only this package and the command line import prompt_toolkit and rich.
"""
