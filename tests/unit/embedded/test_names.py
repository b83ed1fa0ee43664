"""Names that the server makes up."""

import itertools

import pytest

from clusters.embedded import ApiServer, writing

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_generated_name_that_is_taken_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = itertools.chain("aab", itertools.repeat("c"))
    monkeypatch.setattr(writing, "generate_name", lambda base: base + next(letters))
    server = ApiServer("token", b"key")
    await server.start()
    try:
        made = [await server.call("POST", CONFIGMAPS, {"metadata": {"generateName": "x-"}}) for _ in range(3)]
    finally:
        await server.stop()
    assert [each["metadata"]["name"] for each in made] == ["x-a", "x-b", "x-c"]
