"""Channels: the terminal, Discord and Telegram.

Each package connects one channel to the agent and its slash commands.
"""
