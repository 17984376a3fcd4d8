"""`recollect serve`: the web app and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.cli import extra, place
from recollect.cli.group import Command
from recollect.config.settings import LOG_LEVELS
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.config.effective import Config
    from recollect.store_async import AsyncStore


@click.command(cls=Command)
@click.option("--host", help="The address to listen on; other machines reach it only if it is not a loopback one.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port to listen on; 0 takes any that is free.")
@click.option("-m", "--model", help="The model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="The least severe messages to log on standard error.")
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser.")
def serve(host: str | None, port: int | None, model: str | None, log_level: str | None, opened: bool) -> None:
    """Serve the web app, and the HTTP API under /api/v1.

    It prints the link that opens the page. The link has a token in it: who has it can read and write everything.
    """
    extra.need("server", "uvicorn", "litestar", "jinja2", "markdown_it", "nh3", "pygments")
    from recollect.server import serve as server  # noqa: PLC0415

    config = place.settings()
    address: str = host or config["server.host"]
    tokens = _tokens(config, address, public=not server.loopback(address))
    exact = port is not None or config.found["server.port"].source != "default"
    listener = server.listen(address, config["server.port"] if port is None else port, exact=exact)
    alone = next(iter(tokens)) if not config["server.owners"] else None
    number = listener.getsockname()[1]
    link = server.link(address, number, alone)
    if alone is None:
        place.usable_by(next(iter(tokens.values())))
    whose = f" of {place.owner()}" if alone is not None and place.owner() else ""
    click.echo(f"Recollect is at {link}\nThe conversations{whose} are in {place.where()}. Ctrl-C stops the server.")
    if (other := server.address_for_others(address)) is not None:
        click.echo(f"Other machines open {server.link(other, number, alone)}")
    if alone is None:
        click.echo(f"Each owner opens it with their own token: {link}#token=...")
    if opened:
        click.launch(link)
    limits: dict[str, Any] = dict(place.retention(config))
    level: str = log_level or config["server.log_level"]

    def agent(store: AsyncStore) -> Agent:
        from recollect.agent.configuration import configured  # noqa: PLC0415

        return configured(store, model=model, config=config, name="web")

    async def keep(store: AsyncStore) -> None:
        """Let go of what the configuration says is to go, of each owner."""
        if limits:
            place.say_retained(await store.prune(**limits))

    try:
        server.run(
            listener, place.named(), agent, tokens, hosts=(address, *config["server.hosts"]), keep=keep,
            team=alone is None, log_level=level,
        )  # fmt: skip
    except ImportError as error:
        raise extra.refusal("server", error.name) from error


def _tokens(config: Config, address: str, *, public: bool) -> dict[str, str]:
    """Say whose token each is: the owners' of the configuration, or one for the only owner there is."""
    from recollect.server.token import checked, kept  # noqa: PLC0415

    owners: dict[str, str] | None = config["server.owners"]
    if owners and place.engine() != "postgres":
        raise InvalidValue(
            "server.owners is set, and this store is for one owner. Several people need PostgreSQL: set db.url to its "
            "URL, or take server.owners out."
        )
    if not owners and public and not config["server.token"]:
        raise InvalidValue(
            f"{address} can be reached by other machines, and no token is set. Set server.token or RECOLLECT_TOKEN to "
            f"one that `recollect config token` generates."
        )
    alone = {config["db.owner"] or "": config["server.token"] or kept()}
    return checked(owners or alone)
