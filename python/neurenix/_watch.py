"""Tracks what a function reads besides its arguments, so that a recording is not replayed after a change.

Code is inspected, not run. The search begins with the globals, closures and arguments of a function and follows the
attributes that reachable code names, so it finds everything that the function may read. It may find more; a change to
that only causes another recording.
"""

from __future__ import annotations

import contextvars
import datetime
import dis
import functools
import itertools
import operator
import os
import random
import re
import sys
import threading
import time
import types
from collections import ChainMap, UserDict, UserList, UserString, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._engine import Tensor

_MISSING = object()
_ABSENT = itertools.repeat(_MISSING)
_NUMBERS = (bool, int, float, complex, str, bytes)
# Values that do not change, or whose changes cannot affect a function.
_FIXED = (
    *(*_NUMBERS, type(None), type(Ellipsis), range, slice, re.Pattern, re.Match),
    *(types.CodeType, types.GenericAlias, types.UnionType, type(threading.Lock()), type(threading.RLock())),
    *(np.number, np.bool_, np.character, np.datetime64, np.dtype, type(np.s_)),
)
# Containers written in Python, and the attribute that holds their content.
_WRAPPERS: dict[type, str] = {UserDict: "data", UserList: "data", UserString: "data", ChainMap: "maps"}
_MAPPINGS = (dict, types.MappingProxyType)
# Special methods that do not run during the computation.
_BESIDE = {
    *("__init__", "__new__", "__init_subclass__", "__class_getitem__", "__repr__", "__str__", "__format__", "__dir__", "__del__"),
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__", "__setattr__", "__delattr__"),
}
# Methods of dates that read the clock.
_CLOCK = ("now", "today", "utcnow")
# What steps change of optimisers and schedules. A replay repeats the steps; code that reads these attributes otherwise is
# watched: see :func:`neurenix._effects.note_read`.
_REPEATED = {"_groups", "_native", "_condition", "_last_lr", "last_epoch", "_step_count"}
_ANY_ATTRIBUTE = {"getattr", "hasattr", "vars", "__dict__"}
# Larger containers and arrays are not compared at each call.
_MOST = 100_000
# Libraries whose objects with these methods do not change: type annotations, and neurenix itself.
_HARMLESS = {"neurenix", "typing", "typing_extensions"}
_LIBRARIES = sys.stdlib_module_names | {"numpy", "neurenix"}


