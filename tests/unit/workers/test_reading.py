"""Whatever a worker sends: what passes the reader cannot make anybody raise, and nothing passes that is not signed."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import ATTEMPT_LABEL, ORIGIN_LABEL, ORIGIN_UID_LABEL, SIGNATURE_LABEL
from multimirror.api.ownership import Signer
from multimirror.api.placement import Copy
from multimirror.batch.quantities import quantity
from multimirror.kinds import JOB
from multimirror.kube.resources import JOBS
from multimirror.reconcile.decide import decide
from multimirror.workers.capacity import Capacity
from multimirror.workers.followed import trim_node, trim_worker_namespace
from multimirror.workers.reading import has_sound_metadata, reader_of_copies
from multimirror.workers.state import Contact
from tests.unit.reconcile.builders import a_job, observed

Json = dict[str, Any]
SIGNER = Signer(b"k" * 32, "hub")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["active", "ready", "terminating", "failed", "succeeded", "startTime", "completionTime", "conditions",
     "completedIndexes", "failedIndexes", "uncountedTerminatedPods"]
)  # fmt: skip
CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Complete", "Failed", "Suspended", "FailureTarget"]) | ANYTHING,
        "status": st.sampled_from(["True", "False"]) | ANYTHING,
        "reason": st.sampled_from(["DeadlineExceeded"]) | ANYTHING,
        "lastTransitionTime": st.sampled_from(["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00", "x"]) | ANYTHING,
    },
)
STATUS = st.dictionaries(FIELDS, st.lists(CONDITION, max_size=4) | st.integers(-5, 2**70) | ANYTHING) | ANYTHING
SPEC = (
    st.dictionaries(
        st.sampled_from(["parallelism", "completions", "activeDeadlineSeconds", "suspend", "completionMode"]),
        st.integers(-5, 2**70) | ANYTHING,
    )
    | ANYTHING
)


def signed(name: str = "train", namespace: str = "team", uid: str = "uid-train", attempt: str = "1") -> Json:
    signature = SIGNER.sign(JOBS, cluster="w", namespace=namespace, name=name, uid=uid, attempt=attempt)
    labels = {ORIGIN_LABEL: "hub", ORIGIN_UID_LABEL: uid, ATTEMPT_LABEL: attempt, SIGNATURE_LABEL: signature}
    metadata = {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "1", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {}}


def read(obj: Json, namespace: str | None = None) -> Json | None:
    is_ours = lambda resource, each: SIGNER.signed(resource, "w", each)  # noqa: E731
    return reader_of_copies(JOBS, JOB.read_copy, namespace=namespace, is_ours=is_ours)(obj)


def test_what_is_signed_for_its_place_is_kept() -> None:
    assert read(signed()) is not None
    assert read(signed(), "team") is not None
    assert read(signed(), "other") is None, "in another namespace than was asked for"


def test_a_signature_is_worth_nothing_anywhere_else() -> None:
    for key, value in (("name", "x"), ("namespace", "x")):
        moved = signed()
        moved["metadata"][key] = value
        assert read(moved) is None
    for label in (ORIGIN_LABEL, ORIGIN_UID_LABEL, ATTEMPT_LABEL, SIGNATURE_LABEL):
        moved = signed()
        moved["metadata"]["labels"][label] = "2"
        assert read(moved) is None
    assert not SIGNER.signed(JOBS, "another", signed()), "nor on another cluster"
    assert not Signer(b"x" * 32, "hub").signed(JOBS, "w", signed()), "nor with another key"


@given(obj=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), ANYTHING))
def test_nothing_of_another_shape_is_kept(obj: Json) -> None:
    assert read(obj) is None


@given(
    changes=st.dictionaries(
        st.sampled_from(["uid", "resourceVersion", "deletionTimestamp", "annotations", "labels", "finalizers"]),
        ANYTHING,
    ),
    spec=SPEC,
    status=STATUS,
    fenced=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_no_copy_makes_a_decision_raise(changes: Json, spec: Any, status: Any, fenced: bool) -> None:
    obj = signed()
    obj["metadata"] |= changes
    found = read({**obj, "spec": spec, "status": status})
    if found is None:
        return
    assert has_sound_metadata(found)
    for job in (a_job().on("w1"), a_job().on("w1").started(), a_job().tried(2), a_job().on("w1").finished(), None):
        if job is not None and fenced:
            job.job["metadata"]["annotations"]["multimirror.dev/fence"] = "60"
        contacts = {"w1": Contact(connected=True), "w2": Contact(connected=True)}
        for worker in ("w1", "w2"):
            decide(observed(job.job if job is not None else None, [Copy(worker, found)], contacts=contacts))


@given(
    metadata=st.dictionaries(st.sampled_from(["name", "uid", "resourceVersion"]), ANYTHING),
    spec=ANYTHING,
    status=ANYTHING,
)
def test_no_node_or_namespace_makes_anybody_raise(metadata: Json, spec: Any, status: Any) -> None:
    obj = {"metadata": {"name": "n", "resourceVersion": "1", **metadata}, "spec": spec, "status": status}
    node = trim_node(obj)
    if node is not None:
        Capacity().put(node)
    trim_worker_namespace(obj)


@given(amount=st.integers() | st.floats() | st.text(max_size=70) | st.sampled_from(["-1", "1e99999", "NaN", "inf"]))
def test_no_node_has_less_than_nothing(amount: Any) -> None:
    capacity = Capacity()
    ready = [{"type": "Ready", "status": "True"}]
    node = trim_node(
        {
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
            "status": {"allocatable": {"cpu": amount}, "conditions": ready},
        }
    )
    assert node is not None
    capacity.put(node)
    assert all(0 <= value <= quantity(2**63) for value in (capacity.total() or {}).values())
