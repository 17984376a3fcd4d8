"""`recollect completion`: the shell completion script, and the answers that it requests."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, ShellComplete, get_completion_class, split_arg_string

from recollect.cli.exit_codes import COMPLETE, ERROR, OK
from recollect.cli.group import StoreCommand

# Bash breaks words at colons, and ids have colons. So the script sends the whole line up to the cursor, and removes the
# text before the last colon from the answers, because bash keeps it.
_BASH_SCRIPT = r"""
%(complete_func)s() {
    local line="${COMP_LINE:0:COMP_POINT}" word type value prefix=""
    word="${line##*[[:space:]]}"
    if [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then prefix="${word%%:*}:"; fi
    COMPREPLY=()
    while IFS=, read -r type value; do
        case "$type" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) value="${value#"$prefix"}"; COMPREPLY+=("$(printf '%%q' "$value")") ;;
        esac
    done < <(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _BashCompletion(BashComplete):
    source_template = _BASH_SCRIPT

    def source(self) -> str:
        return ShellComplete.source(self).lstrip("\n")  # click's version starts bash to read its version

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        return (words, "") if not line or line[-1].isspace() else (words[:-1], words[-1] if words else "")

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value}"


def _completer(shell: str, command: click.Command) -> ShellComplete:
    completer = _BashCompletion if shell == "bash" else get_completion_class(shell)
    assert completer is not None
    return completer(command, {}, "recollect", COMPLETE)


@click.command(cls=StoreCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    \b
    bash:  eval "$(recollect completion bash)"     in ~/.bashrc
    zsh:   eval "$(recollect completion zsh)"      in ~/.zshrc
    fish:  recollect completion fish > ~/.config/fish/completions/recollect.fish
    """  # noqa: D301  click needs the character \b itself, so the docstring cannot be raw
    click.echo(_completer(shell, context.find_root().command).source())


def complete(command: click.Command) -> int:
    """Answer a request of the completion script; the variable COMPLETE holds `SHELL_complete`."""
    shell, _, action = os.environ[COMPLETE].partition("_")
    if action != "complete" or shell not in ("bash", "zsh", "fish"):
        return ERROR
    answer = _completer(shell, command).complete()
    click.echo(answer, nl=bool(answer))
    return OK
