"""Soak-tests the service: ten minutes near its maximum load, with faults and attacks injected.

    python benchmarks/service_soak.py amd-epyc-zen5-2c-ort1.31-1t [--minutes 10] [--share 0.7]

Runs on a copy of the home folder, with two workers and tokens for two tenants. Meanwhile the champion is exchanged
every few seconds for one with different answers; engines, readers and workers are killed repeatedly; one request in a
hundred sends a hostile file; and the second tenant runs the attacks of `attacks.py` one after the other. Checks that

* no two answers to the same request by the same regressor differ in any digit;
* no observation is lost or stored twice: each that was answered with 201 is in the store once;
* only hostile files give errors; a request that gets 503 because an engine was killed, or whose connection ends because
  a worker was killed, is repeated, as by `costmodel.client`, and then answered;
* memory is flat: that of all processes of the service together, from the second minute to the last.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

import psutil
from attacks import ATTACKS
from service_load import FILE, copied_home, exchange, posted, request_bytes, service, throughput

from costmodel.paths import Home
from costmodel.serving.http.tokens import add_token
from costmodel.serving.observations.observations import Observations
from costmodel.training.artefact import champion_of, load_bundle, promote, save_bundle
from costmodel.training.corpus import corpus_models

CONNECTIONS = 32
EXCHANGE_S, READER_KILL_S, ENGINE_KILL_S, WORKER_KILL_S, ATTACK_S = 5.0, 7.0, 13.0, 60.0, 10.0
AGAIN_S = 0.5
HOSTILE = (
    b"", b"\x00" * 100, b"\x08\x09" + b"\x3a\xff\xff\xff\xff\x0f" + b"x" * 50,
    b"\x08\x09\x3a\x50" + b"\x0a\x4e" * 40, os.urandom(4096),
)  # fmt: skip


@dataclass
class Seen:
    """The results of the soak test."""

    statuses: Counter[str] = field(default_factory=Counter)
    answers: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    observed: int = 0
    cut_off: int = 0
    told_to_wait: int = 0
    attacks: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory_mb: list[tuple[float, float]] = field(default_factory=list)


def exchange_champions(home: Home, system: str) -> list[str]:
    """Stores two versions of the champion whose answers differ, and promotes the first; returns the versions."""
    path = champion_of(home.bundles, system)
    assert path is not None
    bundle = load_bundle(path)
    calibration = replace(bundle.calibration, by_distance=tuple(2 * w for w in bundle.calibration.by_distance))
    for version, of in (("soak-a", bundle.calibration), ("soak-b", calibration)):
        save_bundle(home.bundles, replace(bundle, version=version, calibration=of))
    promote(home.bundles, system, "soak-a")
    return ["soak-a", "soak-b"]


async def ask(host: str, port: int, seen: Seen, due: "asyncio.Queue[tuple[str, bytes]]") -> None:
    """Sends the requests of a queue on one connection, repeats those that get no answer, and records the results."""
    stream = None
    while True:
        kind, request = await due.get()
        for _ in range(20):
            try:
                stream = stream or await asyncio.open_connection(host, port, limit=1 << 24)
                status, body = await exchange(*stream, request)
                if status != 503:
                    break
                seen.told_to_wait += 1
                await asyncio.sleep(AGAIN_S)
            except (OSError, asyncio.IncompleteReadError):
                # The worker was killed before it answered: the request is repeated.
                if stream is not None:
                    stream[1].close()
                stream = None
                seen.cut_off += 1
                await asyncio.sleep(0.05)
        else:
            seen.statuses[f"{kind} not answered"] += 1
            continue
        seen.statuses[f"{kind} {status}"] += 1
        if status == 200 and kind.startswith("model"):
            document = json.loads(body)
            answer = json.dumps([document["latency_us"], document["interval_us"], document["coverage"]])
            seen.answers.setdefault((kind, document["predictor"]["version"]), set()).add(answer)
        elif status == 201:
            seen.observed += 1


async def trouble(home: Home, system: str, versions: list[str], seen: Seen, until: float) -> None:
    """Exchanges champions, kills engines, readers and workers, and records the memory of the service."""
    start = time.perf_counter()
    rounds = 0
    chance = random.Random(0)
    service_process = next(p for p in psutil.Process().children() if "serve" in p.cmdline())
    killed = {"reader": 0, "engine": 0, "worker": 0}
    while time.perf_counter() < until:
        await asyncio.sleep(1.0)
        rounds += 1
        passed = time.perf_counter() - start
        if service_process.status() == psutil.STATUS_ZOMBIE:
            seen.wrong.append("the service ended")
            break
        if rounds % EXCHANGE_S == 0:
            promote(home.bundles, system, versions[int(rounds // EXCHANGE_S) % 2])
        family = service_process.children(recursive=True)
        readers = [p for p in family if any("isolation.reader" in part for part in _command(p))]
        engines = [p for p in family if any("engine.program" in part for part in _command(p))]
        workers = [p for p in service_process.children() if "spawn_main" in " ".join(_command(p))]
        if rounds % READER_KILL_S == 0 and readers:
            _kill(chance.choice(readers))
            killed["reader"] += 1
        if rounds % ENGINE_KILL_S == 0 and engines:
            _kill(chance.choice(engines))
            killed["engine"] += 1
        if rounds % WORKER_KILL_S == 0 and workers:
            _kill(chance.choice(workers))
            killed["worker"] += 1
        seen.memory_mb.append((passed, sum(_pss(p) for p in [service_process, *family]) / 1e6))
    print(
        f"killed {killed['reader']} readers, {killed['engine']} engines and {killed['worker']} workers; champions "
        f"exchanged every {EXCHANGE_S:g} s"
    )


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.Error):
        process.send_signal(signal.SIGKILL)


def _pss(process: psutil.Process) -> int:
    """Proportional set size of a process in bytes; 0 if it has ended."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


