"""Compiled functions: what they share with threads, and what they are besides functions."""

from __future__ import annotations

import threading

import neurenix as nx

nn = nx.nn


def test_threads_record_a_model_beside_each_other() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    meeting, met = threading.Barrier(5, timeout=60), threading.Event()

    def forward(x: nx.Tensor) -> nx.Tensor:
        if not met.is_set():
            # All are in the midst of their recordings, and the main thread computes meanwhile.
            meeting.wait()
            meeting.wait()
        return model(x).softmax(1)

    compiled, x, results = nx.compile(forward), nx.randn(5, 3), []
    expected = model(x).softmax(1).detach()

    def call() -> None:
        with nx.no_grad():
            results.append(compiled(x))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    meeting.wait()
    (model(x) ** 2).sum().backward()
    slopes = [parameter.grad for parameter in model.parameters()]
    meeting.wait()
    for thread in threads:
        thread.join()
    met.set()
    assert len(results) == 4 and all(nx.allclose(result, expected) for result in results)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(slope is not None and bool((slope != 0).any()) for slope in slopes)
    nx.optim.SGD(model.parameters(), lr=0.5).step()
    with nx.no_grad():
        assert nx.allclose(compiled(x), model(x).softmax(1)), "a replay uses the weights as they are now"
        assert not nx.allclose(compiled(x), expected)


def test_what_is_held_and_given_back_is_no_constant() -> None:
    w = nx.Tensor([1.0, 2.0])
    compiled = nx.compile(lambda x: (w, w.data + x))
    assert [each.tolist() for each in compiled(nx.ones(2))] == [[1.0, 2.0], [2.0, 3.0]]
    w.fill_(5)
    assert [each.tolist() for each in compiled(nx.ones(2))] == [[5.0, 5.0], [6.0, 6.0]]
