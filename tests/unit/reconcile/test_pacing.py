"""How often what a worker says is written: figures that docs/security.md names."""

import heapq

import pytest

from multimirror.reconcile.pacing import JOB_BYTES, Pacer, job_bucket

SMALL = 2_000


def writes(seconds: float, size: int, *, jobs: int = 1, every: float = 0.001) -> int:
    """How many a worker gets through that tries all the time, with so many Jobs."""
    pacer, buckets, count = Pacer(), [job_bucket(0.0) for _ in range(jobs)], 0
    for step in range(int(seconds / every)):
        now = step * every
        for bucket in buckets:
            if pacer.wait(bucket, "w1", now) <= 0:
                pacer.pay(bucket, "w1", size, now)
                count += 1
    return count


def test_the_first_changes_of_a_job_are_written_at_once_and_then_one_a_second() -> None:
    pacer, bucket = Pacer(), job_bucket(0.0)
    for _ in range(10):
        assert pacer.wait(bucket, "w1", 0.0) == 0
        pacer.pay(bucket, "w1", SMALL, 0.0)
    assert 0 < pacer.wait(bucket, "w1", 0.0) <= 1.0
    assert writes(100, SMALL) <= 110


@pytest.mark.parametrize("size", [SMALL, 64 * 1024, 256 * 1024, 1024 * 1024])
def test_one_job_puts_no_more_than_64_kib_a_second_into_etcd(size: int) -> None:
    seconds = 200.0
    burst = 10 * JOB_BYTES + size
    assert writes(seconds, size) * size <= seconds * JOB_BYTES + burst


def test_one_worker_puts_no_more_than_2_mib_a_second_into_etcd() -> None:
    seconds, size = 5.0, 16 * 1024
    assert writes(seconds, size, jobs=800, every=0.02) * size <= (seconds + 4) * 2 * 1024 * 1024 + size


def test_an_honest_worker_is_not_held_up() -> None:
    """35 Jobs a second, each with five changes within a second, each of 3 KB."""
    pacer, held = Pacer(), 0
    for number in range(35 * 60):
        bucket, start = job_bucket(number / 35), number / 35
        for change in range(5):
            now = start + change * 0.2
            held += pacer.wait(bucket, "w1", now) > 0
            pacer.pay(bucket, "w1", 3_000, now)
    assert held == 0


def test_thousands_that_wait_for_one_worker_do_not_all_come_back_at_once() -> None:
    """All of a lost worker's 10,000 Jobs are to be taken from it."""
    pacer, heap, tries = Pacer(), [(0.0, number) for number in range(10_000)], 0
    buckets, taken, now = [job_bucket(0.0) for _ in heap], 0, 0.0
    while heap:
        now, number = heapq.heappop(heap)
        tries += 1
        wait = pacer.wait(buckets[number], "w1", now)
        if wait > 0:
            heapq.heappush(heap, (now + wait, number))
        else:
            pacer.pay(buckets[number], "w1", SMALL, now, writes=3)
            taken += 1
    assert taken == 10_000
    assert now < 1.25 * 10_000 * 3 / 500, "what there was to pay with was used"
    assert tries < 10_000 + 1_500 * now
