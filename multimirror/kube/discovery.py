"""Whether an API server has a kind at all: asked of what it says about itself, which everybody may read.

Where it has not, whoever may not read the kind is told Forbidden and not NotFound: rights come first.
"""

import orjson

from .client import Client
from .errors import BadAnswer, NotFound
from .resource import Resource


async def is_served(client: Client, resource: Resource) -> bool:
    """Raises ApiError where that cannot be found out."""
    path = resource.path().rpartition("/")[0]
    try:
        answer = await client.request("GET", path, limit=client.limits.object)
    except NotFound:
        return False
    try:
        return any(each["name"] == resource.plural for each in orjson.loads(answer.body)["resources"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BadAnswer(f"{path} is no list of kinds", cluster=client.cluster) from error
