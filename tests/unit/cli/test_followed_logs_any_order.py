"""`logs -f` in any order of events: no line twice, none of the last attempt lost, and an end when the Job has one."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cli.log_world import LogWorld

STEPS = ("write", "write", "write", "cut", "hang", "mend", "cut hub", "mend hub", "move", "retry", "restart")
STORY = st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([0.0, 0.3, 4.0, 40.0])), max_size=14)


class Story:
    """Somebody's steps, each followed by some time."""

    def __init__(self) -> None:
        self.world = LogWorld(prefix=False)
        self.world.place("w1")
        self.pod = self._pod()
        self.world.followed()

    def _pod(self) -> str:
        return self.world.start_pod(restartPolicy="OnFailure")

    def _is_reached(self) -> bool:
        links = [self.world.network.links[name] for name in ("hub", self.world.worker)]
        return all(link.up and link.flows.is_set() for link in links)

    def step(self, what: str) -> None:
        world = self.world
        match what:
            case "write":
                world.write(self.pod)
            case "cut" | "hang" | "mend":
                getattr(world, what)(world.worker)
            case "cut hub":
                world.cut("hub")
            case "mend hub":
                world.mend("hub")
            case "move":
                world.unplace("WorkerLost")
                world.place("w2" if world.worker == "w1" else "w1")
                self.pod = self._pod()
            case "retry":
                world.end_pod(self.pod, code=1)
                self.pod = self._pod()
            case "restart" if self._is_reached():  # the API shows one run before the last, and no more
                world.settle(60)
                world.restart(self.pod)
                world.settle(60)

    def finish(self) -> None:
        world = self.world
        for name in ("hub", "w1", "w2"):
            world.mend(name)
        world.settle(120)
        world.write(self.pod)
        world.end_pod(self.pod)
        world.settle(1)
        world.end()
        world.settle(60)


@settings(max_examples=40, deadline=None)
@given(STORY)
def test_no_line_is_shown_twice_and_none_of_the_last_attempt_is_lost(steps: list[tuple[str, float]]) -> None:
    story = Story()
    world = story.world
    try:
        for what, seconds in steps:
            story.step(what)
            world.settle(seconds)
        story.finish()
        assert world.has_ended(), world.notes
        assert [line for line, times in Counter(world.out).items() if times > 1] == []
        by_pod = sorted(world.written[world.attempt], key=lambda line: line.split()[0])
        shown = [line for line in world.out if line in world.written[world.attempt]]
        assert sorted(shown, key=lambda line: line.split()[0]) == by_pod, "whole, and each pod's in their order"
        assert {*world.out} <= {line for lines in world.written.values() for line in lines}
    finally:
        world.close()
