"""Generates files from the native module: ``neurenix/_engine.pyi``, its type stubs, from PyO3's introspection;
``neurenix/_table.py`` and ``neurenix/nn/_composites.py``, the functions of the engine's tables; and the documentation of
the elementwise ones, ``docs/functions.md``.

Run it after a change of the native module's signatures or of a table: ``python make_stubs.py`` (needs maturin). With
``--check`` it writes nothing and reports whether the files are up to date. PyO3 knows neither the types that our own
conversions accept nor what an operator returns; this script adds them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
STUBS = HERE / "neurenix" / "_engine.pyi"
TABLE = HERE / "neurenix" / "_table.py"
COMPOSITES = HERE / "neurenix" / "nn" / "_composites.py"
FUNCTIONS = HERE.parent / "docs" / "functions.md"
OPERATIONS = HERE.parent / "crates" / "phynexus" / "src" / "op"
# The Python functions of these have other names or arguments, or are operators.
OTHERWISE = set("bitwise_not neg round sign add sub mul div floor_divide remainder pow and or xor shift_left shift_right lt le eq ne".split())
HEADER = '''# Made by make_stubs.py: do not edit.
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsFloat, SupportsIndex

from ._size import Size

Number = bool | int | float
Shape = int | Sequence[int]
Axes = int | Sequence[int] | None
DTypeLike = Any
DeviceLike = Device | str | int

class NoComplexNumbers(TypeError): ...

'''
ARGUMENTS = {
    "dim": "Axes",
    "axis": "Axes",
    "dtype": "DTypeLike",
    "device": "DeviceLike",
    "shape": "Shape",
    "size": "Shape",
    "padding": "Shape",
    "stride": "Shape",
    "dilation": "Shape",
    "kernel_size": "Shape",
    "output_padding": "Shape",
    "output_size": "Shape",
    "normalized_shape": "Shape",
    "value": "Number",
    "fill_value": "Number",
    "min": "Any",
    "max": "Any",
    "start": "Number",
    "end": "Number",
    "step": "Number",
    "a": "DTypeLike",
    "b": "DTypeLike",
    "name": "Any",
    # Numbers that count.
    **dict.fromkeys("chunks groups k length limit m n num_classes num_groups repeats seed steps threads".split(), "SupportsIndex"),
    "work_group_size": "SupportsIndex",
}
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
TENSOR = {f"__{way}{name}__" for name in OPERATORS for way in ("", "r", "i")}
TENSOR |= {f"__{name}__" for name in ("lt", "le", "gt", "ge", "eq", "ne")}
RESULTS = {"__iter__": "Iterator[Tensor]", "__int__": "int", "__index__": "int", "shape": "Size"}
RESULTS |= dict.fromkeys(("split", "chunk", "unbind"), "tuple[Tensor, ...]")


class Rewriter(ast.NodeTransformer):
    """Adds types and removes docstrings, which are read from the native module itself."""

    inside = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.inside = node.name
        node.decorator_list = []
        node.body = [each for each in node.body if not isinstance(each, ast.Expr)] or [ast.Expr(ast.Constant(...))]
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        # Tensors have methods with these names.
        return ast.parse(f"builtins.{node.id}", mode="eval").body if node.id in ("bool", "float", "int", "type") else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [ast.Expr(ast.Constant(...))]
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            written = ast.unparse(argument.annotation) if argument.annotation else ""
            if "Incomplete" in written:
                known = ARGUMENTS.get(argument.arg, "Any")
                argument.annotation = ast.parse(written.replace("Incomplete", known), mode="eval").body
        if node.name in TENSOR and self.inside == "Tensor":
            node.returns = ast.Name("Tensor")
            node.args.posonlyargs[1:] = [ast.arg(each.arg, ast.Name("Any")) for each in node.args.posonlyargs[1:]]
        if node.name in RESULTS:
            node.returns = ast.parse(RESULTS[node.name], mode="eval").body
        if node.name == "__new__" and node.returns is not None:
            node.returns = ast.Name("Self")
        self.generic_visit(node.args)
        node.returns = self.visit(node.returns) if node.returns is not None else None
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.value = None
        name = ast.unparse(node.target)
        node.annotation = ast.Name("str" if name == "__version__" else "None")
        return node


def python_methods() -> list[ast.stmt]:
    """Returns the tensor methods that are written in Python, without their bodies."""
    found: dict[str, ast.FunctionDef] = {}
    shared: set[str] = set()
    for name in ("_methods", "_special"):
        listed = re.search(r"__all__ = \[.*?\]", (HERE / "neurenix" / f"{name}.py").read_text(), re.DOTALL)
        assert listed is not None
        shared |= set(ast.literal_eval(listed.group().removeprefix("__all__ = ")))
    for name in ("random", "_methods", "_bessel", "_gamma", "_incomplete", "_special", "_in_place", "_real"):
        tree = ast.parse((HERE / "neurenix" / f"{name}.py").read_text())
        wanted = None if name in ("_in_place", "_real") else shared
        for each in tree.body:
            if isinstance(each, ast.FunctionDef) and each.name != "attach" and not each.name.startswith("_"):
                if wanted is None or each.name in wanted:
                    found[each.name] = each
            elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id in found:
                # Another name of a function.
                (target,) = each.targets
                other = copy.deepcopy(found[each.value.id])
                other.name = ast.unparse(target)
                found[other.name] = other
    for each in found.values():
        each.args.posonlyargs.extend(each.args.args[:1])
        each.args.posonlyargs[0] = ast.arg("self")
        del each.args.args[:1]
        each.decorator_list = []
        Rewriter().visit(each)
    written = [f"@property\ndef {name}(self) -> Tensor: ..." for name in ("H",)]
    for name in ("imag", "real"):
        written.insert(0, f"@property\ndef {name}(self) -> Tensor: ...\n@{name}.setter\ndef {name}(self, value: Any) -> None: ...")
    written.append("def __complex__(self) -> complex: ...")
    return [found[name] for name in sorted(found)] + ast.parse("\n".join(written)).body


def put_python_methods(tree: ast.Module) -> None:
    """Adds them to the tensor class."""
    methods = python_methods()
    names = {each.name for each in methods if isinstance(each, ast.FunctionDef)}
    for each in tree.body:
        if isinstance(each, ast.ClassDef) and each.name == "Tensor":
            each.body = [one for one in each.body if getattr(one, "name", None) not in names] + methods


def made() -> str:
    """Builds the native module with introspection data and generates the stubs from it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["maturin", "generate-stubs", "--profile", "dev", "--features", "development", "-o", folder]
        subprocess.run(command, cwd=HERE, check=True)
        source = (Path(folder) / "neurenix" / "_engine.pyi").read_text()
    tree = Rewriter().visit(ast.parse(source))
    tree.body = [each for each in tree.body if not isinstance(each, (ast.ImportFrom, ast.Import, ast.Assign))]
    put_python_methods(tree)
    text = ast.unparse(ast.fix_missing_locations(tree))
    text = re.sub(r"SupportsGetItem\[builtins\.int, ", "Sequence[", text)
    text = re.sub(r"SupportsLenAndGetItem\[", "Sequence[", text)
    text = text.replace("Incomplete", "Any").replace("-> type:", "-> Any:").replace("-> tuple:", "-> tuple[Any, ...]:")
    text = re.sub(r"\bdict\b(?!\[)", "dict[str, Any]", text)
    text = re.sub(r"\*(arguments|operands|sizes|dims|shape|repeats|args|shapes|indices|_error|size)([,)])", r"*\1: Any\2", text)
    # Python requires the same arguments for the in-place power.
    text = text.replace("def __ipow__(self, other: Any, modulo: Any, /)", "def __ipow__(self, other: Any, modulo: Any=None, /)")
    # Comparisons return tensors, unlike those of `object`.
    text = re.sub(r"(def __(?:eq|ne)__\(.*-> Tensor:)", r"\1  # type: ignore[override]", text)
    header = HEADER.replace("SupportsIndex\n", "SupportsIndex\n\nfrom typing_extensions import Self\n", 1)
    return header + text + "\n"


