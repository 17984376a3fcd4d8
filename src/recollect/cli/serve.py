"""`recollect serve`: the web app and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.cli import optional_dependencies, store_access
from recollect.cli.group import StoreCommand
from recollect.config.settings import LOG_LEVELS
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.agent import Agent
    from recollect.cli.sync import BackgroundSync
    from recollect.config.loader import Config
    from recollect.store_async import AsyncStore


@click.command(cls=StoreCommand)
@click.option("--host", help="Address to listen on. Other machines can connect only if it is not a loopback address.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 picks a free port.")
@click.option("-m", "--model", help="Model: demo, anthropic:NAME, openai:NAME, ollama:NAME, ...")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Minimum level of log messages on standard error.")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def serve(host: str | None, port: int | None, model: str | None, log_level: str | None, open_browser: bool) -> None:
    """Serve the web app and the HTTP API (/api/v1).

    Prints a link to the web app. The link contains the access token: anyone with it can read and write everything.
    """
    optional_dependencies.require_extra("server", "uvicorn", "litestar", "jinja2", "markdown_it", "nh3", "pygments")
    from recollect.server import serve as server  # noqa: PLC0415

    config = store_access.load_settings()
    address: str = host or config["server.host"]
    tokens = _owner_tokens(config, address, public=not server.is_loopback(address))
    exact = port is not None or config.values["server.port"].source != "default"
    background = _background_sync(config)
    listener = server.listen(address, config["server.port"] if port is None else port, exact=exact)
    single_token = next(iter(tokens)) if not config["server.owners"] else None
    number = listener.getsockname()[1]
    link = server.page_link(address, number, single_token)
    if single_token is None:
        store_access.check_owner(next(iter(tokens.values())))
    owner = store_access.selected_owner() if single_token is not None else ""
    owner_text = f" of {owner}" if owner else ""
    click.echo(
        f"Recollect is at {link}\n"
        f"Conversations{owner_text} are stored in {store_access.database_location()}. Press Ctrl-C to stop the server."
    )
    if (other_address := server.address_for_others(address)) is not None:
        click.echo(f"Other machines: open {server.page_link(other_address, number, single_token)}")
    if single_token is None:
        click.echo(f"Each owner logs in with their own token: {link}#token=...")
    if open_browser:
        click.launch(link)
    limits: dict[str, Any] = dict(store_access.retention_limits(config))

    def agent(store: AsyncStore) -> Agent:
        from recollect.agent.agent import agent_from_config  # noqa: PLC0415

        return agent_from_config(store, model=model, config=config, name="web")

    async def apply_retention(store: AsyncStore) -> None:
        """Apply the configured retention to the conversations of an owner."""
        if limits:
            store_access.report_retention(await store.maintenance.prune(**limits))

    try:
        server.run(
            listener, store_access.database_option(), agent, tokens, hosts=(address, *config["server.hosts"]),
            on_open=apply_retention, team=single_token is None, log_level=log_level or config["server.log_level"],
            background=background,
        )  # fmt: skip
    except ImportError as error:
        raise optional_dependencies.missing_extra("server", error.name) from error


def _background_sync(config: Config) -> BackgroundSync | None:
    """Return the sync of other tools' conversations, if it is configured."""
    if not config["sync.enabled"]:
        return None
    from recollect.cli.sync import BackgroundSync  # noqa: PLC0415

    return BackgroundSync(config)


def _owner_tokens(config: Config, address: str, *, public: bool) -> dict[str, str]:
    """Return the owner of each token: those of server.owners, or one token for the only owner."""
    from recollect.server.access_token import load_or_create_token, validate_tokens  # noqa: PLC0415

    owners: dict[str, str] | None = config["server.owners"]
    if owners and store_access.engine_provider().files is not None:
        raise InvalidValue(
            "server.owners needs PostgreSQL, but the database is a file. Set db.url to a PostgreSQL URL, or "
            "remove server.owners."
        )
    if not owners and public and not config["server.token"]:
        raise InvalidValue(
            f"{address} is reachable from other machines, but no token is set. Set server.token or RECOLLECT_TOKEN to "
            f"a token that `recollect config token` generates."
        )
    single = {config["db.owner"] or "": config["server.token"] or load_or_create_token()}
    return validate_tokens(owners or single)
