"""The command line: what it understands, and what it says about the rest."""

import pytest

from builtin_controller.flags import duration, parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("100ms", 0.1), ("1m30s", 90), ("2h", 7200), ("0.5", 0.5), ("0s", 0), ("1.5s", 1.5), ("10m0s", 600)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


def test_the_defaults_are_kubernetes_own_but_for_the_workers() -> None:
    options = parse([]).options
    assert options.workers == 16
    assert options.sync_batch_period == 1
    assert (options.pod_backoff_base, options.pod_backoff_max) == (10, 600)
    assert (options.max_uncounted_pods, options.max_pods_per_sync) == (500, 500)
    assert options.enabled("StaleControllerConsistencyJob")
    assert not options.enabled("WorkloadWithJob")


def test_everything_can_be_tuned() -> None:
    flags = parse(
        [
            *("--workers", "1", "--sync-batch-period", "100ms", "--pod-backoff-base", "2s", "--pod-backoff-max", "1m"),
            *("--max-uncounted-pods", "10", "--max-pods-per-sync", "20", "--kube-api-qps", "5000"),
            *("--kube-api-burst", "6000", "--controller-name", "example.com/x", "--leader-elect"),
            *("--feature-gates", "GenericWorkload=true,WorkloadWithJob=true", "--metrics-bind-address", "[::1]:9"),
        ]
    )
    options = flags.options
    assert (options.workers, options.sync_batch_period, options.pod_backoff_base) == (1, 0.1, 2)
    assert (options.pod_backoff_max, options.max_uncounted_pods, options.max_pods_per_sync) == (60, 10, 20)
    assert (flags.qps, flags.burst, flags.leader_elect) == (5000, 6000, True)
    assert (flags.metrics_host, flags.metrics_port) == ("::1", 9)
    assert options.enabled("WorkloadWithJob")


def test_gates_of_other_components_are_taken_and_named() -> None:
    flags = parse(["--feature-gates", "SomethingElse=true,JobManagedBy=true"])
    assert flags.unknown_gates == ["SomethingElse"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "workers: 0 is too small; it must be at least 1"),
        (["--pod-backoff-base", "soon"], "'soon' is no duration; write 100ms, 1.5s or 2m30s"),
        (["--feature-gates", "JobManagedBy=false"], "JobManagedBy cannot be switched off"),
        (["--feature-gates", "WorkloadWithJob=true"], "WorkloadWithJob needs GenericWorkload; switch both on"),
        (["--feature-gates", "WorkloadWithJob"], "write WorkloadWithJob=true"),
        (["--metrics-bind-address", "here"], "'here' is no address; write 127.0.0.1:8080"),
        (["--leader-elect-renew-deadline", "1m"], "--leader-elect-renew-deadline"),
        (["--leader-elect=perhaps"], "'perhaps' is neither true nor false"),
    ],
)
def test_bad_flags_are_refused_with_a_remedy(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
