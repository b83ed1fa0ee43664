"""The ground that the attacks stand on: with nobody attacking, a tenant's Job runs to its end."""

from tests.security.installation import DispatcherProcess, Installation, a_job


async def test_a_tenant_with_few_rights_gets_a_job_done(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue = await installation.queue("honest")
    tenant = await installation.tenant("honest")
    await tenant.create(a_job("report", queue, pods={}))
    await tenant.until_complete("report")
    assert dispatcher.alive
