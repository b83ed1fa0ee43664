"""The last screen: the numbers, and what to try next."""

from rich.console import Console
from rich.text import Text

from clusters.commands.trying import first_lines
from clusters.demonstration.counting import INVARIANTS, Count
from clusters.demonstration.scene import Scene
from clusters.demonstration.workload import HOPELESS
from clusters.fleet_directory import FleetDirectory


def summary(console: Console, counted: Count, outage: float, scene: Scene, seconds: float) -> None:
    """In numbers, each read off the clusters."""
    lines = [
        Text(f"{counted.jobs} Jobs went through two queues to {len(scene.copies)} workers. All in {seconds:.0f} s."),
        Text(),
        _fact("ended", f"{counted.done} done, {counted.failed} failed (`{HOPELESS}` was made to)"),
        _fact("where", ", ".join(f"{name} {number}" for name, number in sorted(counted.places.items()))),
    ]
    if outage:
        told = f"{counted.moved} Jobs, when worker-2 was cut off for {outage:.1f} s"
        lines += [_fact("moved", told), _fact("stale", f"{scene.stale_removed} copies removed when it came back")]
    lines += [
        _fact("lost", str(counted.lost), "bold red" if counted.lost else "bold green"),
        _fact("twice", str(counted.twice), "bold red" if counted.twice else "bold green"),
        _fact(
            "checked", f"{INVARIANTS} invariants over {counted.changes:,} changes on {len(scene.copies) + 1} clusters"
        ),
        *(_fact("broken", " ".join(str(violation).split()), "red") for violation in counted.broken),
    ]
    console.print()
    for line in lines:
        console.print(line, soft_wrap=True)


def commands(console: Console, directory: FleetDirectory) -> None:
    """The lines to try, as they are to be typed."""
    console.print("\nThe fleet stays up until Ctrl-C. Try, in another terminal:\n")
    for line in first_lines(directory.kubeconfig("management"), "second-time-lucky"):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _fact(name: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"  {name:8}", "dim"), (value, style))
