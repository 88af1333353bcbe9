"""Folders of checkpoints: what saving one may replace, and what remains if a process ends meanwhile; plain values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import numpy as np
import pytest
from neurenix.distributed import checkpoint


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group()
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["run", "run.old", "run.unfinished"])
def test_other_folders_are_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "log.txt").write_text("kept")
    with pytest.raises(RuntimeError, match=f"{name} exists and is no checkpoint"):
        checkpoint.save({"a": nx.ones(3)}, tmp_path / "run")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == [name, f"{name}/log.txt"]


def test_empty_folders_and_unfinished_checkpoints_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run.unfinished").mkdir()
    (tmp_path / "run.unfinished" / "rank-3.safetensors").write_text("half of it")
    for step in range(2):
        checkpoint.save({"step": step}, tmp_path / "run")
    assert checkpoint.load({"step": 9}, tmp_path / "run") == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_one_checkpoint_remains_whenever_a_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process ends between the renames, the second one before its first rename."""
    path = tmp_path / "run"
    checkpoint.save({"step": 1}, path)
    renamed: list[str] = []

    def rename(self: Path, target: Any) -> None:
        renamed.append(self.name)
        if len(renamed) > 1:
            raise OSError("the process ends here")
        replace(self, target)

    replace = Path.replace
    monkeypatch.setattr(Path, "rename", rename)
    for step in (2, 3):
        with pytest.raises(RuntimeError, match="ends here"):
            checkpoint.save({"step": step}, path)
        assert checkpoint.load({"step": 9}, path) == {"step": 1}
    assert renamed == ["run", "run.unfinished", "run.unfinished"]
    monkeypatch.undo()
    checkpoint.save({"step": 4}, path)
    assert checkpoint.load({"step": 9}, path) == {"step": 4} and [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_link_to_a_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "run"
    link.symlink_to(tmp_path / "disk", target_is_directory=True)
    for step in range(3):
        checkpoint.save({"step": step}, link)
        assert checkpoint.load({"step": 9}, link) == {"step": step}
    assert link.is_symlink() and sorted(each.name for each in tmp_path.iterdir()) == ["disk", "run"]


def test_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "run"
    state = {"losses": [], "pair": (), "rates": {1: 0.5}, "inner": {"list": []}}
    checkpoint.save(state, path)
    # An empty list is a list of another length.
    found = checkpoint.load({"losses": [1.0, [2.0]], "pair": (1,), "rates": {}, "inner": {"list": [1]}}, path)
    assert found == {"losses": [], "pair": (), "rates": {"1": 0.5}, "inner": {"list": []}}
    with pytest.raises(ValueError, match="does not have losses/0"):
        checkpoint.load({"losses": [nx.ones(1)]}, path)
    with pytest.raises(RuntimeError, match="inner/loss is a float32: save tensors, and numbers"):
        checkpoint.save({"inner": {"loss": np.float32(1)}}, path)
    assert checkpoint.load({"losses": [1.0]}, path) == {"losses": []}
