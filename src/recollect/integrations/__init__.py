"""Adapters that make Recollect the store of an agent framework, one module and one extra each.

A module imports its framework; nothing else in Recollect does. It uses public names of `recollect` only, as an adapter
for another framework would. Import the module of your framework: `recollect.integrations.openai_agents`.
"""
