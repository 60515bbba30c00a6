"""A real server over a run, by HTTP: its speed beside `predict`, latency, overload, clients that go, odd requests.

    python benchmarks/serving.py RUN LINES [--seconds 180] [--cases 10000]

Server and clients are processes of their own. Ratios within a call can be compared on a busy machine; seconds cannot.
"""

import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil

LOCAL = threading.local()
ALLOWED = {200, 429, 503}


def post(port: int, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and content of an answer, over a connection that each thread keeps."""
    for _ in range(2):
        try:
            if getattr(LOCAL, "port", None) != port:
                LOCAL.connection, LOCAL.port = HTTPConnection("127.0.0.1", port, timeout=120), port
            LOCAL.connection.request("POST", "/v1/predict", json.dumps(body), {"content-type": "application/json"})
            response = LOCAL.connection.getresponse()
            return response.status, json.loads(response.read())
        except OSError:  # a connection that was kept too long
            LOCAL.port = None
    return 0, None


class Load:
    """Requests of one line each, and what became of them."""

    def __init__(self, port: int, model: str, lines: list[str], expected: list[str]) -> None:
        self.port, self.model, self.lines, self.expected = port, model, lines, expected
        self.statuses, self.latencies, self.wrong = Counter[int](), list[float](), 0

    def one(self, number: int, due: float) -> None:
        """Ask for a line; its latency counts from when it was due."""
        row = number % len(self.lines)
        status, content = post(self.port, {"model": self.model, "inputs": self.lines[row]})
        self.statuses[status] += 1
        if status == 200:
            self.latencies.append(time.monotonic() - due)
            self.wrong += content["outputs"][0]["text"] != self.expected[row]

    def closed(self, clients: int, count: int) -> float:
        """Requests a second of so many clients, each of which asks again once it has its answer."""
        begun = time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(lambda number: self.one(number, time.monotonic()), range(count)))
        return count / (time.monotonic() - begun)

    def open(self, rate: float, seconds: float, clients: int = 400) -> None:
        """Requests at random times, so many a second on average, whether or not those before are answered."""
        draw, due, number = random.Random(1), time.monotonic(), 0
        end = due + seconds
        with ThreadPoolExecutor(clients) as pool:
            while due < end:
                time.sleep(max(0.0, due - time.monotonic()))
                pool.submit(self.one, number, due)
                due, number = due + draw.expovariate(rate), number + 1

    def told(self) -> str:
        """Statuses, latencies and wrong outputs, in words."""
        cuts = statistics.quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [0.0] * 99
        times = ", ".join(f"p{share} {1000 * cuts[share - 1]:.0f} ms" for share in (50, 95, 99))
        return f"{dict(self.statuses)}, {times}, {self.wrong} other outputs than predict's"


def main() -> None:
    """Measure, and exit with 1 where the server broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--seconds", type=float, default=180, help="of four times the capacity")
    parser.add_argument("--cases", type=int, default=10_000, help="of schemathesis, for each kind of request")
    given = parser.parse_args()
    lines = [line for line in given.lines.read_text("utf-8").splitlines() if line.strip()][:2000]
    predict = (
        "import headway, json, sys, time; p = headway.load(sys.argv[1]); lines = json.load(sys.stdin)\n"
        "p.predict(lines[:50]); t, c = time.monotonic(), time.process_time()\n"
        "out = [o.text for o in p.predict(lines)]; c = (time.process_time() - c) / len(lines)\n"
        "print(json.dumps([out, len(lines) / (time.monotonic() - t), c]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", predict, given.run], input=json.dumps(lines), capture_output=True, text=True, check=True
    )
    expected, speed, seconds = json.loads(done.stdout)
    print(f"predict: {speed:.1f} sentences/s, {1000 * seconds:.2f} ms of processor time each")
    command = [sys.executable, "-m", "headway", "serve", str(given.run), "--port", "0", "--concurrent", "10000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        threading.Thread(target=server.stderr.read, daemon=True).start()  # the log
        port = int(first.rstrip().rpartition(":")[2])
        model = re.search(r"serving (\S+) \(", first)[1]  # type: ignore[index]
        broken = measured(given, server, port, Load(port, model, lines, expected), speed)
        server.terminate()
        code = server.wait(60)
    print(f"exit after SIGTERM: {code}")
    sys.exit(int(broken or code != 0))


def measured(given: argparse.Namespace, server: Any, port: int, load: Load, speed: float) -> bool:
    """Whether a promise was broken."""

    def again() -> Load:
        return Load(port, load.model, load.lines, load.expected)

    while post(port, {"model": load.model, "inputs": load.lines[:10]})[0] != 200:
        time.sleep(0.2)
    process, broken = psutil.Process(server.pid), False
    count = max(200, min(len(load.lines), int(20 * speed)))
    used = sum(process.cpu_times()[:2])
    capacity = load.closed(100, count)
    used = 1000 * (sum(process.cpu_times()[:2]) - used) / count
    print(
        f"100 clients: {capacity:.1f} sentences/s, {capacity / speed:.0%} of predict, {used:.2f} ms each; {load.told()}"
    )
    half = again()
    half.open(capacity / 2, min(30.0, given.seconds))
    print(f"half load: {half.told()}")
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    for each in sockets:
        each.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
    slow = again()
    slow.open(capacity / 2, min(15.0, given.seconds))
    for each in sockets:
        each.close()
    print(f"half load beside 50 clients that send nothing more: {slow.told()}")
    memory, over, stop = list[float](), again(), threading.Event()

    def watch() -> None:
        while not stop.wait(1):
            memory.append(process.memory_info().rss / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    over.open(4 * capacity, given.seconds)
    stop.set()
    watcher.join()
    third = max(1, len(memory) // 3)
    before, after = (statistics.median(some) for some in (memory[third : 2 * third] or memory, memory[-third:]))
    print(f"four times the capacity for {given.seconds:g} s: {over.told()}; memory {before:.0f} then {after:.0f} MiB")
    broken |= bool(set(over.statuses) - ALLOWED) or after > 1.1 * before
    lines = json.dumps({"model": load.model, "inputs": load.lines[:100]})
    client = (
        "import sys, http.client as h\n"
        "for _ in range(20):\n    c = h.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
        "    c.request('POST', '/v1/predict', sys.argv[2], {'content-type': 'application/json'})\n"
        "    globals()[f'c{_}'] = c\n"
        "print(flush=True); c.getresponse()"
    )
    with subprocess.Popen([sys.executable, "-c", client, str(port), lines], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.kill()
    begun = time.monotonic()
    status, _ = post(port, {"model": load.model, "inputs": load.lines[0]})
    print(f"after kill -9 of a client with 20 requests of 100 lines: {status} in {time.monotonic() - begun:.2f} s")
    broken |= status != 200
    found = odd_requests(port, given.cases)
    print(f"schemathesis, {given.cases} cases for each kind of request: {dict(found)}")
    return broken or any(status >= 500 and status != 503 for status in found)


def odd_requests(port: int, cases: int) -> Counter[int]:
    """The statuses of made requests, both such as the schema allows and such as it does not."""
    import hypothesis
    import schemathesis

    statuses = Counter[int]()
    url = f"http://127.0.0.1:{port}"
    for operation in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        for mode in schemathesis.GenerationMode:

            @hypothesis.given(case=operation.ok().as_strategy(generation_mode=mode))
            @hypothesis.settings(
                max_examples=cases, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
            )
            def every(case: Any) -> None:
                statuses[case.call(base_url=url).status_code] += 1

            try:
                every()
            except Exception as error:  # a kind of request that has no wrong form
                print(f"{operation.ok().label} {mode}: {type(error).__name__}: {str(error)[:100]}")
    return statuses


if __name__ == "__main__":
    main()
