"""`recollect completion`: the script that completes words in a shell, and what it asks when it does."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, ShellComplete, get_completion_class, split_arg_string

from recollect.cli.ending import COMPLETE, ERROR, OK
from recollect.cli.group import Command

# A colon breaks a word for bash, and ids have colons. So the line is taken whole, up to the cursor, and what stands
# before the last colon is cut from the answers, because bash keeps it.
_BASH = r"""
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


class _Bash(BashComplete):
    source_template = _BASH

    def source(self) -> str:
        return ShellComplete.source(self).lstrip("\n")  # without starting bash to ask for its version

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        return (words, "") if not line or line[-1].isspace() else (words[:-1], words[-1] if words else "")

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value}"


def _completer(shell: str, command: click.Command) -> ShellComplete:
    kind = _Bash if shell == "bash" else get_completion_class(shell)
    assert kind is not None
    return kind(command, {}, "recollect", COMPLETE)


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes words in a shell.

    \b
    bash:  eval "$(recollect completion bash)"     in ~/.bashrc
    zsh:   eval "$(recollect completion zsh)"      in ~/.zshrc
    fish:  recollect completion fish > ~/.config/fish/completions/recollect.fish
    """  # noqa: D301  a raw text would hide from click that the lines are to stay as they are
    click.echo(_completer(shell, context.find_root().command).source())


def complete(command: click.Command) -> int:
    """Answer the script: COMPLETE holds the shell and `complete`."""
    shell, _, asked = os.environ[COMPLETE].partition("_")
    if asked != "complete" or shell not in ("bash", "zsh", "fish"):
        return ERROR
    answer = _completer(shell, command).complete()
    click.echo(answer, nl=bool(answer))
    return OK
