"""The scripts of examples/ that train run with small sizes, learn, and draw their curves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / script), "--device", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=os.environ, timeout=240)


def test_gpt2_learns_a_text(tmp_path: Path) -> None:
    text, curve = tmp_path / "text", tmp_path / "curve.png"
    text.write_text("the cat sat on the mat. " * 40)
    sizes = "--steps 60 --batch 4 --length 32 --layers 1 --width 32 --heads 2 --every 30 --sample 12 --prompt the".split()
    result = run("gpt2_train.py", "--text", str(text), "--curve", str(curve), "--learning-rate", "0.01", *sizes)
    assert result.returncode == 0, result.stderr
    first, last = (float(loss) for loss in re.findall(r"loss (\d+\.\d+)", result.stderr))
    assert last < 0.75 * first < 4, result.stderr
    assert "tokens/s" in result.stderr and curve.read_bytes().startswith(b"\x89PNG")
    assert result.stdout.startswith("the") and len(result.stdout) == len("the") + 12 + 1


def test_gpt2_refuses_a_text_that_is_too_short(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("short")
    result = run("gpt2_train.py", "--text", str(text))
    assert result.returncode == 1 and "5 bytes" in result.stderr and "Traceback" not in result.stderr


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for script, arguments, words in [
        ("gpt2_train.py", "--heads 3", "--heads 3"),
        ("gpt2_train.py", "--batch 0", "at least 1, got 0"),
        ("gpt2_train.py", "--prompt=", "--prompt"),
        ("resnet_cifar.py", "--synthetic 20 --batch 0", "at least 1, got 0"),
        ("resnet_cifar.py", "--synthetic 20 --curve nowhere/curve.png", "--curve"),
        ("resnet_cifar.py", "", "--synthetic"),
    ]:
        result = run(script, *arguments.split())
        assert result.returncode in (1, 2) and words in result.stderr, result.stderr
        assert "Traceback" not in result.stderr


def test_resnet_learns_images(tmp_path: Path) -> None:
    curve = tmp_path / "curve.png"
    sizes = "--synthetic 400 --epochs 3 --batch 32 --width 8 --blocks 1 --learning-rate 0.05".split()
    result = run("resnet_cifar.py", "--curve", str(curve), *sizes)
    assert result.returncode == 0, result.stderr
    accuracy = float(re.findall(r"accuracy on the test set: (\d+\.\d+)%", result.stdout)[0])
    assert accuracy > 40, result.stderr  # 10 by chance
    assert curve.read_bytes().startswith(b"\x89PNG")


def test_resnet_reads_the_binary_version_of_cifar_10(tmp_path: Path) -> None:
    # Records are a label and 3 x 32 x 32 bytes.
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        (tmp_path / name).write_bytes(b"".join(bytes([label]) + bytes([20 * label]) * 3072 for label in range(10)))
    curve = str(tmp_path / "curve.png")
    result = run("resnet_cifar.py", str(tmp_path), "--curve", curve, *"--epochs 1 --batch 25 --width 8 --blocks 1".split())
    assert result.returncode == 0, result.stderr
    missing = run("resnet_cifar.py", str(tmp_path / "nothing"))
    assert missing.returncode == 1 and "data_batch_1.bin" in missing.stderr and "Traceback" not in missing.stderr
