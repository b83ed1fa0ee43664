"""What only real kubelets show."""

from tests.kind.installation import Stage


async def test_a_job_runs_in_a_real_container_on_a_worker(stage: Stage) -> None:
    await stage.create(stage.a_job("hello", "echo", "hello from a worker"))
    status = await stage.ended("hello")
    assert status["succeeded"] == 1
    shown = await stage.installation.multimirror("logs", "job/hello", "-n", stage.namespace)
    assert shown.out == "hello from a worker\n"
