"""The bot on Discord, over discord.py, which nothing else in Recollect knows.

    bot.py         what is heard goes to the desk, and where the desk's answers go
    connection.py  staying connected, and what to do where Discord says no
    reading.py     a message as the desk takes it; files.py: its files; missed.py: what was said while the bot was away
    orders.py      slash commands; slash.py: which there are
    outlet.py      sending and changing messages; layout.py: Markdown as Discord shows it

What a talk is, who may talk and how an answer is cut and shown is in channels/bot, the same for every platform.
"""
