"""Which image the nodes of kind clusters are made of: one Kubernetes version everywhere, whoever built the image.

Named by an option, or by MULTIMIRROR_NODE_IMAGE; else the version that everything else is tested on (clusters.local),
as an image that this Docker has, whatever its repository (`kind-node:v1.36.4`), or else kind's own, which is pulled.
`choose` decides, from what Docker has; `ensure` pulls.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from clusters.kind.commands import CommandError, NotPossibleError, has_image, run
from clusters.local import versions

VARIABLE: Final = "MULTIMIRROR_NODE_IMAGE"
_REPOSITORY: Final = "kindest/node"
_PULL_SECONDS: Final = 1800.0


def choose(
    node_image: str | None,
    version: str | None,
    present: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> str:
    """The image to use. `present`: what Docker has, as `repository:tag`. What was asked for goes before the
    environment. ValueError when it is asked for twice, or is no version."""
    if node_image and version:
        raise ValueError(f"a node image ({node_image}) has its Kubernetes version in it: ask for one or the other")
    if node_image:
        return node_image
    if version is None and environ.get(VARIABLE):
        return environ[VARIABLE]
    wanted = f":v{versions.wanted(version)}"
    suitable = sorted(name for name in present if name.endswith(f"node{wanted}"))
    own = f"{_REPOSITORY}{wanted}"
    return own if own in suitable or not suitable else suitable[0]


async def present_images() -> list[str]:
    """What this Docker has."""
    return (await run("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", seconds=60)).split()


async def ensure(image: str, present: Sequence[str]) -> None:
    """Have it here: whoever waits for clusters is told first when there cannot be any."""
    if image in present or await has_image(image):
        return
    try:
        await run("docker", "pull", "--quiet", image, seconds=_PULL_SECONDS)
    except CommandError as error:
        others = sorted(name for name in present if "node:v" in name)
        here = f"; this Docker has {', '.join(others)}" if others else ""
        raise NotPossibleError(
            f"the node image {image} is not in this Docker and cannot be pulled ({str(error).splitlines()[-1]}): name "
            f"another with --node-image or {VARIABLE}{here}; or make it with `kind build node-image`"
        ) from error
