"""`multimirror import kueue`: files in, YAML out, and everything else said where it does not disturb."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.embedded import EmbeddedCluster
from multimirror.cli import main
from multimirror.cli.errors import CommandError
from multimirror.cli.kueue import read_objects, translate
from multimirror.cli.kueue import sources as kueue_sources
from multimirror.cli.kueue.sources import LARGEST_FILE, from_cluster
from multimirror.kube import Client, Connection
from multimirror.kube.resources import CRDS
from tests.documents import ROOT, blocks
from tests.unit.cli.kueue_objects import Json, cluster_queue, kueue, local_queue, quotas, spec_of

FLAVOR = kueue("ResourceFlavor", "default")
QUEUE = cluster_queue(resourceGroups=quotas(default={"cpu": 9, "memory": "36Gi"}))
LOCAL = local_queue("science")
HELD = local_queue("art", stopPolicy="Hold")


def written(path: Path, *objects: Any) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def documents(text: str) -> list[Json]:
    return [each for each in yaml.safe_load_all(text) if each is not None]


def test_a_file_becomes_yaml_and_what_people_must_know_is_said_above_it_and_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "kueue", "-f", written(tmp_path / "q.yaml", FLAVOR, QUEUE, LOCAL, HELD)]) == 0
    out, err = capsys.readouterr()
    assert [(each["kind"], each["metadata"]["name"]) for each in documents(out)] == [("MirrorQueue", "team-a")]
    comments = [line.removeprefix("#").strip() for line in out.splitlines() if line.startswith("#")]
    for said in (
        "LocalQueue art/user-queue, spec.stopPolicy",
        "science     user-queue   multimirror.dev/queue: team-a",
    ):
        assert any(said in line for line in comments)
        assert said in err
    assert err.splitlines()[-1] == "1 MirrorQueue and 0 Cohorts; 1 left out, 0 changed"


def test_json_is_a_list_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "kueue", "-o", "json", "-f", written(tmp_path / "q.yaml", QUEUE, HELD)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["kind"], [each["kind"] for each in found["items"]]) == ("List", ["MirrorQueue"])
    assert "spec.stopPolicy" in err


@pytest.mark.parametrize(
    ("objects", "code"),
    [
        pytest.param([FLAVOR, QUEUE, LOCAL], 0, id="nothing was left out"),
        pytest.param([FLAVOR, QUEUE, LOCAL, HELD], 1, id="something was left out"),
        pytest.param([FLAVOR, QUEUE], 1, id="something means more than before"),
    ],
)
def test_strict_ends_with_1_unless_all_was_taken_over(
    objects: list[Json], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "kueue", "--strict", "-f", written(tmp_path / "q.yaml", *objects)]) == code
    assert documents(capsys.readouterr().out)


def test_fair_sharing_is_said_by_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = cluster_queue(cohortName="c", preemption={"reclaimWithinCohort": "Any"})
    assert main(["import", "kueue", "--fair-sharing", "-f", written(tmp_path / "q.yaml", queue)]) == 0
    assert documents(capsys.readouterr().out)[0]["spec"]["preempts"] == ["Reclaim", "FairShare"]


def test_a_default_local_queue_becomes_a_label_of_its_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "kueue", "-f", written(tmp_path / "q.yaml", QUEUE, local_queue("art", "default"))]) == 0
    assert "  kubectl label namespace art multimirror.dev/default-queue=team-a" in capsys.readouterr().err.splitlines()


def test_files_directories_and_lists_are_read_as_kubectl_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "kueue"
    directory.mkdir()
    (directory / "b.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [LOCAL, FLAVOR]}))
    typed = {"apiVersion": QUEUE["apiVersion"], "kind": "ClusterQueueList", "items": [
        {key: value for key, value in QUEUE.items() if key not in {"apiVersion", "kind"}}
    ]}  # fmt: skip
    written(directory / "a.yml", typed, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    (directory / "notes.txt").write_text("{")
    more = written(tmp_path / "more.yaml", cluster_queue("team-b"))
    assert main(["import", "kueue", "-f", str(directory), "-f", more]) == 0
    assert [each["metadata"]["name"] for each in documents(capsys.readouterr().out)] == ["team-a", "team-b"]


def test_standard_input_is_read_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(yaml.safe_dump(QUEUE).encode())))
    assert main(["import", "kueue", "-f", "-"]) == 0
    assert documents(capsys.readouterr().out)[0]["metadata"]["name"] == "team-a"


BOMB = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: [*b, *b, *b]\n"
WRONG_TYPE = {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "q"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "q.yaml: line 2: is no YAML", id="no YAML"),
        pytest.param(f"---\n{BOMB}", "q.yaml: line 2: has anchors or aliases", id="aliases"),
        pytest.param("a: !!python/name:os.system x", "q.yaml: line 1: has tags", id="tags"),
        pytest.param("[" * 100 + "]" * 100, "q.yaml, document 1: the document: must be an object", id="no object"),
        pytest.param("kind: x\n---\n- a\n", "q.yaml, document 1: apiVersion: is required", id="no apiVersion"),
        pytest.param(
            yaml.safe_dump_all([QUEUE, {**WRONG_TYPE, "spec": {"resourceGroups": {"a": 1}}}]),
            "q.yaml, document 2: ClusterQueue q: spec.resourceGroups: must be a list",
            id="a field of another type",
        ),
        pytest.param(
            yaml.safe_dump({**WRONG_TYPE, "spec": {"resourceGroups": quotas(default={"cpu": "lots"})}}),
            "ClusterQueue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: must be a quantity",
            id="no quantity",
        ),
        pytest.param(
            yaml.safe_dump({**WRONG_TYPE, "spec": {"resourceGroups": quotas(default={"cpu": -1})}}),
            "nominalQuota: must be a quantity that is not negative",
            id="a negative quantity",
        ),
        pytest.param(
            yaml.safe_dump({**WRONG_TYPE, "spec": {"stopPolicy": "Halt"}}),
            "spec.stopPolicy: must be one of None, Hold, HoldAndDrain, not 'Halt'",
            id="no such word",
        ),
        pytest.param(
            yaml.safe_dump({**WRONG_TYPE, "apiVersion": "kueue.x-k8s.io/v1alpha2"}),
            "q.yaml, document 1: ClusterQueue q: apiVersion: must be kueue.x-k8s.io/v1beta2 or v1beta1",
            id="another version",
        ),
        pytest.param(
            yaml.safe_dump({**local_queue("x"), "metadata": {"name": "lq"}}),
            "q.yaml, document 1: metadata.namespace: is required",
            id="no namespace",
        ),
        pytest.param(
            yaml.safe_dump(local_queue("x; reboot")),
            "q.yaml, document 1: metadata.namespace: must be the name of a namespace, not 'x; reboot'",
            id="no name of a namespace",
        ),
        pytest.param(
            yaml.safe_dump(kueue("Cohort", "c", spec={"parentName": "c"})),
            "Cohort c: spec.parentName: must not be the cohort itself",
            id="its own parent",
        ),
        pytest.param(
            yaml.safe_dump_all([QUEUE, FLAVOR, QUEUE]),
            "q.yaml, document 3: ClusterQueue team-a: is there twice, first in",
            id="twice",
        ),
        pytest.param(
            yaml.safe_dump(kueue("WorkloadPriorityClass", "p", value="high")),
            "WorkloadPriorityClass p: value: must be a whole number of 32 bits",
            id="no number",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_document_and_field(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.yaml").write_text(text)
    assert main(["import", "kueue", "-f", str(tmp_path / "q.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert message in err


def test_a_file_that_is_too_large_is_refused_and_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "q.yaml").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    assert main(["import", "kueue", "-f", str(tmp_path / "q.yaml")]) == 2
    assert "is larger than 10 MB" in capsys.readouterr().err


def test_more_values_than_anybody_writes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kueue_sources, "_MOST_VALUES", 100)
    (tmp_path / "q.yaml").write_text("- a\n" * 200)
    assert main(["import", "kueue", "-f", str(tmp_path / "q.yaml")]) == 2
    assert "has more than 100 values" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere.yaml", "-f: there is no file "), ("empty", "that ends in .yaml, .yml or .json")],
)
def test_what_cannot_be_read_is_named(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["import", "kueue", "-f", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err


def test_where_there_are_no_queues_there_is_nothing_to_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "kueue", "-f", written(tmp_path / "q.yaml", FLAVOR)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no ClusterQueue and no Cohort" in err


def test_the_example_in_the_documents_is_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = list(blocks(ROOT / "docs" / "how-to" / "from-multikueue.md"))
    given, ours = [block.text for block in shown if block.language == "yaml"]
    (told,) = [block.text for block in shown if block.language == "text"]
    (tmp_path / "kueue.yaml").write_text(given)
    assert main(["import", "kueue", "-f", str(tmp_path / "kueue.yaml")]) == 0
    out, err = capsys.readouterr()
    assert out.partition("\n---\n")[2] == ours
    assert err.strip() == told.strip()


def definition(plural: str, kind: str, *versions: str, scope: str = "Cluster") -> Json:
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": not number, "schema": anything}
                for number, version in enumerate(versions)
            ],
        },
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_cluster_is_read_in_the_newest_version_that_is_known(version: str) -> None:
    known = {"v1beta1": ["v1beta1"], "v1beta2": ["v1beta1", "v1beta2"]}[version]
    api = f"/apis/kueue.x-k8s.io/{version}"
    async with (
        EmbeddedCluster("hub", tls=False) as cluster,
        Client(Connection.from_kubeconfig(cluster.kubeconfig)) as client,
    ):
        await client.create(CRDS, definition("clusterqueues", "ClusterQueue", *known))
        await client.create(CRDS, definition("localqueues", "LocalQueue", *known, scope="Namespaced"))
        await client.create(CRDS, definition("cohorts", "Cohort", "v1alpha1"))
        cohort = {"v1beta1": "cohort", "v1beta2": "cohortName"}[version]
        queue = cluster_queue(version=version, **{cohort: "research"})
        await client.request("POST", f"{api}/clusterqueues", body=queue)
        local = {**local_queue("default"), "apiVersion": f"kueue.x-k8s.io/{version}"}
        await client.request("POST", f"{api}/namespaces/default/localqueues", body=local)
        old = kueue("Cohort", "research", "v1alpha1", spec={"parent": "company"})
        await client.request("POST", "/apis/kueue.x-k8s.io/v1alpha1/cohorts", body=old)
        made = translate(read_objects(await from_cluster(client)))
    assert spec_of(made)["cohort"] == "research"
    assert spec_of(made, "research", "Cohort") == {"parent": "company"}
    assert [each.namespace for each in made.labels] == ["default"]


async def test_a_cluster_without_kueue_says_so() -> None:
    async with (
        EmbeddedCluster("hub", tls=False) as cluster,
        Client(Connection.from_kubeconfig(cluster.kubeconfig)) as client,
    ):
        with pytest.raises(CommandError, match="there is no Kueue on this cluster"):
            await from_cluster(client)
