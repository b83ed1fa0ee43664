"""Tokens of workers are renewed in time, by whoever leads, and the ones before are revoked: on virtual time."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from multimirror.kube import Client, Connection, Resource
from multimirror.kube.resources import JOBS, SECRETS
from multimirror.workers import Heartbeat, TokenRenewal
from multimirror.workers.tokens import REVOKE_ANNOTATION, Slots, claims_of
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.fake_cluster import FakeCluster, a_secret, a_token
from tests.unit.workers.stage import ORIGIN, SYSTEM, Stage, a_copy, a_stage, clock

Json = dict[str, Any]
LIFE = 600.0
"""A short one: virtual time is not for nothing."""
SLOTS = Slots.of(ORIGIN, "east")
A, B = SLOTS.names
OURS = {"app.kubernetes.io/part-of": "multimirror"}


@dataclass
class Ground:
    """A worker with a token that ends, and somebody who looks after it."""

    stage: Stage
    cluster: FakeCluster
    client: Client
    first: str
    told: list[Any] = field(default_factory=list)

    @property
    def secret(self) -> Json:
        return self.stage.management.objects[SECRETS.path(), SYSTEM, "east"]

    @property
    def token(self) -> str:
        config = yaml.safe_load(base64.b64decode(self.secret["data"]["kubeconfig"]))
        return str(config["users"][0]["user"]["token"])

    @property
    def slots(self) -> list[str]:
        return [name for path, _, name in self.cluster.objects if path == SECRETS.path()]

    def renewal(self) -> TokenRenewal:
        stage = self.stage
        return TokenRenewal(
            self.client,
            stage.workers._secrets,
            stage.workers,
            stage.workers._options,
            changed=lambda: self.told.append(stage.worker("east").token),
            clock=clock,
        )

    async def settled(self) -> None:
        """Until another token is in use, and nothing is left of the first."""
        await self.stage.until(lambda: self.first in self.cluster.revoked, 2 * LIFE)
        await self.stage.until(lambda: REVOKE_ANNOTATION not in self.secret["metadata"].get("annotations", {}))


@asynccontextmanager
async def ground(*, labels: Json | None = None, token: str | None = None) -> AsyncIterator[Ground]:
    async with a_stage(heartbeat=Heartbeat(period=30.0)) as stage:
        cluster = await stage.add("east")
        cluster.clock = clock
        slot = await cluster.put(SECRETS, {"metadata": {"namespace": "multimirror-system", "name": A}})
        first = token or a_token(clock(), LIFE, A)
        cluster.tokens[first] = slot["metadata"]["uid"]
        kubeconfig = cluster.kubeconfig(first)
        await stage.management.put(SECRETS, a_secret("east", kubeconfig, namespace=SYSTEM, labels=labels or OURS))
        await cluster.put(JOBS, a_copy())
        await stage.until(lambda: (w := stage.workers.get("east")) is not None and w.uses(kubeconfig))
        await stage.connected("east")
        connection = Connection.strict(stage.management.kubeconfig(), name="management", plain_http=True)
        async with Client(connection) as client:
            yield Ground(stage, cluster, client, first)


@virtual_time
async def test_half_of_its_time_later_another_token_is_in_use_and_the_first_is_dead() -> None:
    async with ground() as it:
        session, began = it.stage.worker("east").session, clock()
        it.stage.tasks.start("tokens", it.renewal().run())
        await it.settled()

        assert LIFE / 2 <= clock() - began < LIFE / 2 + 120
        claims = claims_of(it.token)
        assert claims is not None
        assert (claims.secret, it.slots) == (B, [B])
        worker = it.stage.worker("east")
        assert worker.session is session, "its session went on"
        assert worker.state.connected
        assert it.cluster.server.seen[-1].headers["authorization"] != f"bearer {it.first}".lower()
        assert worker.token is not None
        assert worker.token.problem == ""


@virtual_time
async def test_it_goes_on_from_slot_to_slot() -> None:
    async with ground() as it:
        it.stage.tasks.start("tokens", it.renewal().run())
        await it.settled()
        second = it.token
        await it.stage.until(lambda: second in it.cluster.revoked, 2 * LIFE)
        claims = claims_of(it.token)
        assert claims is not None
        assert (claims.secret, it.slots) == (A, [A])
        assert it.stage.worker("east").state.connected


@virtual_time
async def test_what_cannot_be_renewed_says_so_long_before_its_end_and_is_tried_until_it_can() -> None:
    async with ground() as it:
        await it.cluster.deny("create", plural="serviceaccounts/token")
        it.stage.tasks.start("tokens", it.renewal().run())
        began = clock()

        def problem() -> str:
            token = it.stage.worker("east").token
            return token.problem if token is not None else ""

        await it.stage.until(lambda: problem() != "", LIFE)
        assert clock() - began < LIFE / 2 + 120
        assert "serviceaccounts/token" in problem()
        assert it.first not in it.cluster.revoked
        assert it.stage.worker("east").state.connected
        await it.cluster.grant()
        await it.settled()
        await it.stage.until(lambda: problem() == "")


@virtual_time
async def test_a_crash_after_the_new_token_was_stored_is_repaired_by_whoever_comes_next() -> None:
    async with ground() as it:
        await it.cluster.deny("delete", plural="secrets")
        renewing = asyncio.ensure_future(it.renewal().run())
        # The first step of a renewal deletes the other slot, which may not be done yet either.
        await it.stage.until(lambda: it.stage.worker("east").token is not None)
        await it.cluster.grant()
        await it.stage.until(lambda: it.token != it.first, LIFE)
        renewing.cancel()
        await asyncio.wait([renewing])
        if it.first not in it.cluster.revoked:
            assert it.secret["metadata"]["annotations"][REVOKE_ANNOTATION] == A
        it.stage.tasks.start("tokens", it.renewal().run())
        await it.settled()
        assert it.slots == [B]


@virtual_time
async def test_somebody_elses_secret_is_left_alone() -> None:
    async with ground(labels={"who": "operator"}) as it:
        it.stage.tasks.start("tokens", it.renewal().run())
        await asyncio.sleep(2 * LIFE)
        assert it.token == it.first
        assert it.slots == [A]
        token = it.stage.worker("east").token
        assert token is not None
        assert (token.renewable, token.expires is not None) == (False, True)


@virtual_time
async def test_a_kubeconfig_that_somebody_changes_meanwhile_is_not_overwritten() -> None:
    async with ground() as it:
        it.cluster.delays["POST"] = 5.0
        it.stage.tasks.start("tokens", it.renewal().run())
        await it.stage.until(lambda: it.slots == [A, B], LIFE)
        joined = a_token(clock(), LIFE, A, serial=99)
        secret = a_secret("east", it.cluster.kubeconfig(joined), namespace=SYSTEM, labels=OURS)
        await it.stage.management.put(SECRETS, secret)
        await asyncio.sleep(60)
        assert it.token == joined
        assert it.stage.worker("east").state.connected


@virtual_time
async def test_a_worker_that_gives_a_token_which_we_could_not_revoke_keeps_the_one_it_has() -> None:
    async with ground() as it:
        it.cluster.clock = lambda: clock() - 10 * LIFE  # of the past: it would be renewed without an end
        it.stage.tasks.start("tokens", it.renewal().run())
        await asyncio.sleep(LIFE / 2 + 600)
        given = [seen for seen in it.cluster.server.seen if seen.target.endswith("/token")]
        assert len(given) <= 12, "no more than one in a minute"


@pytest.mark.parametrize("answer", [{}, {"metadata": []}, {"metadata": {"uid": {}}}])
@virtual_time
async def test_a_worker_that_answers_nonsense_costs_its_own_token_and_nobody_elses(answer: Json) -> None:
    async with ground() as it:

        async def nonsense(resource: Resource, obj: Json) -> Json:
            return answer

        it.cluster.put = nonsense  # type: ignore[method-assign]
        it.stage.tasks.start("tokens", it.renewal().run())
        await it.stage.until(lambda: (t := it.stage.worker("east").token) is not None and t.problem != "", LIFE)
        await asyncio.sleep(200)
        tried = [seen for seen in it.cluster.server.seen if seen.method == "POST" and "/secrets" in seen.target]
        assert 2 <= len(tried) <= 6, "it is tried again, every minute"
        assert it.first not in it.cluster.revoked
