"""`multimirror fleet`: clusters on this machine, with multimirror on them, to try things out."""

from pathlib import Path
from typing import Any, Final

import click

from clusters.commands.flags import in_directory, kind_option, own_keywords, versions_options
from clusters.commands.trying import first_lines, short
from clusters.fleet_directory import FleetDirectory
from multimirror.cli.connection import finish
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.output import output_option, show, table
from multimirror.kube.logs import configure_logging

_in_directory: Final = in_directory("~/.multimirror/fleet", "Where it is found again.")


@click.group("fleet", no_args_is_help=True)
def command() -> None:
    """Clusters on this machine to try things out on.

    One management cluster and some workers, with multimirror on them: Jobs of
    the namespace `default` need no label to go to a worker.

    \b
    embedded  a Kubernetes API in one Python process; needs nothing
    local     real control planes as processes, simulated nodes
    kind      real clusters in Docker
    """


@command.command(
    epilog="""\b
Examples:
  multimirror fleet up
  multimirror fleet up --kind local --workers 1
  multimirror fleet up --bare --data-dir state
  multimirror fleet up --kind kind --kubernetes-version 1.35
"""
)
@kind_option("--kind")
@click.option("--workers", type=click.IntRange(0), default=2, show_default=True, metavar="N", help="Worker clusters.")
@click.option("--bare", is_flag=True, help="Clusters alone, without multimirror.")
@click.option(
    "--nodes/--no-nodes", default=True, show_default=True, help="Simulated nodes run the pods (kind has real ones)."
)
@click.option(
    "--job-controller/--no-job-controller",
    default=True,
    show_default=True,
    help="Ours runs embedded clusters' Jobs.",
)
@versions_options
@click.option("--load", multiple=True, metavar="IMAGE", help="Of this Docker, into every kind cluster; more than once.")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Keep the clusters' state here.")
@output_option()
@_in_directory
def up(
    directory: FleetDirectory,
    *,
    output: str,
    data_dir: Path | None,
    node_image: str | None,
    kubernetes_version: str | None,
    load: tuple[str, ...],
    **options: Any,
) -> int:
    """Bring a fleet up and keep it until Ctrl-C."""
    from clusters import foreground  # noqa: PLC0415 - for its help it need not be loaded

    def announce(state: dict[str, Any], seconds: float) -> None:
        if output == "table":
            _tell(directory, state, seconds)
        else:
            show(state, output)

    more = own_keywords(options["kind"], node_image, kubernetes_version, load)
    configure_logging("text", "error")
    click.echo(f"Starting a management cluster and {options['workers']} workers ({options['kind']}) ...", err=True)
    kept = data_dir.expanduser().resolve() if data_dir is not None else None
    of_the_fleet = foreground.UpOptions(data_dir=kept, more=more, **options)
    return finish(foreground.up(directory, of_the_fleet, announce, lambda text: click.echo(f"  {text}", err=True)))


@command.command()
@output_option()
@_in_directory
def status(directory: FleetDirectory, output: str) -> int:
    """Ask every cluster of the fleet that is up."""
    from clusters import foreground  # noqa: PLC0415 - as above

    async def ask() -> int:
        state = await foreground.status(directory)
        if output == "table":
            _print_clusters(state["clusters"])
        else:
            show(state, output)
        if not all(cluster["ready"] for cluster in state["clusters"]):
            raise CommandError("not every cluster answers", "Look at the output of `multimirror fleet up`.")
        return Exit.OK

    return finish(ask())


@command.command()
@_in_directory
def down(directory: FleetDirectory) -> int:
    """Stop the fleet that is up."""
    from clusters import foreground  # noqa: PLC0415 - as above

    async def stop() -> None:
        click.echo(f"{_counted(await foreground.down(directory))} stopped")

    return finish(stop())


def _tell(directory: FleetDirectory, state: dict[str, Any], seconds: float) -> None:
    ours = state["multimirror"]
    click.echo(f"{_counted(state)} up in {seconds:.1f} s{', with multimirror on them' if ours else ''}\n")
    _print_clusters(state["clusters"])
    last = short(Path(state["clusters"][-1]["kubeconfig"]))
    bare = [
        f"export KUBECONFIG={last}",
        "kubectl get nodes",
        "kubectl create job hello --image=busybox -- echo hello",
        "kubectl wait --for=condition=complete job/hello",
    ]
    lines = first_lines(directory.kubeconfig("management"), "hello") if ours else bare
    click.echo("\nTry, in another terminal:\n")
    for line in lines:
        click.echo(f"  {line}")
    click.echo("\nCtrl-C stops it.")


def _print_clusters(clusters: list[dict[str, Any]]) -> None:
    shown = [{**cluster, "kubeconfig": short(Path(cluster["kubeconfig"]))} for cluster in clusters]
    for line in table([title.upper() for title in shown[0]], [list(row.values()) for row in shown]):
        click.echo(line)


def _counted(state: dict[str, Any]) -> str:
    number = len(state["clusters"])
    return f"{number} {state['kind']} cluster{'' if number == 1 else 's'}"
