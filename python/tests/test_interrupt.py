"""Ctrl-C during a long call raises KeyboardInterrupt and leaves every tensor unchanged.

Run as a program, this file prints how long each call took to end, which should be less than 100 ms.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import neurenix as nx

# Each case prepares tensors, defines a computation of several seconds at least, and names tensors that must stay readable.
CASES = {
    "product": """
        a = nx.rand(3000, 3000); b = nx.rand(3000, 3000); nx.evaluate([a, b])
        def compute(): return ((a @ b) @ (b @ a) @ a @ b).sum().item()
        kept = [a, b]
    """,
    "chain": """
        a = nx.rand(1 << 23); nx.evaluate([a])
        def compute():
            x = a + 0
            for _ in range(300):
                x = nx.sin(x)
            return x.sum().item()
        kept = [a]
    """,
    "taken over": """
        a = nx.rand(1 << 23); b = a * 2.0; nx.evaluate([a, b])
        def compute():
            # Only the chain holds its first tensor, so its memory may be donated.
            x = (a * 2.0).evaluate()
            for _ in range(300):
                x = nx.sin(x)
            return x.evaluate().sum().item()
        kept = [a, b]
    """,
    "many small steps": """
        a = nx.rand(64, 64); nx.evaluate([a])
        def compute():
            x = a
            for _ in range(20000):
                x = nx.softmax(x @ a, -1)
            return x.sum().item()
        kept = [a]
    """,
    "sort": """
        a = nx.rand(1 << 24); nx.evaluate([a])
        def compute(): return sum(nx.sort(a * float(i)).sum().item() for i in range(1, 9))
        kept = [a]
    """,
    "convolution": """
        a = nx.rand(8, 64, 128, 128); w = nx.rand(128, 64, 5, 5); nx.evaluate([a, w])
        def compute(): return nx.nn.functional.conv2d(a, w).sum().item() + nx.nn.functional.conv2d(a * 2, w).sum().item()
        kept = [a, w]
    """,
    "one number of many": """
        a = nx.rand(1); nx.evaluate([a])
        def compute(): return (nx.zeros(10**11) + a).sum().item()
        kept = [a]
    """,
    "running sum": """
        a = nx.rand(1 << 25); nx.evaluate([a])
        def compute():
            x = a
            for _ in range(40):
                x = nx.cumulative_sum(x * 0.5, axis=0)
            return x.sum().item()
        kept = [a]
    """,
}

# Queued work of about two seconds on any device; its kernels are compiled beforehand.
QUEUE = """
    nx.set_default_device({device!r})
    a = nx.full((1024, 1024), 1 / 1024); nx.evaluate([a])
    def products(count):
        x = a
        for _ in range(count):
            x = x @ a
            nx.evaluate([x])
        return x.sum().item()
    products(3)
    def taken():
        begun = time.perf_counter(); products(3)
        return time.perf_counter() - begun
    count = int(9 / min(taken() for _ in range(3))) + 3
    def compute(): return products(count)
    kept = [a]
"""

# The beginning of every program.
INTERRUPT = """
import os, signal

def interrupt(number):
    # On Windows, `os.kill` ends the process.
    signal.raise_signal(number) if os.name == "nt" else os.kill(os.getpid(), number)
"""

PROGRAM = """
import os, signal, sys, threading, time
import neurenix as nx
from neurenix import _engine

nx.set_default_device("cpu")
nx.manual_seed(0)
{case}
before = [k.tolist() if k.size < 100000 else k.sum().item() for k in kept]
late = []
for _ in range({tries}):
    sent = []
    def send():
        sent.append(time.perf_counter())
        interrupt(signal.SIGINT)
    timer = threading.Timer(0.4, send)
    timer.start()
    try:
        compute()
        print("ended by itself"); sys.exit(3)
    except KeyboardInterrupt:
        late.append(time.perf_counter() - sent[0])
