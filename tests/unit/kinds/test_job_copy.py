"""What travels to a worker, and what stays behind."""

from hypothesis import given
from hypothesis import strategies as st

from clusters.jobapi import prepare_job_create, stored_job, validate_job_create
from multimirror.batch import Json
from multimirror.kinds import JOB, CopyOptions
from tests.unit.batch.builders import T0, UID, a_job, a_stored_job

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def copy_of(job: Json, name: str = "", namespace: str = "") -> Json:
    metadata = job["metadata"]
    options = CopyOptions(
        origin="hub-1",
        attempt=2,
        name=name or metadata["name"],
        namespace=namespace or metadata["namespace"],
        signature="signed",
    )
    return JOB.make_copy(job, options)


def test_the_copy_of_a_dispatched_job_is_what_the_user_meant_and_four_labels() -> None:
    original = a_stored_job(
        managedBy="multimirror.dev/dispatcher",
        suspend=True,
        ttlSecondsAfterFinished=60,
        backoffLimit=2,
        metadata={
            "labels": {"team": "a", "multimirror.dev/queue": "q"},
            "annotations": {"note": "mine", LAST_APPLIED: "{}", "argocd.argoproj.io/tracking-id": "x"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "n", "uid": "u"}],
            "finalizers": ["a.io/b"],
            "managedFields": [{}],
            "generateName": "train-",
        },
        status={"startTime": T0},
    )

    assert copy_of(original) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "labels": {
                "team": "a",
                "multimirror.dev/origin": "hub-1",
                "multimirror.dev/origin-uid": UID,
                "multimirror.dev/attempt": "2",
                "multimirror.dev/signature": "signed",
            },
            "annotations": {"note": "mine"},
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 2,
            "completionMode": "NonIndexed",
            "manualSelector": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": original["spec"]["template"]["spec"],
            },
        },
    }


def test_the_original_is_not_touched() -> None:
    original = a_stored_job(suspend=True)
    before = repr(original)

    copy_of(original)["spec"]["template"]["spec"]["containers"][0]["image"] = "other"

    assert repr(original) == before


def test_a_manual_selector_is_the_users_and_travels() -> None:
    labels = {"app": "x", "job-name": "of-my-own"}
    original = a_stored_job(
        manualSelector=True,
        selector={"matchLabels": labels},
        template={
            "metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
        },
    )

    copied = copy_of(original)

    assert copied["spec"]["selector"] == {"matchLabels": labels}
    assert copied["spec"]["template"]["metadata"]["labels"] == labels


def test_the_copy_can_have_another_name_where_the_originals_is_taken() -> None:
    copied = copy_of(a_stored_job(), name="train-copy", namespace="elsewhere")

    assert (copied["metadata"]["name"], copied["metadata"]["namespace"]) == ("train-copy", "elsewhere")
    assert created(copied)["spec"]["template"]["metadata"]["labels"]["job-name"] == "train-copy"


def created(copied: Json) -> Json:
    copied["metadata"] |= {"uid": "99999999-2222-4333-8444-555555555555"}
    job = prepare_job_create(copied)
    assert validate_job_create(job) == []
    return stored_job(job)


optional = {
    "suspend": st.booleans(),
    "managedBy": st.just("multimirror.dev/dispatcher"),
    "backoffLimit": st.integers(0, 9),
    "activeDeadlineSeconds": st.integers(0, 99),
    "ttlSecondsAfterFinished": st.integers(0, 99),
    "parallelism": st.integers(0, 9),
    "podFailurePolicy": st.just({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}),
}
metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(
            st.sampled_from(["app", "team", "multimirror.dev/queue"]), st.sampled_from(["", "x"])
        ),
        "annotations": st.dictionaries(st.sampled_from(["a", LAST_APPLIED]), st.text()),
        "finalizers": st.just(["a.io/b"]),
    },
)


@given(st.fixed_dictionaries({}, optional=optional), metadata)
def test_every_copy_is_accepted_and_runs_what_the_original_would(spec: Json, given_metadata: Json) -> None:
    original = a_stored_job(metadata=given_metadata, **spec)

    copied = created(copy_of(original))

    assert copied["spec"]["suspend"] is False
    left_out = {"managedBy", "suspend", "ttlSecondsAfterFinished", "selector", "template"}
    meant = {key: value for key, value in original["spec"].items() if key not in left_out}
    assert {key: copied["spec"].get(key) for key in meant} == meant
    assert "ttlSecondsAfterFinished" not in copied["spec"]
    assert copied["spec"]["template"]["spec"] == original["spec"]["template"]["spec"]


def test_a_job_can_be_copied_as_its_author_wrote_it() -> None:
    job = a_job()
    job["metadata"]["uid"] = UID

    assert created(copy_of(job))["spec"]["template"]["spec"]["restartPolicy"] == "Never"
