"""What a WorkerCluster says about the address by which its worker cannot be reached."""

import pytest

from multimirror.kube.errors import ApiError, Forbidden, TimedOut, Unreachable
from multimirror.workers.addresses import failure_in_words

GIVEN, JOINED = "https://w1:6443", "https://127.0.0.1:40001"


@pytest.mark.parametrize(
    ("error", "server", "joined_by", "words"),
    [
        pytest.param(
            Unreachable(f"no connection to {GIVEN} (refused)"),
            GIVEN,
            JOINED,
            f"no connection to {GIVEN} (refused); that address was given with `join --server`, the worker was joined "
            f"by {JOINED}",
            id="the address of --server fails",
        ),
        pytest.param(
            TimedOut("no answer to GET /version in 10 s"),
            JOINED,
            JOINED,
            f"no answer to GET /version in 10 s at {JOINED}; that address is the one by which the worker was joined: "
            "`multimirror join w1 --kubeconfig ... --server URL` names another one for the dispatcher",
            id="the operator's own address fails from where the dispatcher is",
        ),
        pytest.param(TimeoutError(), GIVEN, "", f"no answer in time at {GIVEN}", id="nobody has recorded another one"),
        pytest.param(
            Forbidden("no"), GIVEN, JOINED, "it answers, and refuses (403: no)", id="who answers can be reached"
        ),
    ],
)
def test_the_address_that_fails_is_named(
    error: ApiError | TimeoutError, server: str, joined_by: str, words: str
) -> None:
    assert failure_in_words("w1", server, joined_by, error) == words
