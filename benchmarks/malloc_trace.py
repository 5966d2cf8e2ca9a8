"""Shows what ONNX Runtime allocates beside each weight while it loads a model (docs/adr/0023, "Small blocks").

    python benchmarks/malloc_trace.py MODEL [--smallest 65536]

A library that logs every call of malloc and free (`malloc_trace.c`, which needs a C compiler) is preloaded into a
process that makes a session. For each aligned block of at least the given size, the calls up to the next one are
printed as a script like those of `costmodel/memory/small_blocks.py`: a number of bytes that are allocated, "A" for that
block and "W" for others of such a size that are not aligned, "-3" for freeing what this script allocated fourth, "x32"
for freeing an older block of 32 bytes, and "xW" for an older large one. Equal scripts are counted. A new version of the
runtime may need other scripts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from model_sessions import PREPARED

SOURCE = Path(__file__).with_suffix(".c")
ENTRY = np.dtype([("call", "u8"), ("block", "u8"), ("size", "u8")])
CHILD = f"""{PREPARED}
import ctypes

trace = ctypes.CDLL(None)
trace.malloc_trace_mark()
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
trace.malloc_trace_mark()
trace.malloc_trace_write(sys.argv[2].encode())
"""


def main() -> None:
    """Traces the process and prints the scripts, the most frequent ones first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--smallest", type=int, default=65536, metavar="BYTES")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library, log = Path(folder) / "trace.so", Path(folder) / "log"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
        environment = os.environ | {"LD_PRELOAD": str(library)}
        subprocess.run([sys.executable, "-c", CHILD, options.model, log], check=True, env=environment)
        scripts = Counter(_scripts(np.fromfile(log, ENTRY), options.smallest))
    for script, number in scripts.most_common():
        print(f"{number} times: {script}\n")


def _scripts(entries: np.ndarray, smallest: int) -> list[str]:
    """Returns the script of each aligned block of at least `smallest` bytes, as far as the next one."""
    calls = [(chr(call), int(block), int(size)) for call, block, size in entries.tolist()]
    marks = [place for place, (call, _, _) in enumerate(calls) if call == "-"]
    if len(marks) != 2:
        sys.exit("the log was full before the session was made: raise MOST in malloc_trace.c")
    begin, end = marks
    sizes: dict[int, int] = {}
    scripts: list[list[str]] = []
    own: dict[int, int] = {}
    made = 0
    for place, (call, block, size) in enumerate(calls[:end]):
        if call == "a" and size >= smallest and place > begin:
            scripts.append([])
            own, made = {}, 0
        if call == "f":
            old = sizes.pop(block, 0)
            step = f"-{own.pop(block)}" if block in own else "xW" if old >= smallest else f"x{old}"
        else:
            sizes[block], own[block] = size, made
            made += 1
            step = str(size) if size < smallest else "A" if call == "a" else "W"
        if scripts:
            scripts[-1].append(step)
    return [" ".join(script) for script in scripts]


if __name__ == "__main__":
    main()
