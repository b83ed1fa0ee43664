"""A picture as lines of text: exactly as many as the screen has, none longer than it is wide. Pure.

Clusters on top with a mark for each Job that they run, so that Jobs are seen to move; then the queues with a mark for
each Job that waits; how far everything is; and what happened last, newest at the bottom. A wide screen also lists the
Jobs that run. Shapes tell the queues apart where there are no colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from clusters.demonstration.scene import ClusterView, Happening, JobView, Phase, Picture, Tone

_WIDE: Final = 110
_RIGHT: Final = 38
_NAME, _STATE, _NUMBER = 14, 14, 8
_COLOURS: Final = ("cyan", "magenta", "blue", "yellow")
_TONES: Final = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.MOVED: "yellow",
    Tone.BAD: "red",
    Tone.STORY: "bold",
}


@dataclass(frozen=True, slots=True)
class Symbols:
    """The shapes, one of each for a queue, and those of the bar."""

    running: str
    waiting: str
    suspended: str
    full: str
    empty: str
    dot: str
    more: str


UNICODE: Final = Symbols("●▲■◆", "○△□◇", "‖", "█", "░", "·", "…")
ASCII: Final = Symbols("o^#+", "o^#+", "=", "#", ".", "-", "~")


def frame(picture: Picture, width: int, height: int, symbols: Symbols = UNICODE) -> list[Text]:
    """The whole screen."""
    shapes = {queue.name: number % len(symbols.running) for number, queue in enumerate(picture.queues)}
    lines = [
        _row(
            width,
            ("multimirror demo", "bold"),
            (f" {symbols.dot} {picture.title}", ""),
            right=f"{picture.second:.0f} s",
        ),
        Text(),
        _header(width, "CLUSTER", "STATE", "JOBS", "RUNNING", "OVER"),
        *(_cluster(cluster, shapes, width, symbols) for cluster in picture.clusters),
        Text(),
        _header(width, "QUEUE", "PLACEMENT", "WAITING", "RUNNING", "QUOTA"),
    ]
    for queue in picture.queues:
        shape = shapes[queue.name]
        mark, colour = symbols.running[shape], _COLOURS[shape]
        waiting = Text(symbols.waiting[shape] * queue.waiting, colour)
        quota = "-" if queue.quota is None else str(queue.quota)
        name = Text(f"{mark} {queue.name}", colour)
        lines.append(_columns(width, (name, Text(queue.placement)), waiting, (str(queue.running), quota), symbols))
    lines += [Text(), _progress(picture, width, symbols), Text()]
    room = max(height - len(lines) - 1, 0)
    if width >= _WIDE:
        left = width - _RIGHT - 2
        lines.append(_beside(Text("WHAT HAPPENS", "dim"), Text("RUNNING NOW", "dim"), left))
        rows = _recent(picture.happenings, room, left, symbols)
        now = [job for job in picture.jobs if job.phase in (Phase.RUNNING, Phase.SUSPENDED)]
        beside = [_running(job, shapes, symbols) for job in now[:room]]
        beside += [Text()] * (room - len(beside))
        lines += [_beside(row, other, left) for row, other in zip(rows, beside, strict=True)]
    else:
        lines += [Text("WHAT HAPPENS", "dim"), *_recent(picture.happenings, room, width, symbols)]
    return [_fitted(line, width, symbols) for line in lines[:height]]


def status_line(picture: Picture) -> str:
    """The same in one line, for logs and pipes."""
    phases = picture.phases
    over = phases[Phase.DONE] + phases[Phase.FAILED]
    clusters = "  ".join(
        f"{cluster.name} {len(cluster.running)}{'' if cluster.connected else ' (lost)'}" for cluster in picture.clusters
    )
    running = phases[Phase.RUNNING] + phases[Phase.SUSPENDED]
    numbers = f"waiting {phases[Phase.WAITING]:2}  running {running:2}  over {over:2}"
    return f"{picture.second:5.1f} s  {numbers}  on  {clusters}"


def _header(width: int, *titles: str) -> Text:
    first, second, third, *numbers = titles
    line = Text(f"{first:{_NAME}}{second:{_STATE}}{third}", "dim")
    return _beside(line, Text("".join(f"{title:>{_NUMBER}}" for title in numbers), "dim"), width - 2 * _NUMBER)


def _cluster(cluster: ClusterView, shapes: dict[str, int], width: int, symbols: Symbols) -> Text:
    state = Text("up", "green")
    if not cluster.connected:
        gone = cluster.lost_for
        state = Text("connecting", "yellow") if gone is None else Text(f"LOST {gone:.0f} s", "bold red")
    jobs = Text()
    for job in sorted(cluster.running, key=lambda job: (shapes.get(job.queue, 0), job.name)):
        shape = shapes.get(job.queue, 0)
        mark = symbols.suspended if job.phase is Phase.SUSPENDED else symbols.running[shape]
        jobs.append(mark, _COLOURS[shape] if cluster.connected else "dim")
    return _columns(width, (Text(cluster.name), state), jobs, (str(len(cluster.running)), str(cluster.over)), symbols)


def _columns(width: int, first: tuple[Text, Text], middle: Text, numbers: tuple[str, str], symbols: Symbols) -> Text:
    name, state = (_fitted(text, room - 1, symbols) for text, room in zip(first, (_NAME, _STATE), strict=True))
    left = _beside(_beside(name, state, _NAME), middle, _NAME + _STATE)
    right = Text("".join(f"{number:>{_NUMBER}}" for number in numbers))
    return _beside(_fitted(left, width - 2 * _NUMBER - 1, symbols), right, width - 2 * _NUMBER)


def _progress(picture: Picture, width: int, symbols: Symbols) -> Text:
    phases, total = picture.phases, len(picture.jobs)
    done, failed = phases[Phase.DONE], phases[Phase.FAILED]
    words = f"  {done + failed} of {total} Jobs over: {done} done, {failed} failed; {picture.moved} moved"
    room = max(width - len(words), 0)
    bar = room * (done + failed) // total if total else 0
    return Text.assemble((symbols.full * bar, "green"), (symbols.empty * (room - bar), "dim"), words)


def _recent(happenings: Sequence[Happening], room: int, width: int, symbols: Symbols) -> list[Text]:
    """The last ones, one a line; what does not fit is cut off."""
    rows = [_happening(each, width, symbols) for each in happenings[-room:]] if room else []
    return rows + [Text()] * (room - len(rows))


def _happening(happening: Happening, width: int, symbols: Symbols) -> Text:
    line = Text.assemble(
        (f"{happening.second:5.1f} s  ", "dim"),
        (f"{happening.who:18} ", "bold" if happening.tone is Tone.STORY else ""),
        (" ".join(happening.what.split()), _TONES[happening.tone]),
    )
    return _fitted(line, width, symbols)


def _running(job: JobView, shapes: dict[str, int], symbols: Symbols) -> Text:
    shape = shapes.get(job.queue, 0)
    mark = symbols.suspended if job.phase is Phase.SUSPENDED else symbols.running[shape]
    return Text.assemble((f"{mark} ", _COLOURS[shape]), f"{job.name:18} {job.cluster or '':9} {job.pods}")


def _row(width: int, *parts: tuple[str, str], right: str) -> Text:
    return _beside(Text.assemble(*parts), Text(right), width - len(right))


def _beside(left: Text, right: Text, at: int) -> Text:
    """The second text begins in that column."""
    left = left.copy()
    left.truncate(at)
    left.pad_right(at - left.cell_len)
    return Text.assemble(left, right)


def _fitted(line: Text, width: int, symbols: Symbols) -> Text:
    """Cut to the width, with a sign where something is missing."""
    if line.cell_len <= width:
        return line
    line = line.copy()
    line.truncate(max(width - 1, 0))
    return Text.assemble(line, symbols.more if width else "")
