"""Runs every comparison with PyTorch on a GPU, one process after another, and prints their tables. Each script says what
it measures and how. Ours and PyTorch's alternate or follow one another within each.

Usage: torch_gpu.py [--device cuda:0] [PART ..]
"""

import argparse
import os
import subprocess
import sys

# Each is a script beside this one, which takes the device.
PARTS = ["products", "attention", "convolutions", "recurrent", "gpt2", "resnet", "workloads"]

parser = argparse.ArgumentParser()
parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to run: {', '.join(PARTS)} (default: all)")
parser.add_argument("--device", default="cuda:0")
arguments = parser.parse_args()
if unknown := set(arguments.parts) - set(PARTS):
    parser.error(f"no such part: {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")

failed = []
for part in arguments.parts or PARTS:
    print(f"\n## {part}\n", flush=True)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{part}.py")
    if subprocess.run([sys.executable, script, arguments.device]).returncode != 0:
        failed.append(part)
if failed:
    sys.exit(f"failed: {', '.join(failed)}")
