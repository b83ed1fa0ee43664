"""Lists: order, pages, consistency, and versions."""

import base64
import json

from tests.contract.objects import configmap, job
from tests.contract.wire import Api, Object

SET = "in-the-list"


def names(listed: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def fill(api: Api, count: int) -> None:
    for number in range(count):
        await api.made("configmaps", configmap(f"m{number}", labels={"set": SET}))


async def test_a_list_is_ordered_by_name_and_carries_a_version(api: Api) -> None:
    for name in ("c", "a", "b"):
        last = await api.made("jobs", job(name))
    listed = (await api.get(api.at("jobs"))).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("JobList", "batch/v1")
    assert names(listed) == ["a", "b", "c"]
    assert int(listed["metadata"]["resourceVersion"]) >= int(last["metadata"]["resourceVersion"])
    assert "kind" not in listed["items"][0], "items of a typed list do not repeat their kind"


async def test_an_empty_list_is_an_empty_list(api: Api) -> None:
    listed = (await api.get(api.at("jobs"))).ok()
    assert listed["items"] == []
    assert int(listed["metadata"]["resourceVersion"]) > 0


async def test_pages_have_the_same_version_and_do_not_see_later_writes(api: Api) -> None:
    await fill(api, 5)
    path = api.at("configmaps")
    first = (await api.get(path, limit=2, labelSelector=f"set={SET}")).ok()
    assert names(first) == ["m0", "m1"]
    await api.made("configmaps", configmap("m3b", labels={"set": SET}))
    (await api.delete(api.at("configmaps", "m4"))).ok()
    token = first["metadata"]["continue"]
    second = (await api.get(path, **{"limit": 2, "labelSelector": f"set={SET}", "continue": token})).ok()
    assert names(second) == ["m2", "m3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    token = second["metadata"]["continue"]
    third = (await api.get(path, **{"limit": 2, "labelSelector": f"set={SET}", "continue": token})).ok()
    assert names(third) == ["m4"]
    assert "continue" not in third["metadata"]


async def test_a_page_says_how_many_remain_unless_there_is_a_selector(api: Api) -> None:
    for name in "abcde":
        await api.made("jobs", job(name))
    first = (await api.get(api.at("jobs"), limit=2)).ok()
    assert first["metadata"]["remainingItemCount"] == 3
    chosen = (await api.get(api.at("jobs"), limit=2, labelSelector="!nothing")).ok()
    assert chosen["metadata"]["continue"]
    assert "remainingItemCount" not in chosen["metadata"]


async def test_a_limit_that_fits_all_gives_no_token(api: Api) -> None:
    await api.made("jobs", job("a"))
    listed = (await api.get(api.at("jobs"), limit=1)).ok()
    assert names(listed) == ["a"]
    assert "continue" not in listed["metadata"]
    assert "remainingItemCount" not in listed["metadata"]


async def test_a_token_that_is_none_is_refused(api: Api) -> None:
    answer = await api.get(api.at("configmaps"), **{"limit": "1", "continue": "nonsense"})
    status = answer.refused(400, "BadRequest")
    assert "continue key is not valid" in status["message"]


async def test_a_token_with_a_version_is_refused(api: Api) -> None:
    await fill(api, 2)
    token = (await api.get(api.at("configmaps"), limit=1)).ok()["metadata"]["continue"]
    answer = await api.get(api.at("configmaps"), **{"limit": 1, "continue": token, "resourceVersion": "5"})
    status = answer.refused(400, "BadRequest")
    assert status["message"] == "specifying resource version is not allowed when using continue"


async def test_a_list_can_be_exactly_as_it_was(api: Api) -> None:
    await fill(api, 2)
    path = api.at("configmaps")
    then = (await api.get(path, labelSelector=f"set={SET}")).ok()
    await api.made("configmaps", configmap("later", labels={"set": SET}))
    version = then["metadata"]["resourceVersion"]
    exact = (
        await api.get(path, labelSelector=f"set={SET}", resourceVersion=version, resourceVersionMatch="Exact")
    ).ok()
    assert exact["metadata"]["resourceVersion"] == version
    assert names(exact) == ["m0", "m1"]
    newer = (
        await api.get(path, labelSelector=f"set={SET}", resourceVersion=version, resourceVersionMatch="NotOlderThan")
    ).ok()
    assert names(newer) in (["m0", "m1"], ["later", "m0", "m1"])


async def test_a_match_without_a_version_is_refused(api: Api) -> None:
    status = (await api.get(api.at("configmaps"), resourceVersionMatch="Exact")).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "resourceVersionMatch"


async def test_a_version_that_is_no_number_is_refused(api: Api) -> None:
    status = (await api.get(api.at("configmaps"), resourceVersion="abc")).refused(400, "BadRequest")
    assert "resourceVersion" in status["message"]


async def test_a_version_from_the_future_is_refused_for_now(api: Api) -> None:
    future = int((await api.get(api.at("configmaps"))).ok()["metadata"]["resourceVersion"]) + 10_000_000
    answer = await api.get(api.at("configmaps"), resourceVersion=future)
    status = answer.refused(504, "Timeout")
    assert "Too large resource version" in status["message"]


async def test_all_namespaces_are_listed_at_once(api: Api) -> None:
    await api.made("jobs", job("a"))
    listed = (await api.get("/apis/batch/v1/jobs", fieldSelector=f"metadata.namespace={api.namespace}")).ok()
    assert names(listed) == ["a"]
    listed = (await api.get("/apis/batch/v1/jobs")).ok()
    assert (api.namespace, "a") in [
        (item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed["items"]
    ]


def opened(token: str) -> Object:
    """What is in a token. Clients must not look, but tools that do exist, so it is of the same make everywhere."""
    inside: Object = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return inside


async def test_the_token_of_a_page_names_the_version_it_continues(api: Api) -> None:
    await fill(api, 2)
    first = (await api.get(api.at("configmaps"), limit=1)).ok()
    inside = opened(first["metadata"]["continue"])
    assert inside["v"] == "meta.k8s.io/v1"
    assert str(inside["rv"]) == first["metadata"]["resourceVersion"]


async def test_a_token_without_a_version_goes_on_with_what_is_there_now(api: Api) -> None:
    """It is what a server hands out together with the news that a token has expired."""
    await fill(api, 3)
    selector = f"set={SET}"
    first = (await api.get(api.at("configmaps"), limit=1, labelSelector=selector)).ok()
    await api.made("configmaps", configmap("m0b", labels={"set": SET}))
    late = json.dumps({**opened(first["metadata"]["continue"]), "rv": -1}, separators=(",", ":"))
    token = base64.urlsafe_b64encode(late.encode()).rstrip(b"=").decode()
    rest = (await api.get(api.at("configmaps"), **{"continue": token, "labelSelector": selector})).ok()
    assert names(rest) == ["m0b", "m1", "m2"]
