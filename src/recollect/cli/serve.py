"""`recollect serve`: the web app and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recollect.cli import place
from recollect.cli.group import Command
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.store_async import AsyncStore


@click.command(cls=Command)
@click.option("--host", help="The address to listen on; other machines reach it only if it is not a loopback one.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port to listen on; 0 takes any that is free.")
@click.option("-m", "--model", help="The model to talk to: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser.")
def serve(host: str | None, port: int | None, model: str | None, opened: bool) -> None:
    """Serve the web app, and the HTTP API under /api/v1.

    It prints the link that opens the page. The link has a token in it: who has it can read and write everything.
    """
    from recollect.server import serve as server  # noqa: PLC0415
    from recollect.server.token import kept  # noqa: PLC0415

    config = place.settings()
    address: str = host or config["server.host"]
    if not server.loopback(address) and not config["server.token"]:
        raise InvalidValue(
            f"{address} can be reached by other machines, and no token is set. Set server.token or RECOLLECT_TOKEN."
        )
    token = config["server.token"] or kept()
    listener = server.listen(address, config["server.port"] if port is None else port, exact=port is not None)
    link = server.link(address, listener.getsockname()[1], token)
    click.echo(f"Recollect is at {link}\nThe conversations are in {place.where()}. Ctrl-C stops the server.")
    if opened:
        click.launch(link)

    def agent(store: AsyncStore) -> Agent:
        from recollect.agent import Agent  # noqa: PLC0415

        names = ("base_url", "api_key")
        given = {name: config[f"model.{name}"] for name in names}
        window = config["model.context_window"]
        return Agent(model or config["model.name"] or "demo", store=store, name="web", window=window, **given)

    try:
        server.run(listener, place.named(), agent, {token: ""}, hosts=(address,))
    except ImportError as error:
        raise InvalidValue(
            f"`recollect serve` needs the server extra: pip install 'recollect[server]' (missing: {error.name})."
        ) from error
