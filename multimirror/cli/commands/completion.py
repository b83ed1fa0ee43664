"""`multimirror completion`: what a shell needs to complete our commands and flags."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_MULTIMIRROR_COMPLETE"
EXAMPLES = """\b
Install:
  bash  echo 'source <(multimirror completion bash)' >> ~/.bashrc
  zsh   echo 'source <(multimirror completion zsh)' >> ~/.zshrc
  fish  multimirror completion fish \\
          > ~/.config/fish/completions/multimirror.fish

\b
Then open a new shell. `kubectl multimirror` is completed by kubectl's own
completion; nothing more is needed for it.
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    completion = get_completion_class(shell)
    assert completion is not None, "click knows the three of them"
    click.echo(completion(ctx.find_root().command, {}, "multimirror", _VARIABLE).source())
