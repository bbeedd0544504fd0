"""The shape of the house: which layer may import which, and what an `__init__` may hold.

The rules are read off the syntax trees, so an import counts wherever it stands: in a function, under
`TYPE_CHECKING`, or as `importlib.import_module("name")`.
"""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "shoal"

LAYERS = ("errors", "structure", "memory", "worker", "backends", "engine", "adapters", "cli")
MAX_LINES = 400

# Where each framework may be imported: in the module, the folder, or modules whose names begin so.
FRAMEWORKS = {
    "gymnasium": ("adapters", "cli", "testing", "__init__"),
    "gym": ("adapters/gymnasium",),
    "torch": ("adapters/torch", "adapters/sb3"),
    "stable_baselines3": ("adapters/sb3",),
    "tensorflow": ("adapters/tf_agents",),
    "tf_agents": ("adapters/tf_agents",),
    "dm_env": ("adapters/dm_env", "adapters/tf_agents"),
    "pettingzoo": ("adapters/pettingzoo",),
    "ray": ("adapters/ray", "backends/ray"),
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    target: str
    line: int
    deferred: bool
    """Stands in a function or under `TYPE_CHECKING`, so importing the module does not run it."""


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path
    place: tuple[str, ...]
    """Names below `shoal`: `("memory", "bell")`; `("memory",)` for `memory/__init__.py`."""
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def name(self) -> str:
        return ".".join(("shoal", *self.place))

    def imports(self) -> Iterator[Import]:
        yield from self._imports_below(self.tree, deferred=False)

    def _imports_below(self, node: ast.AST, deferred: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names):
                for alias in names:
                    yield Import(alias.name, node.lineno, deferred)
            case ast.ImportFrom(module, names, level):
                base = self._absolute(module, level)
                for alias in names:
                    yield Import(f"{base}.{alias.name}", node.lineno, deferred)
            case ast.Call(ast.Attribute(attr="import_module") | ast.Name("import_module" | "__import__"), args):
                match args:
                    case [ast.Constant(str(target)), *_]:
                        yield Import(target, node.lineno, deferred)
        inner = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        for child in ast.iter_child_nodes(node):
            yield from self._imports_below(child, inner)

    def _absolute(self, module: str | None, level: int) -> str:
        if level == 0:
            return module or ""
        package = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        base = package[: len(package) - (level - 1)]
        return ".".join([*base, module] if module else base)


def is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether the node is `if TYPE_CHECKING:` or `if typing.TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def read_modules(root: Path) -> Iterator[Module]:
    """Yields every module below `root`, the folder of the package `shoal`."""
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).with_suffix("").parts
        if place[-1] == "__init__":
            place = place[:-1]
        text = path.read_text(encoding="utf-8")
        yield Module(path, place, text, ast.parse(text, str(path)))


def layer_of(place: Sequence[str]) -> str | None:
    """Returns the part of the house a place is in; None if it is in none.

    `shoal` is the package's own `__init__`, `testing` the kit beside the layers.
    """
    if not place:
        return "shoal"
    if place[0] == "__main__":
        return "cli"
    return place[0] if place[0] in (*LAYERS, "testing") else None


def problem_of_layers(importer: str, target: str) -> str | None:
    """Returns what is wrong with module part `importer` importing `target`, a dotted name below `shoal`."""
    names = target.split(".")[1:]
    # A name that is no part of the house is one that the package's `__init__` offers.
    imported = layer_of(names) or "shoal"
    if imported == importer:
        return None
    if imported == "testing":
        return f"{importer} imports testing; nothing does"
    if importer == "testing":
        private = [name for name in names if name.startswith("_") and not name.startswith("__")]
        return f"testing imports {target}, which is private" if private else None
    if importer == "shoal" or (importer == "cli" and imported == "shoal"):
        return None
    if imported == "shoal" or LAYERS.index(imported) > LAYERS.index(importer):
        return f"{importer} imports {target}, which is not to its left"
    return None


def problem_of_frameworks(module: Module, found: Import) -> str | None:
    """Returns what is wrong with the framework that a module imports, if it is one."""
    framework = found.target.partition(".")[0]
    homes = FRAMEWORKS.get(framework)
    place = "/".join(module.place) or "__init__"
    if homes is None or any(place == home or place.startswith((f"{home}/", f"{home}_")) for home in homes):
        return None
    if place == "errors" and framework == "gymnasium":
        return None if found.deferred else "errors imports gymnasium when it is itself imported"
    return f"{framework} is imported outside its adapter"


def problems_of_init(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields what an `__init__` holds beyond a docstring, imports, names and a lazy `__getattr__`."""
    for statement in tree.body:
        match statement:
            case ast.Expr(ast.Constant(str())) | ast.Import() | ast.ImportFrom():
                continue
            case ast.FunctionDef("__getattr__" | "__dir__"):
                continue
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                if is_dunder(name) or (name.startswith("_") and is_literal(value)):
                    continue
            case ast.If() if is_type_checking(statement):
                if all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in statement.body):
                    continue
        yield statement.lineno, f"an __init__ holds only re-exports, not `{ast.unparse(statement)[:60]}`"


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_literal(value: ast.expr | None) -> bool:
    try:
        ast.literal_eval(value or "None")
    except ValueError:
        return False
    return True


def problems_of(module: Module) -> Iterator[tuple[int, str]]:
    """Yields line and text of every rule that a module breaks."""
    lines = len(module.text.splitlines())
    if lines > MAX_LINES:
        yield lines, f"{lines} lines; a module is one idea in {MAX_LINES} at most"
    if module.is_package:
        yield from problems_of_init(module.tree)
    layer = layer_of(module.place)
    if layer is None:
        yield 1, f"belongs to none of the layers {', '.join(LAYERS)} and testing"
        return
    for found in module.imports():
        if found.target.partition(".")[0] == "shoal":
            problem = problem_of_layers(layer, found.target)
        else:
            problem = problem_of_frameworks(module, found)
        if problem is not None:
            yield found.line, problem


def check(root: Path) -> list[str]:
    """Returns `path:line: what is wrong` for every broken rule below `root`."""
    return [
        f"{module.path.relative_to(root)}:{line}: {problem}"
        for module in read_modules(root)
        for line, problem in problems_of(module)
    ]


def loaded_after(statement: str) -> set[str]:
    """Returns the modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    return set(json.loads(done.stdout))


def test_the_house_is_in_order():
    """One way of looking: each layer can be understood, and tested, without those to its right."""
    assert check(SOURCE) == []


def test_every_layer_is_there():
    """A checker that reads no file finds no fault."""
    found = {layer_of(module.place) for module in read_modules(SOURCE)}
    assert found >= {*LAYERS, "shoal", "testing"}


def test_importing_shoal_loads_no_framework():
    """Whoever uses one framework does not pay for the others, nor for their side effects."""
    loaded = loaded_after("import shoal")
    assert "shoal" in loaded
    assert loaded.isdisjoint(FRAMEWORKS)


def test_listing_the_public_names_loads_no_framework():
    """Completion in a shell is no reason to import anything."""
    assert loaded_after("import shoal; dir(shoal)").isdisjoint(FRAMEWORKS)


@pytest.mark.parametrize("layer", LAYERS[: LAYERS.index("adapters")])
def test_layers_below_the_adapters_load_no_framework(layer):
    """The core serves every framework, and so depends on none, not even through a third party."""
    assert loaded_after(f"import shoal.{layer}").isdisjoint(FRAMEWORKS)


@pytest.mark.parametrize("name", [module.name for module in read_modules(SOURCE) if module.is_package])
def test_all_names_resolve(name):
    """`from shoal import *` works, and no export has been forgotten in a rename."""
    try:
        package = importlib.import_module(name)
        exported = list(getattr(package, "__all__", ()))
        missing = [export for export in exported if not hasattr(package, export)]
    except ImportError as error:
        # Only a face whose framework is not installed may fail, and it has to say so.
        if (error.name or "").partition(".")[0] not in FRAMEWORKS:
            raise
        pytest.skip(f"{error.name} is not installed")
    assert missing == []
    assert len(exported) == len(set(exported))
    assert set(exported) <= set(dir(package))


# Each a file and a text that breaks one rule, and a part of what must be said about it.
VIOLATIONS = {
    "to the right": ("memory/bad.py", "import shoal.engine", "memory imports shoal.engine"),
    "name to the right": ("memory/bad.py", "from shoal.engine import Engine", "memory imports shoal.engine.Engine"),
    "layer from the package": ("worker/bad.py", "from shoal import backends", "worker imports shoal.backends"),
    "relative": ("structure/bad.py", "from ..memory import layout", "structure imports shoal.memory.layout"),
    "relative in a package": ("engine/__init__.py", "from ..adapters import x", "engine imports shoal.adapters.x"),
    "in a function": ("errors.py", "def f():\n    from shoal import worker", "errors imports shoal.worker"),
    "for types": (
        "errors.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shoal.cli",
        "errors imports shoal.cli",
    ),
    "by its name": (
        "worker/bad.py",
        "import importlib\nimportlib.import_module('shoal.engine')",
        "worker imports shoal.engine",
    ),
    "public name of the package": ("engine/bad.py", "from shoal import AsyncVectorEnv", "shoal.AsyncVectorEnv"),
    "package": ("adapters/bad.py", "import shoal", "adapters imports shoal"),
    "testing": ("cli/bad.py", "from shoal.testing import envs", "cli imports testing"),
    "testing by the package": ("__init__.py", "from shoal.testing import envs", "shoal imports testing"),
    "private by testing": ("testing/bad.py", "from shoal.engine._rows import Rows", "private"),
    "torch": ("engine/bad.py", "import torch.nn", "torch is imported outside"),
    "torch in another adapter": ("adapters/gymnasium/bad.py", "import torch", "torch is imported outside"),
    "torch in a function": ("cli/bad.py", "def f():\n    import torch", "torch is imported outside"),
    "ray": ("worker/bad.py", "from ray import get", "ray is imported outside"),
    "gymnasium below": ("backends/bad.py", "import gymnasium as gym", "gymnasium is imported outside"),
    "gymnasium for types": (
        "engine/bad.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gymnasium import Env",
        "gymnasium is imported outside",
    ),
    "gymnasium with errors": ("errors.py", "from gymnasium import error", "errors imports gymnasium when"),
    "gymnasium with errors in a class": ("errors.py", "class E:\n    import gymnasium", "errors imports gymnasium"),
    "code in an init": ("memory/__init__.py", "SIZE = 4", "SIZE = 4"),
    "side effect in an init": ("memory/__init__.py", "print('hello')", "print('hello')"),
    "class in an init": ("memory/__init__.py", "class Block: ...", "class Block"),
    "computed name in an init": ("memory/__init__.py", "_SIZE = 2 * f()", "_SIZE = 2 * f()"),
    "code for types in an init": (
        "memory/__init__.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    x = 1",
        "x = 1",
    ),
    "long": ("memory/bad.py", "x = 1\n" * (MAX_LINES + 1), f"{MAX_LINES + 1} lines"),
    "no layer": ("helpers.py", "x = 1", "belongs to none"),
    "no layer by a folder": ("utils/text.py", "x = 1", "belongs to none"),
}

ORDERLY = {
    "__init__.py": (
        '"""Docs."""\nfrom typing import TYPE_CHECKING, Any\n'
        "if TYPE_CHECKING:\n    from shoal.adapters.gymnasium import AsyncVectorEnv\n"
        '__version__ = "1"\n_HOMES: dict[str, str] = {"AsyncVectorEnv": "shoal.adapters.gymnasium"}\n'
        '__all__ = ["AsyncVectorEnv"]\n'
        "def __getattr__(name: str) -> Any:\n    import gymnasium\n    return gymnasium\n"
        "def __dir__(): return __all__\n"
    ),
    "__main__.py": "import shoal\nfrom shoal.cli import main\n",
    "errors.py": "def to_gymnasium():\n    import gymnasium\n    return gymnasium.error\n",
    "structure/__init__.py": '"""Docs."""\nfrom shoal.structure.leaf import Leaf\n__all__ = ["Leaf"]\n',
    "structure/leaf.py": "from .. import errors\nfrom ..errors import ShoalError\nimport numpy\n",
    "memory/layout.py": "from shoal.structure import Leaf\nfrom . import bell\n" + "x = 1\n" * (MAX_LINES - 2),
    "worker/main.py": "import importlib\ndef load(name):\n    return importlib.import_module(name)\n",
    "backends/ray.py": "import ray\n",
    "backends/ray_actor.py": "import ray\nfrom shoal import memory, worker\n",
    "engine/engine.py": "import shoal.backends\n",
    "adapters/sb3/face.py": "import torch\nfrom stable_baselines3.common.vec_env import VecEnv\n",
    "adapters/dm_env.py": "import dm_env\nimport gymnasium\n",
    "cli/bench.py": "import shoal\nimport gymnasium\nfrom shoal import AsyncVectorEnv\n",
    "testing/envs.py": "import gymnasium\nimport shoal\nfrom shoal.engine import Engine\n",
}


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(("file", "text", "said"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_the_checker_finds(tmp_path, file, text, said):
    """Every rule is one that can be broken, and is then reported once, at its file."""
    [problem] = check(write_tree(tmp_path, {**ORDERLY, file: text}))
    assert problem.startswith(f"{file}:")
    assert said in problem


def test_the_checker_accepts_an_orderly_house(tmp_path):
    """What the rules allow is not reported."""
    assert check(write_tree(tmp_path, ORDERLY)) == []