def table() -> str:
    """Generates a function for each row of the engine's tables."""
    row = re.compile(r"(?P<doc>(?:^ +/// .*\n)+) +[A-Z]\w* (?P<name>\w+) (?:\w+ )?\"\w+\" \w+\(", re.MULTILINE)
    unary, binary = (
        {found["name"]: " ".join(re.findall("/// (.*)", found["doc"])) for found in row.finditer((OPERATIONS / file).read_text())}
        for file in ("unary.rs", "binary.rs")
    )
    lines = ['"""The functions of the engine\'s tables. Made by make_stubs.py: do not edit."""', ""]
    lines += ["from ._operands import _binary, _unary", ""]
    lines += ["__all__ = [", *(f'    "{name}",' for name in (*unary, *binary) if name not in OTHERWISE), "]", ""]
    lines += [f'{name} = _unary("{name}", "{doc}")' for name, doc in unary.items() if name not in OTHERWISE]
    # Methods have `self`, functions have `input`.
    binary = {name: re.sub(r"\bself\b", "input", doc) for name, doc in binary.items() if name not in OTHERWISE}
    lines += [f'{name} = _binary("{name}", "{name}", "{doc}")' for name, doc in binary.items()]
    return "\n".join(lines) + "\n"


KINDS = {"Operand": "Tensor | None", "Count": "int", "Number": "float"}


