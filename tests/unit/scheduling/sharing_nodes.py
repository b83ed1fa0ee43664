"""Nodes of a worker, and pods that are bound to them: for workers whose free capacity is counted node by node."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from multimirror.kube.resources import NODES, PODS
from tests.unit.shell.fake_api import FakeCluster

Json = dict[str, Any]
_PODS_OF_A_NODE = 20


class Nodes:
    """Pods go to the first node that has room for them; those that find none wait, and are tried again."""

    def __init__(self, cluster: FakeCluster, sizes: Sequence[Mapping[str, int]]) -> None:
        self._cluster, self._sizes = cluster, {f"n{number}": size for number, size in enumerate(sizes)}
        self._pods: dict[str, dict[str, tuple[str, Counter[str]]]] = {}
        """By the uid of what they belong to: pods, each with its node ("": none) and what it asks for."""
        self._numbers = 0
        cluster.lists_all_pods = True
        for name, size in self._sizes.items():
            amounts = {resource: str(amount) for resource, amount in size.items()}
            status = {
                "allocatable": {**amounts, "pods": str(_PODS_OF_A_NODE)},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            cluster.put(NODES, {"metadata": {"name": name}, "spec": {}, "status": status})

    def keep(self, owner: str, namespace: str, number: int, requests: Mapping[str, int]) -> None:
        """So many pods belong to it now."""
        pods = self._pods.setdefault(owner, {})
        for name in list(pods)[number:]:
            self._remove(namespace, name, pods)
        for _ in range(number - len(pods)):
            self._numbers += 1
            pods[f"pod-{self._numbers}"] = "", Counter(requests)
        for name, (node, asked) in pods.items():
            place = next((each for each in self._sizes if self._fits(each, asked)), "") if not node else ""
            if place:
                pods[name] = place, asked
                self._bind(owner, namespace, name, place, asked)
        if not pods:
            del self._pods[owner]

    def slots(self, requests: Mapping[str, int]) -> int:
        """For so many pods more that ask for this there is room now."""
        found = 0
        for name in self._sizes:
            left = self._left(name)
            found += min([left[resource] // amount for resource, amount in requests.items() if amount] + [left["pods"]])
        return found

    def slots_when_empty(self, requests: Mapping[str, int]) -> int:
        """The same, if nothing else were there."""
        asked = [(name, amount) for name, amount in requests.items() if amount]
        sizes = self._sizes.values()
        return sum(min([size.get(name, 0) // amount for name, amount in asked] + [_PODS_OF_A_NODE]) for size in sizes)

    def _left(self, node: str) -> Counter[str]:
        left = Counter({**self._sizes[node], "pods": _PODS_OF_A_NODE})
        for pods in self._pods.values():
            for place, asked in pods.values():
                if place == node:
                    left.subtract(asked)
                    left["pods"] -= 1
        return left

    def _fits(self, node: str, asked: Mapping[str, int]) -> bool:
        left = self._left(node)
        return left["pods"] > 0 and all(left[resource] >= amount for resource, amount in asked.items())

    def _bind(self, owner: str, namespace: str, name: str, node: str, asked: Mapping[str, int]) -> None:
        requests = {resource: str(amount) for resource, amount in asked.items()}
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": owner, "controller": True}
        self._cluster.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": [reference]},
                "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]},
                "status": {"phase": "Running"},
            },
        )

    def _remove(self, namespace: str, name: str, pods: dict[str, tuple[str, Counter[str]]]) -> None:
        node, _ = pods.pop(name)
        if node:
            self._cluster.remove(PODS, name, namespace)
