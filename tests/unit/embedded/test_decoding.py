"""From what a client sent to what is kept: JSON by shape, protocol buffers, selectors."""

from typing import Any

import pytest

from clusters.embedded.schemas import Findings, MismatchError, builtin, clean
from clusters.embedded.schemas.protobuf import MAGIC, WireError, decode
from clusters.embedded.selectors import field_selector, label_selector

JOB = builtin().struct("io.k8s.api.batch.v1.Job")
POD = builtin().struct("io.k8s.api.core.v1.Pod")


def cleaned(obj: dict[str, Any], shape: Any = POD) -> tuple[Any, list[str]]:
    findings = Findings()
    return clean(obj, shape, findings), findings.unknown


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        pytest.param({"hostNetwork": False, "containers": []}, {"containers": []}, id="zero values vanish"),
        pytest.param(
            {"automountServiceAccountToken": False}, {"automountServiceAccountToken": False}, id="pointers stay"
        ),
        pytest.param({"nodeName": None}, {}, id="null is absence"),
        pytest.param({"overhead": {"cpu": 0.5}}, {"overhead": {"cpu": "500m"}}, id="quantities are canonical"),
    ],
)
def test_values_are_kept_as_kubernetes_would(spec: dict[str, Any], kept: dict[str, Any]) -> None:
    assert cleaned({"spec": spec})[0]["spec"] == kept


def test_structs_that_are_no_pointers_are_there_even_when_empty() -> None:
    assert cleaned({}, JOB)[0] == {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {}}}, "status": {}}


def test_times_are_kept_in_utc_and_whole_seconds() -> None:
    kept, _ = cleaned({"metadata": {"creationTimestamp": "2026-11-16T03:00:00.5+01:00"}})
    assert kept["metadata"]["creationTimestamp"] == "2026-11-16T02:00:00Z"


def test_unknown_fields_are_named_with_their_path() -> None:
    kept, unknown = cleaned({"spec": {"containers": [{"name": "a", "imag": "x"}], "restart": 1}})
    assert unknown == ["spec.containers[0].imag", "spec.restart"]
    assert kept["spec"]["containers"][0]["name"] == "a"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            {"spec": {"parallelism": "x"}},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        (
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"spec": {"template": {"spec": {"containers": [{"name": {}}]}}}},
            "json: cannot unmarshal object into Go struct field "
            "Container.spec.template.spec.containers.name of type string",
        ),
    ],
)
def test_a_wrong_type_is_told_as_kubernetes_tells_it(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(MismatchError) as caught:
        cleaned(obj, JOB)
    assert str(caught.value) == message


def field(number: int, data: bytes) -> bytes:
    """A field of bytes on the wire."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def test_protocol_buffers_are_read_by_the_same_shapes() -> None:
    labels = field(1, b"app") + field(2, b"x")
    metadata = field(1, b"a") + field(11, labels)
    container = field(1, b"main") + field(2, b"busybox")
    volume = field(1, b"v") + field(2, field(2, b""))  # the source of a volume is a message of its own on the wire
    spec = field(1, volume) + field(2, container) + bytes([4 << 3, 30]) + field(3, b"Never")
    raw = field(1, metadata) + field(2, spec)
    envelope = field(1, field(1, b"v1") + field(2, b"Pod"))
    assert decode(MAGIC + envelope + field(2, raw), POD) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"app": "x"}},
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "main", "image": "busybox"}],
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Never",
        },
    }


@pytest.mark.parametrize("data", [b"", b"k8s\x00\x12\x7f", MAGIC + b"\x0a", MAGIC + b"\x0f\x01"])
def test_bytes_that_are_no_protocol_buffers_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data, POD)


LABELS = {"app": "x", "size": "10", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=x", True),
        ("app==x,size=10", True),
        ("app!=x", False),
        ("missing!=x", True),
        ("app in (x, y)", True),
        ("app notin (x,y)", False),
        ("missing notin (x)", True),
        ("app", True),
        ("!app", False),
        ("!missing , app", True),
        ("empty=", True),
        ("size>9", True),
        ("size<9", False),
        ("app>1", False),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:
    assert label_selector(selector)(LABELS) is matches


@pytest.mark.parametrize("selector", ["app=x=y", "a b", "app in x", "in (x)", "-a=b", "app=-x", "a,,b"])
def test_a_label_selector_that_cannot_be_read_is_an_error(selector: str) -> None:
    with pytest.raises(ValueError, match="unable to parse requirement"):
        label_selector(selector)


def test_field_selectors() -> None:
    assert field_selector("a.b=c,d!=e,f==g=h") == (("a.b", True, "c"), ("d", False, "e"), ("f", True, "g=h"))
    with pytest.raises(ValueError, match="invalid selector"):
        field_selector("a")
