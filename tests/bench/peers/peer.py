"""python3-circuitbreaker (Debian): nanoseconds of a call.  peer.py ROUNDS"""
import sys
import time

from circuitbreaker import CircuitBreaker, CircuitBreakerError

N = 20000


def good():
    return 1


def bad():
    raise ValueError("no")


def ns_of(call):
    start = time.perf_counter_ns()
    for _ in range(N):
        try:
            call()
        except (CircuitBreakerError, ValueError):
            pass
    return (time.perf_counter_ns() - start) / N


def main():
    closed = CircuitBreaker(failure_threshold=10, recovery_timeout=3600)
    opened = CircuitBreaker(failure_threshold=1, recovery_timeout=3600)
    try:
        opened.call(bad)
    except ValueError:
        pass
    paths = {
        "python3-circuitbreaker: closed": lambda: closed.call(good),
        "python3-circuitbreaker: refused": lambda: opened.call(good),
    }
    found = {name: [] for name in paths}
    for _ in range(int(sys.argv[1])):
        for name, call in paths.items():
            found[name].append(ns_of(call))
    for name, ns in found.items():
        print(name + "\t" + " ".join(f"{x:.1f}" for x in ns))


main()
