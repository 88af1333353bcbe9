"""Packs scikit-learn's digits.csv.gz into the two IDX files next to this script."""

import csv
import gzip
import pathlib
import struct
import sys


def save(name, magic, shape, data):
    header = struct.pack(f">{1 + len(shape)}I", magic, *shape)
    path = pathlib.Path(__file__).with_name(name)
    path.write_bytes(gzip.compress(header + data, 9, mtime=0))


with gzip.open(sys.argv[1], "rt") as table:
    rows = [[int(float(value)) for value in row] for row in csv.reader(table)]
assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
save("digits-images.idx3-ubyte.gz", 0x803, (1797, 8, 8), bytes(v for row in rows for v in row[:64]))
save("digits-labels.idx1-ubyte.gz", 0x801, (1797,), bytes(row[64] for row in rows))
