"""The profiler with PyTorch's names."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import neurenix as nx
import pytest
from neurenix import profiler
from neurenix.profiler import ProfilerAction, profile, record_function, schedule


def work(size: int = 64) -> float:
    return float((nx.ones(size, size) @ nx.ones(size, size)).sum().item())


def test_rows_are_those_of_the_engine_and_labels() -> None:
    with profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as p:
        for _ in range(3):
            with record_function("product"):
                work()
    rows = p.key_averages()
    (label,) = [row for row in rows if row.key == "product"]
    (product,) = [row for row in rows if row.key.startswith("dot (64, 64)")]
    assert label.count == product.count == 3 and label.device == "label" and label.name == "product"
    # The block contains its product.
    assert label.cpu_time_total > product.cpu_time_total + product.device_time_total > 0
    assert label.cpu_time == label.cpu_time_total / 3
    assert product.flops == 3 * 2 * 64**3
    # A label's time is that of steps in it, so it is not counted again.
    assert label.self_cpu_time_total == 0
    assert rows.self_cpu_time_total == sum(row.self_cpu_time_total for row in rows)
    assert rows.total_average().count == sum(row.count for row in rows)


def test_the_table() -> None:
    rows = profiler.Rows([
        profiler.Row("small", 2, 10.0, 0.0, 10.0), profiler.Row("great" * 20, 1, 2500.0, 0.0, 2500.0), profiler.Row("gpu", 4, 0.0, 8.0, device="cuda:0"),
    ])  # fmt: skip
    lines = rows.table(sort_by="cpu_time_total", max_name_column_width=20, header="mine").splitlines()
    assert lines[0] == "mine" and [line.split()[0] for line in lines[3:6]] == ["greatgreatgreatgr...", "small", "gpu"]
    assert lines[3].split()[1:] == ["cpu", "2.500ms", "2.500ms", "2.500ms", "0.000us", "1"]
    assert lines[4].split()[1:] == ["cpu", "10.000us", "10.000us", "5.000us", "0.000us", "2"]
    assert lines[5].split()[1:] == ["cuda:0", "0.000us", "0.000us", "0.000us", "8.000us", "4"]
    assert lines[6] == "Self CPU time total: 2.510ms"
    by_device = rows.table(sort_by="cuda_time_total", row_limit=1, time_unit="s").splitlines()
    assert by_device[2].split()[0] == "gpu" and len(by_device) == 4 and by_device[3].endswith("0.003s")
    for refused in ({"sort_by": "price"}, {"time_unit": "h"}):
        with pytest.raises(ValueError, match="table"):
            rows.table(**refused)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_trace_has_labels_around_their_steps(tmp_path: Path, name: str) -> None:
    with profile() as p, record_function("outer"), record_function("inner"):
        work()
    path = tmp_path / name
    p.export_chrome_trace(str(path))
    text = gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()
    events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]

    def span(start: str) -> tuple[float, float]:
        (event,) = [event for event in events if event["name"].startswith(start)]
        return event["ts"], event["ts"] + event["dur"]

    outer, inner, step = span("outer"), span("inner"), span("dot (64")
    assert outer[0] <= inner[0] <= step[0] and step[1] <= inner[1] <= outer[1]


def test_schedules_have_the_actions_of_pytorch() -> None:
    def letters(**options: Any) -> str:
        action = schedule(**options)
        return "".join({"NONE": "-", "WARMUP": "w", "RECORD": "r", "RECORD_AND_SAVE": "S"}[action(n).name] for n in range(12))

    assert letters(wait=1, warmup=1, active=2) == "-wrS-wrS-wrS"
    assert letters(wait=1, warmup=1, active=2, repeat=2) == "-wrS-wrS----"
    assert letters(wait=2, warmup=1, active=1, skip_first=3, repeat=1) == "-----wS-----"
    assert letters(wait=2, warmup=1, active=1, skip_first=1, skip_first_wait=1) == "-wS--wS--wS-"
    assert letters(wait=0, warmup=1, active=1) == "wSwSwSwSwSwS"
    with pytest.raises(ValueError, match="active"):
        schedule(wait=1, warmup=1, active=0)


def test_a_schedule_chooses_the_steps() -> None:
    counts = []

    def ready(p: Any) -> None:
        counts.append(sum(row.count for row in p.key_averages() if row.key.startswith("dot")))

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready, acc_events=True) as p:
        for number in range(10):
            assert p.step_num == number
            for _ in range(number + 1):
                work()
            p.step()
    # Steps 2 and 3 have 3 + 4 products, steps 6 and 7 have 7 + 8.
    assert counts == [7, 22]
    assert p.current_action is ProfilerAction.NONE


def test_without_accumulation_only_the_last_recording_counts() -> None:
    with profile(schedule=schedule(wait=0, warmup=1, active=1)) as p:
        for number in range(4):
            for _ in range(number + 1):
                work()
            p.step()
    assert sum(row.count for row in p.key_averages() if row.key.startswith("dot")) == 4


def test_start_stop_and_blocks_that_began_before() -> None:
    p = profile()
    with record_function("before"):
        p.start()
        work()
    p.stop()
    p.stop()
    names = [row.key for row in p.key_averages()]
    assert any(name.startswith("dot") for name in names) and "before" not in names


def test_a_label_decorates_functions() -> None:
    @record_function("decorated")
    def twice(depth: int) -> None:
        work()
        if depth:
            twice(depth - 1)

    with profile() as p:
        twice(1)
    (row,) = [row for row in p.key_averages() if row.key == "decorated"]
    assert row.count == 2


def test_events_are_the_single_steps() -> None:
    with profile() as p, record_function("block"):
        work()
        work()
    events = p.events()
    starts = [event.time_range.start for event in events]
    (block,) = [event for event in events if event.key == "block"]
    products = [event for event in events if event.name.startswith("dot")]
    assert starts == sorted(starts) and len(products) == 2
    for product in products:
        assert block.time_range.start < product.time_range.start < product.time_range.end < block.time_range.end
        assert product.time_range.elapsed_us() == pytest.approx(product.cpu_time + product.cuda_time)
    for row in p.key_averages():
        same = [event for event in events if (event.key, event.device) == (row.key, row.device)]
        assert row.count == len(same) and row.flops == sum(event.flops for event in same)
        assert row.cpu_time_total == pytest.approx(sum(event.cpu_time_total for event in same), abs=0.01 * row.count)
    with pytest.raises(RuntimeError, match="nothing has been recorded"):
        profile().events()


def test_names_of_pytorch_s_columns() -> None:
    row = profiler.Row("dot", 2, 3000.0, 8.0, 10.0, 4.0)
    assert (row.cuda_time, row.cuda_time_total, row.self_cuda_time_total) == (4.0, 8.0, 4.0)
    assert (row.cpu_time_total_str, row.cpu_time_str, row.self_cpu_time_total_str) == ("3.000ms", "1.500ms", "10.000us")
    for name in ("self_cpu_memory_usage", "cuda_memory_usage"):
        with pytest.raises(AttributeError, match="memory of single steps is not recorded"):
            getattr(row, name)
    assert not hasattr(row, "price")
    text = profiler.Rows([row]).table(sort_by="self_cpu_memory_usage")
    assert "Not sorted by self_cpu_memory_usage: the memory of single steps is not recorded" in text
    assert copy.deepcopy(row) == row


def test_the_older_profiler() -> None:
    with nx.autograd.profiler.profile(use_cuda=False) as p, nx.autograd.profiler.record_function("label"):
        work()
    assert "label" in p.table() and "dot" in p.table(sort_by="self_cpu_time_total")
    assert p.total_average().count >= 2
    with nx.autograd.profiler.profile(enabled=False) as off:
        work()
    assert off.key_averages() == []


def test_traces_for_tensorboard(tmp_path: Path) -> None:
    handler = profiler.tensorboard_trace_handler(str(tmp_path / "log"), "worker")
    with profile(on_trace_ready=handler):
        work()
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("worker.") and path.name.endswith(".pt.trace.json")
    assert any(event["name"].startswith("dot") for event in json.loads(path.read_text())["traceEvents"])


def test_refusals() -> None:
    with pytest.raises(NotImplementedError, match="experimental_config"):
        profile(experimental_config=object())
    with pytest.raises(RuntimeError, match="nothing has been recorded"):
        profile().export_chrome_trace("unwritten")
    with profile(), pytest.raises(ValueError, match="another profiler is running"):
        profile().start()
    assert profiler.ProfilerActivity.CPU in profiler.supported_activities() and not profiler.kineto_available()