after = [k.tolist() if k.size < 100000 else k.sum().item() for k in kept]
assert before == after
print(min(late))
"""


@pytest.fixture(autouse=True)
def heard() -> None:
    # A shell makes background processes ignore SIGINT, and child processes inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run(case: str, tries: int) -> float:
    """Interrupts the computation several times; the shortest time in seconds that one took to end."""
    program = PROGRAM.format(case=textwrap.dedent(case), tries=tries)
    done = subprocess.run([sys.executable, "-c", INTERRUPT + program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return float(done.stdout.split()[-1])


@pytest.mark.parametrize("name", CASES)
def test_ctrl_c_ends_a_long_computation(name: str) -> None:
    run(CASES[name], tries=2)


def test_ctrl_c_ends_a_wait_for_a_device() -> None:
    # Real hardware may finish before the signal arrives, so use emulators.
    names = [device.name for device in nx.devices() if device.info["nature"] == "emulator"]
    if not names:
        pytest.skip("no device is made of the processor here")
    for name in names:
        run(QUEUE.format(device=name), tries=2)


def test_the_same_computation_works_afterwards() -> None:
    case = """
        a = nx.rand(1 << 18); nx.evaluate([a])
        def compute():
            x = a
            for _ in range(1200):
                x = nx.sin(x)
            return x.sum().item()
        kept = [a]
    """
    program = PROGRAM.format(case=textwrap.dedent(case), tries=1).replace("0.4", "0.1").replace(
        "print(min(late))", "print(compute() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", INTERRUPT + program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.split()[-1] == "True", done.stdout + done.stderr


def test_a_handler_of_the_users_own_is_run_and_its_exception_arrives() -> None:
    program = textwrap.dedent("""
        import os, signal, threading
        import neurenix as nx
        nx.set_default_device("cpu")
        a = nx.rand(1 << 18); nx.evaluate([a])
        seen = []
        class Stop(Exception):
            pass
        def send():
            threading.Timer(0.2, lambda: interrupt(signal.SIGINT)).start()
        def handler(number, frame):
            # A handler may compute, but not with tensors that are being computed.
            seen.append((nx.ones(3) * 2).sum().item())
            if len(seen) == 2:
                raise Stop("enough")
            send()
        signal.signal(signal.SIGINT, handler)
        x = a
        for _ in range(3000):
            x = nx.sin(x)
        send()
        try:
            x.sum().item()
        except Stop as stop:
            print(seen, stop)
    """)
    done = subprocess.run([sys.executable, "-c", INTERRUPT + program], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[6.0, 6.0] enough", done.stdout + done.stderr


STEPS = """
import os, signal, sys, threading, time
import neurenix as nx
from neurenix import nn, optim

nx.set_default_device("cpu")
model = nn.Sequential(*[nn.Linear(768, 768) for _ in range(6)])
optimizer = optim.Adam(model.parameters())
x = nx.rand(256, 768); nx.evaluate([x])

def step():
    optimizer.zero_grad()
    (model(x) ** 2).mean().backward()
    optimizer.step()
"""


def test_a_handler_that_saves_runs_between_the_steps() -> None:
    program = STEPS + textwrap.dedent("""
        saved = []
        def handler(number, frame):
            saved.append((len(optimizer.state_dict()["state"]), {k: v.sum().item() for k, v in model.state_dict().items()}))
        signal.signal(signal.SIGTERM, handler)
        def send():
            for number in range(5):
                time.sleep(0.05 + 0.013 * number)
                interrupt(signal.SIGTERM)
                while len(saved) <= number:
                    time.sleep(0.01)
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        while len(saved) < 5:
            step()
        print("saved", len(saved))
    """)
    done = subprocess.run([sys.executable, "-c", INTERRUPT + program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "saved 5", done.stdout + done.stderr


def test_threads_that_read_a_training_optimizer_wait_and_none_for_ever() -> None:
    program = STEPS + textwrap.dedent("""
        stop = threading.Event()
        read = []
        def look():
            while not stop.is_set():
                optimizer.state_dict()
                # Some threads hold the GIL while they compute this; others are waiting for it.
                read.append(nx.nn.functional.one_hot(nx.arange(64), 64).sum().item())
        threads = [threading.Thread(target=look, daemon=True) for _ in range(2)]
        [thread.start() for thread in threads]
        end = time.perf_counter() + 2.0
        while time.perf_counter() < end or not read:
            step()
        stop.set(); [thread.join() for thread in threads]
        print("read", set(read) == {64})
    """)
    done = subprocess.run([sys.executable, "-c", INTERRUPT + program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "read True", done.stdout + done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals between processes")
def test_the_command_is_interrupted() -> None:
    command = [sys.executable, "-m", "neurenix", "verify", "--device", "cpu", "--all"]
    # If this variable is unset, Mesa's device selection layer writes a line with `error:`.
    environment = {**os.environ, "NODEVICE_SELECT": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and errors.splitlines()[-1] == "interrupted", errors
    assert "Traceback" not in errors and "error:" not in errors


def test_a_loader_that_waits_for_workers_is_interrupted_and_stops_them() -> None:
    program = textwrap.dedent("""
        import os, signal, threading, time
        from neurenix import data

        begun, gate, made = threading.Event(), threading.Event(), []

        class Slow(data.Dataset):
            def __len__(self):
                return 16
            def __getitem__(self, index):
                begun.set()
                gate.wait(60)
                made.append(index)
                return index

        def send():
            begun.wait()
            time.sleep(0.3)
            interrupt(signal.SIGINT)

        threading.Thread(target=send, daemon=True).start()
        try:
            for _ in data.DataLoader(Slow(), 8, num_workers=2):
                pass
        except KeyboardInterrupt:
            # The interruption does not wait for the batches in progress.
            print("interrupted", made)
        gate.set()
        for thread in threading.enumerate():
            if thread.name.startswith("neurenix-data"):
                thread.join()
        # Each worker ends after its current sample.
        print(len(made) <= 2)
    """)
    done = subprocess.run([sys.executable, "-c", INTERRUPT + program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[:2] == ["interrupted []", "True"], done.stdout + done.stderr


if __name__ == "__main__":
    for name, case in CASES.items():
        print(f"{name:20} {run(case, tries=5) * 1000:6.1f} ms")
