"""kind's configuration for each cluster: the YAML files in `configs/`, plus what the options ask for. Pure."""

from importlib import resources
from typing import Any, Final

import yaml

from clusters.kind.options import KindOptions

# kubeadm's own list: its bootstrap needs the two that "*" leaves out.
_KUBEADM_CONTROLLERS: Final = ("*", "bootstrapsigner", "tokencleaner")


def config_for(name: str, options: KindOptions) -> str:
    """The configuration of the management cluster, or of a worker."""
    management = name == "management"
    config = yaml.safe_load(template("management.yaml" if management else "worker.yaml"))
    if options.feature_gates:
        config["featureGates"] = dict(sorted(options.feature_gates.items()))
    if options.runtime_config:
        config["runtimeConfig"] = {api: str(on).lower() for api, on in sorted(options.runtime_config.items())}
    if management and options.ports:
        config["nodes"][0]["extraPortMappings"] = [
            {"containerPort": node, "hostPort": host, "listenAddress": "127.0.0.1", "protocol": "TCP"}
            for node, host in sorted(options.ports.items())
        ]
    if not management and tuple(options.controllers) != ("*",):
        config["kubeadmConfigPatches"] = controller_patches(",".join(_with_kubeadms(options)))
    return yaml.safe_dump(config, sort_keys=False)


def template(file: str) -> str:
    return (resources.files("clusters.kind") / "configs" / file).read_text()


def controller_patches(controllers: str) -> list[str]:
    """One patch for each shape of kubeadm's configuration (arguments as a map up to Kubernetes 1.35, as a list from
    1.36 on); kind applies the one whose version fits and leaves the other."""
    shapes: dict[str, Any] = {
        "v1beta3": {"controllers": controllers},
        "v1beta4": [{"name": "controllers", "value": controllers}],
    }
    return [
        yaml.safe_dump(
            {
                "apiVersion": f"kubeadm.k8s.io/{version}",
                "kind": "ClusterConfiguration",
                "controllerManager": {"extraArgs": arguments},
            },
            sort_keys=False,
        )
        for version, arguments in shapes.items()
    ]


def _with_kubeadms(options: KindOptions) -> list[str]:
    if "*" not in options.controllers:
        return list(options.controllers)
    rest = [controller for controller in options.controllers if controller not in _KUBEADM_CONTROLLERS]
    return [*_KUBEADM_CONTROLLERS, *rest]
