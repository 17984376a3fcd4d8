"""The Discord bot, on discord.py. Nothing else in Recollect imports discord.py.

    bot.py           DiscordBot: passes messages to the dispatcher, and catches up on missed ones
    client.py        DiscordClient: connecting, reconnecting, and errors with the next step
    messages.py      Discord messages as Incoming, their files, and messages that were missed while offline
    interactions.py  slash commands
    outlet.py        sending and editing messages; Markdown as Discord shows it

Conversations, the allow list and the splitting of answers are in channels/bot, shared with other platforms.
"""
