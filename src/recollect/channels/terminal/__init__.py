"""A talk in a terminal: input, the answer as it streams, the picker; and the same without a terminal.

    talk.py     the loop: read, run a command or ask, show
    screen.py   what a person sees; plain.py: the same for pipes and for programs (JSON lines)
    entry.py    the input line; picker.py: choosing a session
    markdown.py the answer as Markdown while it comes; safe.py: what may reach a terminal

Only this folder and the command line know prompt_toolkit and rich.
"""
