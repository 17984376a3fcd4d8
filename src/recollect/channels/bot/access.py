"""Who may talk to a bot. Nobody, unless somebody said so."""

from __future__ import annotations

from collections.abc import Iterable

from recollect.channels.bot.incoming import Incoming


class Access:
    """The users, the guilds (servers, groups) and the roles that may talk: being one of them is enough."""

    def __init__(self, users: Iterable[str] = (), guilds: Iterable[str] = (), roles: Iterable[str] = ()) -> None:
        self.users, self.guilds, self.roles = frozenset(users), frozenset(guilds), frozenset(roles)

    @property
    def nobody(self) -> bool:
        """Whether nobody may talk."""
        return not (self.users or self.guilds or self.roles)

    def allows(self, incoming: Incoming) -> bool:
        """Say whether who wrote this may talk. An id counts as it is written: names can be taken by anyone."""
        return (
            incoming.author.id in self.users
            or (incoming.guild is not None and incoming.guild in self.guilds)
            or not self.roles.isdisjoint(incoming.roles)
        )