def composites() -> str:
    """Generates a function for each row in the table of the composites' functions."""
    row = re.compile(r"(?P<doc>(?:^ +/// .*\n)+) +(?P<precision>own|in_place|full) (?P<name>\w+)\((?P<arguments>[^)]*)\)", re.MULTILINE)
    rows = [found.groupdict() for found in row.finditer((OPERATIONS / "composite" / "mod.rs").read_text())]
    lines = ['"""The functions of the engine\'s composites. Made by make_stubs.py: do not edit."""', ""]
    lines += ["from __future__ import annotations", "", "from .._arguments import guard as _guard", "from .._engine import Tensor"]
    lines += ["from ._precision import full", "", "__all__ = [", *(f'    "{each["name"]}",' for each in rows), "]", ""]
    for each in rows:
        arguments = re.findall(r"(\w+): (\w+)(?: = ([^,\s]+))?", each["arguments"])
        parameters = [("input", "Tensor", ""), *((name, KINDS[kind], default) for name, kind, default in arguments)]
        if each["precision"] == "in_place":
            parameters.append(("inplace", "bool", "False"))
        written = (f"{name}: {kind}" + (f" = {default}" if default else "") for name, kind, default in parameters)
        doc = " ".join(re.findall("/// (.*)", each["doc"]))
        lines += ["", f"def {each['name']}({', '.join(written)}) -> Tensor:", *docstring(doc)]
        if each["precision"] == "full":
            operands = ["input", *(name for name, kind, _ in arguments if kind == "Operand")]
            target = ", ".join(operands) if len(operands) > 1 else "(input,)"
            lines.append(f"    {target} = full({', '.join(operands)})")
        lines += [f"    return input.{each['name']}({', '.join(name for name, _, _ in arguments)})", ""]
    return "\n".join([*lines, "", "_guard(globals())"]) + "\n"


def docstring(doc: str) -> list[str]:
    """Returns the lines of a docstring within a function."""
    if len(doc) <= 110:
        return [f'    """{doc}"""']
    return ['    """' + textwrap.fill(doc, 112, initial_indent="   ", subsequent_indent="    ").lstrip(), '    """']


CLASSES = {
    "floats": "floats; integers and `bool` give `float32`",
    "roundings": "floats; integers and `bool` stay",
    "numbers": "all but `bool`",
    "choices": "all",
    "bits": "integers and `bool`",
    "shifts": "integers",
    "comparisons": "all; the result is `bool`",
    "tests": "all; the result is `bool`",
}


def functions() -> str:
    """Generates the page about the functions of the engine's tables."""
    row = re.compile(r"((?:^ +/// .*\n)+) +[A-Z]\w* (\w+) (?:\w+ )?\"\w+\" (\w+)\(", re.MULTILINE)
    lines = ["# Elementwise functions", ""]
    lines += ["Every function here is one row of a table in the engine, which Rust, Python, every device and the tests share.", ""]
    lines += ["`python/make_stubs.py` writes this page. The last column is the error that a device may make in `float32`, in", ""]
    lines[-1:] = ["units in the last place; 0 means that the result is exact or correctly rounded. Below 0, `lgamma` and `digamma` are"]
    lines += ["differences, and their errors are relative to the terms.", ""]
    for title, file in (("One operand", "unary.rs"), ("Two operands", "binary.rs")):
        lines += [f"## {title}", "", "| function | result | dtypes | error |", "|---|---|---|---|"]
        _, *parts = row.split((OPERATIONS / file).read_text())
        for described, name, group, rest in zip(*[iter(parts)] * 4):
            doc = " ".join(re.findall("/// (.*)", described)).replace("``", "`").replace("|", "\\|")
            ulps = re.search(r"ulps: ([\d.]+)", rest)
            lines.append(f"| `{name}` | {doc} | {CLASSES[group]} | {float(ulps[1]) if ulps else 0:g} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Writes the files or, with ``--check``, compares them."""
    parser = argparse.ArgumentParser(description="Generates files from the native module: type stubs, functions of its tables, and their page.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check, differs = parser.parse_args().check, False
    for file, text in ((TABLE, table()), (COMPOSITES, composites()), (FUNCTIONS, functions()), (STUBS, made())):
        if not check:
            file.write_text(text)
        elif (there := file.read_text()) != text:
            differs = True
            lines = difflib.unified_diff(there.splitlines(), text.splitlines(), file.name, "now", n=0, lineterm="")
            print("\n".join([f"{file.name} is out of date: run python make_stubs.py", *lines]), file=sys.stderr)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
