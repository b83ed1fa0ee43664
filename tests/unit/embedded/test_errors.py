"""What the embedded server answers when it refuses."""

from clusters.embedded.errors import invalid as refused
from multimirror.batch.errors import invalid, required


def test_the_answer_to_a_refused_write_lists_every_cause_and_says_each_thing_once() -> None:
    errors = [required("spec.selector"), required("spec.selector"), invalid("spec.completions", 7, "no")]

    status = refused("batch", "Job", "x", errors).status

    assert status["code"] == 422
    assert status["reason"] == "Invalid"
    assert status["message"] == (
        'Job.batch "x" is invalid: [spec.selector: Required value, spec.completions: Invalid value: 7: no]'
    )
    assert status["details"]["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"},
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"},
        {"reason": "FieldValueInvalid", "message": "Invalid value: 7: no", "field": "spec.completions"},
    ]
    assert {key: status["details"][key] for key in ("name", "group", "kind")} == {
        "name": "x",
        "group": "batch",
        "kind": "Job",
    }


def test_one_cause_stands_without_brackets() -> None:
    message = refused("", "Pod", "x", [required("spec")]).message

    assert message == 'Pod "x" is invalid: spec: Required value'
