"""Where people talk to an agent. One folder or file for each place; all of them share the agent and its commands."""
