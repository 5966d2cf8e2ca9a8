"""Ten thousand mutated ONNX files against a service: no crash, no hang, no status of 500 or more.

    python benchmarks/service_fuzz.py SYSTEM [--files 10000]

Each is one of the light models, or of the folder that --also gives, with bytes flipped, cut, repeated, or numbers in it
replaced by extreme ones. `schemathesis run URL/openapi.json --checks all` tries the rest of the interface.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from service_load import FILE, exchange, request_bytes, service

from costmodel.training.corpus import corpus_models

EXTREMES = (b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01", b"\x00", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08")
LONGEST_S = 40.0


def mutated(content: bytes, chance: random.Random) -> bytes:
    """A file that differs in one to eight places."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(max(1, len(data)))
        kind = chance.random()
        if kind < 0.5:
            data[place] ^= 1 << chance.randrange(8)
        elif kind < 0.6:
            data[place] = chance.randrange(256)
        elif kind < 0.7:
            del data[place : place + chance.randint(1, 64)]
        elif kind < 0.8:
            end = place + chance.randint(1, 256)
            data[place:place] = data[place:end]
        elif kind < 0.9:
            data[place : place + 1] = chance.choice(EXTREMES)
        else:
            other = chance.randrange(max(1, len(data)))
            data[place : place + 32] = data[other : other + 32]
        if not data:
            data = bytearray(b"\x00")
    return bytes(data)


async def fuzz(host: str, port: int, system: str, files: int, seeds: list[bytes]) -> int:
    """Send them on a few connections; gives how many answers must not be."""
    statuses: Counter[int] = Counter()
    sentences: Counter[str] = Counter()
    slowest = 0.0
    bad = 0
    numbers = iter(range(files))

    async def keep_asking() -> None:
        nonlocal slowest, bad
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
        for number in numbers:
            chance = random.Random(number)
            content = mutated(chance.choice(seeds), chance)
            start = time.perf_counter()
            asked = request_bytes(f"/v1/predict?system={system}&name=fuzz", content, FILE)
            try:
                status, body = await asyncio.wait_for(exchange(reader, writer, asked), LONGEST_S)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                print(f"file {number}: {type(error).__name__}", flush=True)
                bad += 1
                reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
                continue
            slowest = max(slowest, time.perf_counter() - start)
            statuses[status] += 1
            if status >= 400:
                detail = json.loads(body)["detail"]
                sentences[detail.partition("(")[0][:60]] += 1
                if status >= 500 or "Traceback" in detail or "/tmp" in detail:
                    print(f"file {number}: {status} {detail}", flush=True)
                    bad += 1
            if number % 1000 == 999:
                print(f"{number + 1} files, {dict(statuses)}, slowest {slowest:.1f} s", flush=True)

    await asyncio.gather(*(keep_asking() for _ in range(3)))
    print(f"{sum(statuses.values())} answered: {dict(statuses)}; slowest {slowest:.1f} s; {bad} that must not be")
    for sentence, count in sentences.most_common(12):
        print(f"  {count:6d}  {sentence}")
    return bad


def main() -> None:
    """Exit with 1 if an answer must not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--also", type=Path, help="folder of more files to begin with")
    given = parser.parse_args()
    seeds = [model.path.read_bytes() for model in corpus_models("light")]
    if given.also:
        seeds += [path.read_bytes() for path in sorted(given.also.rglob("*.onnx")) if path.stat().st_size < 1 << 16]
    with service(1) as (host, port):
        sys.exit(1 if asyncio.run(fuzz(host, port, given.system, given.files, seeds)) else 0)


if __name__ == "__main__":
    main()