async def attack(host: str, port: int, token: str, seen: Seen) -> None:
    """Runs one attack after the other as the second tenant, until cancelled."""
    program = Path(__file__).with_name("attacks.py")
    for name in cycle(ATTACKS):
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), host, str(port), token, name, str(ATTACK_S), stdout=asyncio.subprocess.PIPE
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        found = json.loads(output)
        seen.attacks.update({f"{status}": count for status, count in found.items()})
        wrong = found.keys() - {*ATTACKS[name].expected, "closed"}
        seen.wrong += [f"{name}: {status}" for status in wrong]


async def soak(
    host: str, port: int, home: Home, system: str, minutes: float, share: float, seen: Seen, tokens: dict[str, str]
) -> None:
    """Sends requests of all kinds at a steady rate."""
    models = {model.name: model.path.read_bytes() for model in corpus_models("light")}
    kinds, digests, mine = [], {}, tokens["tenant"]
    for name, content in models.items():
        sent, _ = await asyncio.to_thread(posted, host, port, f"/v1/predict?system={system}", content, FILE, mine)
        digests[name] = sent["digest"]
        question = {"model": sent["digest"], "system": system, "measured": False}
        kinds.append((f"model {name}", request_bytes("/v1/predict", json.dumps(question).encode(), token=mine)))
    most = await throughput(host, port, kinds[0][1], 16, 5.0)
    rate = share * most
    print(f"at most {most:,.0f} cached requests/s; asking {rate:,.0f} a second for {minutes:g} minutes", flush=True)
    versions = exchange_champions(home, system)
    chance = random.Random(1)
    due: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(maxsize=4 * CONNECTIONS)
    asking = [asyncio.create_task(ask(host, port, seen, due)) for _ in range(CONNECTIONS)]
    start = time.perf_counter()
    until = start + 60 * minutes
    troubling = asyncio.create_task(trouble(home, system, versions, seen, until))
    attacking = asyncio.create_task(attack(host, port, tokens["attacker"], seen))
    number = 0
    while time.perf_counter() < until:
        wait = start + number / rate - time.perf_counter()
        if wait > 0.002:
            await asyncio.sleep(wait)
        number += 1
        drawn = chance.random()
        if drawn < 0.01:
            content = chance.choice(HOSTILE)
            await due.put(("hostile", request_bytes(f"/v1/predict?system={system}", content, FILE, mine)))
        elif drawn < 0.015:
            observation = {"model": digests["light_vgg19"], "system": system, "latency_us": 1e5, "name": "soak"}
            body = json.dumps(observation).encode()
            request = request_bytes("/v1/observations", body, token=mine, key=f"soak-{number}")
            await due.put(("observation", request))
        elif drawn < 0.017:
            name = chance.choice(list(models))
            query = f"/v1/predict?system={system}&measured=false&name={name}"
            await due.put((f"model {name}", request_bytes(query, models[name], FILE, mine)))
        else:
            await due.put(chance.choice(kinds))
    while not due.empty():
        await asyncio.sleep(0.05)
    await asyncio.sleep(2.0)
    await troubling
    for task in (*asking, attacking):
        task.cancel()
    await asyncio.gather(*asking, attacking, return_exceptions=True)
    print(f"{number:,} requests in {time.perf_counter() - start:.0f} s")


def main() -> None:
    """Prints the results; exits with 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--share", type=float, default=0.7, help="rate of requests as a share of the maximum")
    given = parser.parse_args()
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        home = copied_home(Path(folder))
        os.environ["COSTMODEL_HOME"] = str(home.root)
        file = home.root / "tokens.txt"
        tokens = {name: add_token(file, name) for name in ("tenant", "attacker")}
        with service(tokens=file) as (host, port):
            asyncio.run(soak(host, port, home, given.system, given.minutes, given.share, seen, tokens))
        stored = Observations(home.store_url).count(given.system)
    mixed = {key: len(answers) for key, answers in seen.answers.items() if len(answers) > 1}
    unexpected = {
        kind: count for kind, count in seen.statuses.items()
        if not (kind.endswith((" 200", " 201")) or (kind.startswith("hostile") and kind.endswith(" 422")))
    }  # fmt: skip
    steady = [mb for passed, mb in seen.memory_mb if passed > min(120.0, 30 * given.minutes)]
    half = len(steady) // 2
    early, late = (max(1.0, sorted(part)[len(part) // 2]) for part in (steady[:half], steady[half:]))
    totals: Counter[str] = Counter()
    for kind, count in seen.statuses.items():
        totals[kind.split()[0] + kind[-4:]] += count
    for kind, total in sorted(totals.items()):
        print(f"  {kind:<20} {total:>9,}")
    print(f"answers by versions {sorted({version for _, version in seen.answers})}; differing: {mixed or 'none'}")
    print(f"observations: {seen.observed} answered with 201, {stored} in the store")
    print(f"attacks: {dict(seen.attacks)}; wrong: {seen.wrong or 'none'}")
    print(f"unexpected: {unexpected or 'none'}; repeated: {seen.cut_off} cut off, {seen.told_to_wait} after a 503")
    print(f"memory: median {early:,.0f} MB in the first half, {late:,.0f} MB in the second ({late / early - 1:+.1%})")
    # An observation that was sent again because its answer was cut off is stored once, by its idempotency key.
    lost = seen.observed != stored
    sys.exit(1 if mixed or unexpected or seen.wrong or lost or late > 1.1 * early else 0)


if __name__ == "__main__":
    main()