@functools.cache
def _is_library(module: str) -> bool:
    """Whether a module belongs to a library rather than the user's program. Programs do not change its contents."""
    package = module.split(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return module != "__main__" and (package in _LIBRARIES or "site-packages" in file or "dist-packages" in file)


def _same(now: Any, before: Any) -> bool:
    # Compared by representation: 1, 1.0 and True are equal, and so are 0.0 and -0.0; NaN is not equal to itself.
    return now is before or (type(now) is type(before) and isinstance(now, _NUMBERS) and repr(now) == repr(before))


def _differs(now: Iterable[Any], before: Iterable[Any]) -> bool:
    return any(a is not b and not _same(a, b) for a, b in zip(now, before, strict=True))


def _contents(container: Any) -> Iterable[Any]:
    return itertools.chain(container, container.values()) if isinstance(container, _MAPPINGS) else container


def _is_longer(container: Any, count: int, before: tuple[Any, ...]) -> bool:
    """Whether elements were added to a container and the existing ones are unchanged."""
    if len(container) <= count:
        return False
    if isinstance(container, set):
        return {id(each) for each in before} <= {id(each) for each in container}
    if not isinstance(container, _MAPPINGS):
        return not _differs(itertools.islice(container, count), before)
    values = itertools.islice(container.values(), count)
    return not _differs(itertools.chain(itertools.islice(container, count), values), before)


def _array(array: Any) -> str:
    return f"{array.shape} {array.dtype.str} {array.tobytes().hex()}"


class Watch:
    """The current state of everything that a function may read. ``tensors`` and ``optimizers`` are the reachable ones;
    ``refused`` names something whose changes cannot be detected, or is empty.
    """

    def __init__(self, function: Any, arguments: Iterable[Any]) -> None:
        self.tensors: list[Tensor] = []
        self.optimizers: list[Any] = []
        # Optimisers and schedules whose steps a replay repeats.
        self._repeated: list[tuple[Any, str]] = []
        self.refused = ""
        # For each dictionary: keys, their values, and names for messages.
        self._places: list[tuple[Mapping[str, Any], list[str], list[Any], list[str]]] = []
        self._containers: list[tuple[Any, int, tuple[Any, ...], str]] = []
        self._others: list[tuple[Callable[[], Any], Any, str]] = []
        self._entries: dict[int, tuple[Mapping[str, Any], list[str], list[Any], list[str]]] = {}
        self._seen: dict[int, Any] = {}
        self._objects: list[tuple[Any, str, set[str]]] = []
        self._classes: dict[type, set[tuple[type, str]]] = {}
        self._modules: list[tuple[types.ModuleType, str, set[str]]] = []
        self._names: set[str] = set()
        # Those that code of the program names.
        self._own_names: set[str] = set()
        # Attribute names that may be added later: those that code stores or looks up.
        self._absent: set[str] = set()
        self._any = False
        # Whether the program's code reads attributes without naming them.
        self._looks_up = False
        # A user's program may be installed like a library.
        module = getattr(function, "__module__", None) or type(function).__module__
        self._program = "" if module.split(".")[0] in _LIBRARIES else module.split(".")[0]
        self._visit(function, getattr(function, "__name__", type(function).__name__))
        for argument in arguments:
            if not isinstance(argument, Tensor):
                self._visit(argument, f"argument of type {type(argument).__name__}")
        known = -1
        while known != len(self._seen) + len(self._names) + len(self._absent):
            known = len(self._seen) + len(self._names) + len(self._absent)
            self._look_again()
        # Whether the function may compute gradients itself.
        self.has_backward = not self._own_names.isdisjoint(("backward", "grad"))
        # From now on only comparisons are needed. The objects are kept alive so that their ids are not reused.
        self._places = list(self._entries.values())
        self._prepare()
        del self._entries, self._objects, self._classes, self._modules, self._names, self._own_names, self._absent
        del self._repeated

    def _prepare(self) -> None:
        """Arranges the comparisons of :meth:`_is_same` so that the loops of the interpreter's C code make them."""
        lookups: list[tuple[Callable[[Any], Iterable[Any]], Any, list[Any]]] = []
        for place, keys, values, _ in self._places:
            if any(value is _MISSING for value in values):
                lookups.append((functools.partial(_looked_up, place), keys, values))
            else:
                # With a single key the result would not be a tuple.
                lookups.append((operator.itemgetter(*keys, keys[0]), place, [*values, values[0]]))
        containers = [container for container, *_ in self._containers]
        counts = [count for _, count, *_ in self._containers]
        filled = [
            (each, isinstance(each, _MAPPINGS), before) for each, count, before, _ in self._containers if count
        ]
        # One assignment: another thread may be comparing.
        self._fast = lookups, containers, counts, filled

    def _is_same(self) -> bool:
        """Whether everything certainly is the same, apart from ``_others``."""
        lookups, containers, counts, filled = self._fast
        if [*map(len, containers)] != counts:
            return False
        try:
            for look, given, values in lookups:
                if not all(map(operator.is_, look(given), values)):
                    return False
        except KeyError:
            return False
        for container, is_mapping, before in filled:
            now = itertools.chain(container, container.values()) if is_mapping else container
            if not all(map(operator.is_, now, before)):
                return False
        return True

    def changed(self) -> str:
        """The name of something that has changed, or an empty string."""
        if not self._is_same():
            places = [(place, keys, [place.get(key, _MISSING) for key in keys], names) for place, keys, _, names in self._places]
            for (_, _, now, names), (_, _, before, _) in zip(places, self._places, strict=True):
                for value, old, name in zip(now, before, names, strict=True):
                    if not _same(value, old):
                        return name
            for container, count, contents, name in self._containers:
                if len(container) != count or _differs(_contents(container), contents):
                    return name
            # Equal numbers, but other objects: compared by identity from now on.
            self._places = places
            self._containers = [(each, count, tuple(_contents(each)), name) for each, count, _, name in self._containers]
            self._prepare()
        for look, value, name in self._others:
            if not _same(look(), value):
                return name
        return ""

    def also(self, look: Callable[[], Any], name: str) -> None:
        """Watches something else, from now on."""
        self._others.append((look, look(), name))

    def accept_additions(self) -> None:
        """Accepts elements added after the existing ones: a function may append to a list, or fill a cache, while it
        runs. A change to an existing element remains a change.
        """
        self._containers = [
            (each, len(each), tuple(_contents(each)), name) if _is_longer(each, count, before) else (each, count, before, name)
            for each, count, before, name in self._containers
        ]
        self._prepare()

    def _is_foreign(self, module: Any) -> bool:
        return isinstance(module, str) and module.split(".")[0] != self._program and _is_library(module)

    def _is_opaque(self, kind: type) -> bool:
        """Whether objects of a class implement ``[]`` or unknown attributes with library code. What that code reads is
        not followed.
        """
        for key in ("__getitem__", "__getattr__"):
            definer = next((each for each in kind.__mro__ if key in vars(each)), None)
            if definer is None or definer in _WRAPPERS or not self._is_foreign(definer.__module__):
                continue
            # Attributes of a derived class are mostly its own.
            if definer.__module__.split(".")[0] not in _HARMLESS and (key == "__getitem__" or self._is_foreign(kind.__module__)):
                return True
        return False

    def _from_module(self, module: Any, key: str) -> Any:
        """The value of a module's attribute, if it exists. Library attributes are only watched if code names them."""
        if not isinstance(module, types.ModuleType):
            return None
        found = vars(module).get(key)
        library = self._is_foreign(module.__name__) and module.__name__.split(".")[0] not in ("numpy", "neurenix")
        # Objects that are only written to, such as sys.stderr, are ignored.
        if found is not None and library and not (module is sys and hasattr(type(found), "write")):
            self._entry(vars(module), key, f"{module.__name__}.{key}")
        return found

    def _entry(self, place: Mapping[str, Any], key: str, name: str) -> None:
        value = place.get(key, _MISSING)
        _, keys, values, names = self._entries.setdefault(id(place), (place, [], [], []))
        keys.append(key)
        values.append(value)
        names.append(name)
        if value is not _MISSING:
            self._visit(value, name)

    def _refuse(self, value: Any, name: str) -> None:
        self.refused = self.refused or f"{name} (a {type(value).__name__})"

    def _visit(self, value: Any, name: str) -> None:
        if isinstance(value, _FIXED) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, types.FunctionType):
            self._function(value, name)
        elif isinstance(value, types.MethodType):
            self._visit(value.__func__, name)
            self._visit(value.__self__, name)
        elif isinstance(value, functools.partial):
            self._visit((value.func, value.args, value.keywords), name)
        elif isinstance(value, (staticmethod, classmethod)):
            self._visit(value.__func__, name)
        elif isinstance(value, property):
            self._visit(value.fget, name)
        elif isinstance(value, type):
            self._classes.setdefault(value, set())
        elif isinstance(value, types.ModuleType):
            if value is random:
                self._refuse(value, name)
            self._modules.append((value, name, set()))
        elif isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            is_clock = isinstance(owner, type) and issubclass(owner, datetime.date) and value.__name__ in _CLOCK
            if is_clock or isinstance(owner, random.Random) or (value.__module__ == "time" and value.__name__ != "sleep"):
                self._refuse(value, name)
            elif not isinstance(owner, types.ModuleType):
                self._visit(owner, name)
        elif isinstance(value, np.ndarray):
            if value.nbytes > _MOST or value.dtype.hasobject:
                self._refuse(value, name)
            else:
                self._others.append((functools.partial(_array, value), _array(value), name))
        elif isinstance(value, (list, tuple, dict, set, frozenset, deque, types.MappingProxyType)):
            self._container(value, name)
        elif isinstance(value, contextvars.ContextVar):
            look = functools.partial(_variable, value)
            self._others.append((look, look(), name))
            self._visit(look(), name)
        elif hasattr(type(value), "_is_repeated") and value._is_repeated():
            self._repeated.append((value, name))
            if hasattr(value, "_groups"):
                self.optimizers.append(value)
            for group in getattr(value, "_groups", ()):
                for each in group["params"]:
                    self._visit(each, name)
            for key in vars(value).keys() - _REPEATED:
                self._entry(vars(value), key, f"{name}.{key}")
        elif getattr(type(value), "is_compiled", False):
            # A compiled function called by this one is a part of its recording.
            self._visit(value._function, name)
        elif self._is_opaque(type(value)) or isinstance(value, (random.Random, threading.local)):
            self._refuse(value, name)
        elif isinstance(value, Iterator) and not isinstance(type(value).__next__, types.FunctionType):
            self._refuse(value, name)
        elif hasattr(value, "__dict__") or any("__slots__" in vars(each) for each in type(value).__mro__):
            wrapped = {key for kind, key in _WRAPPERS.items() if isinstance(value, kind)}
            for key in wrapped:
                self._entry(vars(value), key, f"{name}.{key}")
            self._objects.append((value, name, wrapped))
            self._visit(type(value), type(value).__name__)
        elif getattr(type(value), "__hash__", None) in (None, object.__hash__) and (
            not self._is_foreign(type(value).__module__) or type(value).__module__.startswith("numpy.random")
        ):
            self._refuse(value, name)

    def _container(self, value: Any, name: str) -> None:
        if len(value) > _MOST:
            self._refuse(value, name)
            return
        contents = tuple(_contents(value))
        if not isinstance(value, (tuple, frozenset)):
            self._containers.append((value, len(value), contents, name))
        for each in contents:
            self._visit(each, f"an element of {name}")
        if isinstance(value, dict) and hasattr(value, "__dict__"):
            self._objects.append((value, name, set()))

    def _function(self, function: types.FunctionType, name: str) -> None:
        self._visit(getattr(function, "__wrapped__", None), name)
        library = self._is_foreign(function.__module__)
        if function is os.getenv:
            self._refuse(function, name)
        if library and not function.__module__.startswith("neurenix"):
            return
        if not library:
            # Attributes of the function itself.
            self._objects.append((function, name, set()))
        globals_ = function.__globals__
        # Modules and classes bound to local variables: by closures, or imported within the function.
        local: dict[str, Any] = dict(zip(function.__code__.co_freevars, map(_cell, function.__closure__ or ())))
        for code in _codes(function.__code__):
            loaded: Any = None
            package: Any = None
            kind = ""
            for instruction in dis.get_instructions(code):
                argument = instruction.argval
                before, loaded, last, kind = loaded, None, kind, instruction.opname
                if "ATTR" in kind or kind == "LOAD_METHOD":
                    self._names.add(argument)
                    if not library:
                        self._own_names.add(argument)
                    if kind == "STORE_ATTR" and not library:
                        self._absent.add(argument)
                if library:
                    continue
                stores = kind.startswith("STORE_")
                if not stores and ((before is np and argument == "random") or (before is time and argument != "sleep")):
                    self._refuse(getattr(before, argument, None), f"{before.__name__}.{argument}")
                if kind == "IMPORT_NAME":
                    loaded, package = sys.modules.get(argument), sys.modules.get(argument.split(".")[0])
                    self._visit(loaded, argument)
                elif kind == "IMPORT_FROM" or "ATTR" in kind or kind == "LOAD_METHOD":
                    loaded = self._from_module(before, argument)
                elif stores and isinstance(before, (types.ModuleType, type)):
                    stored, *rest = argument if isinstance(argument, tuple) else (argument,)
                    # ``import a.b`` binds a.
                    local[stored] = package if last == "IMPORT_NAME" else before
                    # A single instruction may store one variable and load another.
                    loaded = local.get(rest[0]) if rest else None
                elif kind.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
                    loaded = local.get(argument[-1] if isinstance(argument, tuple) else argument)
                elif kind.endswith(("_GLOBAL", "_NAME")) and argument in globals_:
                    loaded = globals_[argument]
                    self._entry(globals_, argument, argument)
                if argument in _ANY_ATTRIBUTE:
                    self._any = True
                    self._looks_up |= argument in ("vars", "__dict__")
                    self._absent.update(each for each in code.co_consts if isinstance(each, str) and each.isidentifier())
        if library:
            return
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            look = functools.partial(_cell, cell)
            self._others.append((look, look(), key))
            self._visit(look(), key)
        for defaults in ("__defaults__", "__kwdefaults__"):
            look = functools.partial(getattr, function, defaults)
            self._others.append((look, look(), f"{name}.{defaults}"))
            self._visit(look(), f"{name}.{defaults}")

    def _look_again(self) -> None:
        """Looks up all names known so far on every object found so far."""
        if self._own_names & _REPEATED or self._looks_up:
            self._objects += [(value, name, set()) for value, name in self._repeated]
            self._repeated = []
        for value, name, done in [*self._modules]:
            if not self._is_foreign(value.__name__):
                self._attributes(vars(value), name, done, self._names)
        for value, name, done in [*self._objects]:
            own = getattr(value, "__dict__", {})
            names = {*own} if self._any or type(value).__module__.startswith("neurenix") else self._names
            if isinstance(own.get("_parameters"), dict):
                # For modules (layers): they look up their settings by computed names.
                names = names | {key for key in own if isinstance(own[key], _FIXED)}
                for part in ("_parameters", "_buffers", "_modules"):
                    self._visit(own[part], name)
            self._attributes(own, name, done, names)
            for key in self._absent - own.keys() - done:
                done.add(key)
                self._entry(own, key, f"{name}.{key}")
            for each in type(value).__mro__:
                slots = vars(each).get("__slots__", ())
                for key in {slots} if isinstance(slots, str) else {*slots}:
                    if (self._any or key in self._names) and key not in done and key not in ("__dict__", "__weakref__"):
                        done.add(key)
                        look = functools.partial(getattr, value, key, _MISSING)
                        self._others.append((look, look(), f"{name}.{key}"))
                        self._visit(look(), f"{name}.{key}")
                if not self._is_foreign(each.__module__):
                    # An instance attribute may shadow a class attribute.
                    for key in (self._names & vars(each).keys()) - own.keys() - done:
                        done.add(key)
                        if not isinstance(vars(each)[key], property):
                            self._entry(own, key, f"{name}.{key}")
        for kind, looked in [*self._classes.items()]:
            for key in self._names.intersection(_CLOCK) if issubclass(kind, datetime.date) else ():
                if hasattr(kind, key):
                    self._refuse(getattr(kind, key), f"{kind.__module__}.{kind.__name__}.{key}")
            for each in kind.__mro__:
                library = self._is_foreign(each.__module__)
                if library and not each.__module__.startswith("neurenix"):
                    continue
                members = vars(each)
                called = {key for key in members if key.startswith("__") and key not in _BESIDE}
                for key in (called | self._names) & members.keys():
                    # A class earlier in the method resolution order may define the name too, and call this one's
                    # through ``super()``.
                    if (each, key) in looked:
                        continue
                    looked.add((each, key))
                    attribute = members[key]
                    if library or key in ("__dict__", "__weakref__", "__slots__", "__module__", "__doc__", "__annotations__"):
                        if isinstance(attribute, (types.FunctionType, property)):
                            self._visit(attribute, f"{each.__name__}.{key}")
                    else:
                        self._entry(members, key, f"{each.__name__}.{key}")

    def _attributes(self, place: Mapping[str, Any], name: str, done: set[str], names: Iterable[str]) -> None:
        for key in [key for key in names if key in place and key not in done]:
            done.add(key)
            self._entry(place, key, f"{name}.{key}")


def _looked_up(place: Mapping[str, Any], keys: list[str]) -> Iterator[Any]:
    return map(place.get, keys, _ABSENT)


def _variable(variable: contextvars.ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return _MISSING


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)
