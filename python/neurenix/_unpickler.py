"""Reads pickles without running code: plain values, and objects of the classes that the caller knows."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import pickletools
from collections.abc import Callable, Mapping
from pickle import UnpicklingError
from typing import IO, Any

#: What a name in a pickle stands for: a function of the arguments that the pickle gives.
Known = Mapping[str, Callable[..., Any]]


def _encoded(text: str, encoding: str) -> bytes:
    """How old protocols store bytes."""
    return text.encode({"latin1": "latin1", "latin-1": "latin1"}[encoding])


def _bytearray(text: str | bytes = b"", encoding: str = "latin1") -> bytearray:
    return bytearray(_encoded(text, encoding) if isinstance(text, str) else bytes(memoryview(text)))


_PLAIN: dict[str, Callable[..., Any]] = {
    "argparse.Namespace": argparse.Namespace,
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "_codecs.encode": _encoded,
}
for _module in ("builtins", "__builtin__"):
    _PLAIN |= {f"{_module}.{kind.__name__}": kind for kind in (set, frozenset, complex)}
    _PLAIN |= {f"{_module}.bytearray": _bytearray, f"{_module}.bytes": _encoded}
# Python 3.13 calls the module by another name.
for _module in ("pathlib", "pathlib._local"):
    _PLAIN |= {f"{_module}.{kind.__name__}": kind for kind in (pathlib.PurePosixPath, pathlib.PureWindowsPath)}
    _PLAIN[f"{_module}.PosixPath"] = pathlib.PurePosixPath if os.name == "nt" else pathlib.Path
    _PLAIN[f"{_module}.WindowsPath"] = pathlib.Path if os.name == "nt" else pathlib.PureWindowsPath


class Global:
    """A name that a pickle refers to, and its meaning, if it is known."""

    __slots__ = ("name", "meaning")

    def __init__(self, name: str, meaning: Callable[..., Any] | None) -> None:
        self.name = name
        self.meaning = meaning


class Late:
    """An object whose value is known only when its state has been read."""

    def settled(self, state: Any) -> Any:
        """The object of this state."""
        raise NotImplementedError


class _Mark:
    """Where the items of a collection begin."""


_MARK = _Mark()
_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NEW: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set, "NONE": lambda: None, "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}  # fmt: skip
_VALUES = frozenset(
    """
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE
    BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8
    """.split()
)


class Unpickler:
    """Reads one pickle from a file.

    ``known`` gives the meaning of names that the pickle calls, such as ``torch.Size``, ``named`` that of names alone (a
    dtype), ``persistent`` that of references to data outside the pickle. Calls may also have the names ``passed`` as
    arguments. ``refused`` makes the error for any other name.
    """

    def __init__(
        self,
        known: Known,
        *,
        named: Callable[[str], Any] = lambda name: None,
        persistent: Callable[[Any], Any] | None = None,
        passed: frozenset[str] = frozenset(),
        refused: Callable[[str], Exception] = lambda name: UnpicklingError(f"{name} is not allowed"),
    ) -> None:
        self._known = {**_PLAIN, **known}
        self._named = named
        self._persistent = persistent
        self._passed = passed
        self._refused = refused

    def load(self, file: IO[bytes]) -> Any:
        """The object; the file's position is then after it."""
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        try:
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "STOP":
                    (value,) = self._stack
                    return self._used(value)
                self._step(opcode.name, argument)
        except UnpicklingError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            raise UnpicklingError(f"damaged pickle: {error}") from None
        raise UnpicklingError("damaged pickle: it has no end")

    def _used(self, value: Any) -> Any:
        """The value as a part of another: a known class by itself is not a value."""
        if isinstance(value, Global) and value.name not in self._passed:
            raise self._refused(value.name)
        return value

    def _items(self) -> list[Any]:
        """Takes what lies above the last mark."""
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                items = [self._used(item) for item in self._stack[place + 1 :]]
                del self._stack[place:]
                return items
        raise UnpicklingError("damaged pickle: a mark is missing")

    def _step(self, name: str, argument: Any) -> None:
        stack, memo = self._stack, self._memo
        if name in _VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _NEW:
            stack.append(_NEW[name]())
        elif name == "TUPLE":
            stack.append(tuple(self._items()))
        elif name in _SIZES:
            size = _SIZES[name]
            parts = tuple(self._used(stack.pop()) for _ in range(size))
            stack.append(parts[::-1])
        elif name in ("SETITEMS", "APPENDS", "ADDITEMS", "SETITEM", "APPEND"):
            self._fill(name)
        elif name in ("LIST", "DICT", "FROZENSET"):
            items = self._items()
            if name == "DICT":
                stack.append(dict(zip(items[::2], items[1::2], strict=True)))
            else:
                stack.append(items if name == "LIST" else frozenset(items))
        elif name == "GLOBAL":
            stack.append(self._global(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(self._global(f"{module}.{attribute}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = stack.pop(), stack.pop()
            stack.append(self._called(function, arguments))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1] = self._built(stack[-1], state)
        elif name == "BINPERSID" and self._persistent is not None:
            stack.append(self._persistent(stack.pop()))
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._items()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name not in ("PROTO", "FRAME"):
            raise UnpicklingError(f"the pickle needs the operation {name}, which does not occur in files of tensors")

    def _fill(self, name: str) -> None:
        if name in ("SETITEM", "APPEND"):
            items = [self._used(self._stack.pop()) for _ in range(2 if name == "SETITEM" else 1)][::-1]
        else:
            items = self._items()
        target = self._stack[-1]
        if name.startswith("APPEND") and isinstance(target, list):
            target.extend(items)
        elif name.startswith("SETITEM") and isinstance(target, dict):
            target.update(zip(items[::2], items[1::2], strict=True))
        elif name == "ADDITEMS" and isinstance(target, set):
            target.update(items)
        else:
            raise UnpicklingError(f"damaged pickle: {name} of a {type(target).__name__}")

    def _global(self, name: str) -> Any:
        value = self._named(name)
        return Global(name, self._known.get(name)) if value is None else value

    def _called(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise UnpicklingError("damaged pickle: it calls what is not a name")
        if function.meaning is None:
            raise self._refused(function.name)
        return function.meaning(*arguments)

    def _built(self, target: Any, state: Any) -> Any:
        if isinstance(target, Late):
            value = target.settled(state)
            for place, kept in self._memo.items():
                if kept is target:
                    self._memo[place] = value
            return value
        # An attribute of a dictionary, such as the `_metadata` of a state dict.
        if isinstance(target, collections.OrderedDict) and isinstance(state, dict):
            target.__dict__.update(state)
            return target
        if isinstance(target, argparse.Namespace) and isinstance(state, dict):
            vars(target).update(state)
            return target
        raise UnpicklingError(f"damaged pickle: a state for a {type(target).__name__}")
