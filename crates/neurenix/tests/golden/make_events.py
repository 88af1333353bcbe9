"""Writes scalars.tfevents, what TensorBoard's own writer makes of some scalars, which src/io/tensorboard.rs must equal.

    python make_events.py            writes the file
    python make_events.py FILE       reads an event file with TensorBoard's own reader, checksums and all

Needs: pip install tensorboard
"""

import pathlib
import sys

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

# Wall time, tag, step, value. None of the first three is zero or empty: protocol buffers would leave it out.
SCALARS = [
    (1700000000.5, "loss/train", 300, 0.25),
    (1700000001.0, "loss/train", 2**63 - 1, float("nan")),
    (1700000001.25, "a", 1, float("-inf")),
    (-0.25, "precisión", 2**40 + 3, -1.5e-42),
    (1700000002.75, "long/" + "x" * 200, 127, 3.4e38),
    (1700000003.0, " ", 128, -0.0),
]

if len(sys.argv) > 1:
    for event in LegacyEventFileLoader(sys.argv[1]).Load():
        for value in event.summary.value:
            print(event.wall_time, value.tag, event.step, value.simple_value)
else:
    with open(pathlib.Path(__file__).parent / "scalars.tfevents", "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=1700000000.5, file_version="brain.Event:2").SerializeToString())
        for wall_time, tag, step, value in SCALARS:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.write(Event(wall_time=wall_time, step=step, summary=summary).SerializeToString())
