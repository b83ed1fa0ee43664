"""A tenant that wants more than its queue's quota: what its copies have is what is counted, whatever it does."""

import contextlib
from collections.abc import Callable

from multimirror.api import RESERVED_ANNOTATION, WAITS_FOR_ANNOTATION
from multimirror.kinds.job.sizes import pods_of
from multimirror.kinds.pod_sets import nanos, pod_requests
from multimirror.kinds.reserved import reserved_of
from multimirror.kube import ApiError
from multimirror.kube.resources import EVENTS, JOBS
from tests.e2e.dispatching import condition
from tests.e2e.installation.processes import Json
from tests.security.installation import DispatcherProcess, Installation, Tenant, a_job
from tests.security.test_fairness import why_it_waits
from tests.waiting import eventually

QUOTA = {"quota": {"resources": {"cpu": "4"}}}


async def cpus_of_copies(installation: Installation, tenant: Tenant) -> float:
    """All that the copies of a tenant may use now."""
    found = [copy for copies in (await installation.copies(tenant.namespace)).values() for copy in copies]
    total: int = sum(
        max(0 if copy["spec"].get("suspend") else pods_of(copy["spec"]), copy["status"].get("active", 0))
        * pod_requests(copy["spec"]["template"]["spec"]).get("cpu", 0)
        for copy in found
    )
    return total / nanos(1)


async def told(installation: Installation, tenant: Tenant, reason: str) -> str:
    """What the tenant hears for this reason."""

    async def find() -> str | None:
        events = (await installation.admin.list(EVENTS, tenant.namespace)).items
        words = (
            event["message"]
            for event in events
            if (event["metadata"].get("annotations") or {}).get(WAITS_FOR_ANNOTATION) == reason
        )
        return next(words, None)

    return await eventually(find) or ""


def running(pods: int) -> Callable[[Json], bool]:
    return lambda job: job.get("status", {}).get("active") == pods


async def test_a_template_made_cheap_while_suspended_buys_nothing(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    """Three Jobs, one after the other: create 3900m, get placed, suspend, set 1m, resume."""
    queue, tenant = await installation.queue("cheap", **QUOTA), await installation.tenant("cheap")
    names = ["first", "second", "third"]
    for name in names:
        await tenant.create(a_job(name, queue, requests={"cpu": "3900m"}))
    await tenant.until("first", running(1))
    await tenant.patch("first", spec={"suspend": True})
    await tenant.until("first", lambda job: condition(job, "Suspended") and not job["status"].get("active"))
    with contextlib.suppress(ApiError):  # a policy may refuse it
        await tenant.patch("first", spec={"template": {"spec": {"containers": [cheap(await tenant.job("first"))]}}})
    await tenant.patch("first", spec={"suspend": False})
    await tenant.until("first", running(1))
    # Where the change was taken the Job runs as another attempt, from what was counted anew.
    assert await cpus_of_copies(installation, tenant) <= 4
    counted = [reserved_of(await tenant.job(name)) for name in names]
    given = sum(each.requests["cpu"] for each in counted if each is not None) / nanos(1)
    assert await cpus_of_copies(installation, tenant) <= given <= 4
    assert dispatcher.alive


def cheap(job: Json) -> Json:
    container: Json = dict(job["spec"]["template"]["spec"]["containers"][0])
    return container | {"resources": {"requests": {"cpu": "1m"}}}


async def test_a_thousand_pods_after_none_wait_in_words(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue, tenant = await installation.queue("grow", **QUOTA), await installation.tenant("grow")
    await tenant.create(a_job("sleeper", queue, requests={"cpu": "1"}, parallelism=0, completions=1000))
    await tenant.until("sleeper", lambda job: RESERVED_ANNOTATION in job["metadata"].get("annotations", {}))
    await installation.copy_of(await tenant.job("sleeper"))
    await tenant.patch("sleeper", spec={"parallelism": 1000})
    words = await told(installation, tenant, "GrowthNeverFits")
    assert "more than the whole quota" in words
    assert await cpus_of_copies(installation, tenant) == 0
    await tenant.patch("sleeper", spec={"parallelism": 3})
    await tenant.until("sleeper", running(3))
    assert await cpus_of_copies(installation, tenant) == 3
    assert dispatcher.alive


async def test_growth_waits_for_room_and_then_comes(installation: Installation, dispatcher: DispatcherProcess) -> None:
    queue, tenant = await installation.queue("room", **QUOTA), await installation.tenant("room")
    await tenant.create(a_job("other", queue, requests={"cpu": "3"}))
    await tenant.until("other", running(1))
    await tenant.create(a_job("grows", queue, requests={"cpu": "1"}, parallelism=1, completions=9))
    await tenant.until("grows", running(1))
    await tenant.patch("grows", spec={"parallelism": 4})
    assert "0 cpu left of its quota, it asks for 3" in await told(installation, tenant, "GrowthWaits")
    assert await cpus_of_copies(installation, tenant) == 4
    _, out, _ = await installation.command("explain", "job/grows", "-n", tenant.namespace)
    assert "waits to grow to 4" in " ".join(out.split())
    await tenant.client.delete(JOBS, "other", tenant.namespace, propagation="Background")
    await tenant.until("grows", running(4))
    assert await cpus_of_copies(installation, tenant) == 4
    await tenant.patch("grows", spec={"parallelism": 1})
    await tenant.create(a_job("next", queue, requests={"cpu": "3"}))
    await tenant.until("next", running(1))
    assert dispatcher.alive


async def test_limits_of_a_whole_pod_are_counted(installation: Installation, dispatcher: DispatcherProcess) -> None:
    """The worker's API server makes requests of them when it creates the pods."""
    queue, tenant = await installation.queue("limits", **QUOTA), await installation.tenant("limits")
    job = a_job("limited", queue)
    job["spec"]["template"]["spec"]["resources"] = {"limits": {"cpu": "100"}}
    await tenant.create(job)
    assert "it asks for 100 cpu, more than the whole quota" in await why_it_waits(installation, tenant, "limited")
    job = a_job("fits", queue)
    job["spec"]["template"]["spec"]["resources"] = {"limits": {"cpu": "3"}}
    await tenant.create(job)
    await tenant.until("fits", running(1))
    counted = reserved_of(await tenant.job("fits"))
    assert counted is not None
    assert counted.requests["cpu"] == nanos(3)
    assert dispatcher.alive


async def test_a_copy_is_seen_however_many_labels_it_has(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    """One that is not seen would run on when its Job is gone, and count nowhere."""
    queue, tenant = await installation.queue("labels", quota={"jobs": 1}), await installation.tenant("labels")
    job = a_job("labelled", queue)
    job["metadata"]["labels"] |= {f"label-{number}": "" for number in range(1100)}
    job["metadata"]["labels"] |= {f"multimirror.dev/a-{number}": "" for number in range(40)}
    await tenant.create(job)
    await tenant.until("labelled", running(1))
    worker, _ = await installation.copy_of(await tenant.job("labelled"))
    neighbour = await installation.tenant_of_worker(worker, tenant.namespace)
    labels = {f"multimirror.dev/b-{number}": "" for number in range(40)}
    await neighbour.patch("labelled", metadata={"labels": labels})
    await tenant.client.delete(JOBS, "labelled", tenant.namespace, propagation="Background")

    async def there() -> list[Json]:
        return [copy for copies in (await installation.copies(tenant.namespace)).values() for copy in copies]

    await eventually(there, lambda copies: not copies)
    assert dispatcher.alive
