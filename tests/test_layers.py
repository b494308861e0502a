"""The layer rule, over the syntax trees: imports go one way only, and a few packages stay where they belong."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "canaryjax"

# From left to right; a module imports its own layer's and what stands before it. Within a group (one line), a layer may
# import those before it in the same line.
GROUPS = (
    ("errors", "config", "records", "keys", "runlog", "stats"),
    ("data", "embedded", "models"),
    ("weights", "canaries"),
    ("inference",),
    ("rl",),
    ("audit", "detector", "probes"),
    ("report",),
    ("sweep", "cli"),
)
ORDER = [name for group in GROUPS for name in group]
# The package's front door offers the public functions of many layers, lazily.
FRONT = "canaryjax/__init__.py"
# Command-line shims: `python -m canaryjax.audit` is a command, so it calls cli.
SHIMS = {f"canaryjax/{command}/__main__.py" for command in ("audit", "detector", "probes", "sweep")}
# Programs that make what ships, by folder; no other module may import them.
PROGRAMS = {"canaryjax/embedded/pretrain/": "trains the shipped model, so it needs the whole forward pass"}
LONGEST_SHIM = 6  # lines
LONGEST_FILE, LONGEST_FUNCTION = 300, 60  # lines; a function is meant to stay at about 50, docstring not counted
# A longer file needs a reason here.
LONG_FILES: dict[str, str] = {}
# A longer function needs a reason here, as "file:function".
LONG_FUNCTIONS: dict[str, str] = {}


def _files():
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def _module(name):
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(name, tree):
    """Absolute names of everything a file imports, inside functions and under TYPE_CHECKING too."""
    package = _module(name).split(".")
    if not name.endswith("/__init__.py"):
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _layer(module):
    parts = module.split(".")
    return parts[1] if parts[0] == "canaryjax" and len(parts) > 1 else None


def layer_faults(files):
    """Imports that go from right to left, or name a layer that is not in the order."""
    faults = []
    for name, tree in files.items():
        own = _layer(_module(name))
        if name == FRONT or name in SHIMS or name.startswith(tuple(PROGRAMS)):
            continue
        if own not in ORDER:
            faults.append(f"{name}: {own!r} is no layer of {ORDER}")
            continue
        for imported in _imports(name, tree):
            other = _layer(imported)
            if other in ORDER and ORDER.index(other) > ORDER.index(own):
                faults.append(f"{name}: {own} imports {imported}")
    return faults


def placement_faults(files):
    """Packages used outside the layers they belong to."""
    faults = []
    for name, tree in files.items():
        own = _layer(_module(name))
        for imported in _imports(name, tree):
            top = imported.split(".")[0]
            if top in ("torch", "tensorflow", "peft"):
                faults.append(f"{name}: the product never imports {top}")
            if own == "stats" and top in ("jax", "jaxlib", "flax", "optax"):
                faults.append(f"{name}: stats imports no JAX, found {imported}")
            if imported.startswith("flax.nnx") and own != "models":
                faults.append(f"{name}: nnx is imported under models/ only, found {imported}")
            if own == "report" and (
                _layer(imported) in ("models", "weights", "inference", "rl") or top in ("jax", "flax")
            ):
                faults.append(f"{name}: report reads files, never a model, found {imported}")
            if top == "pickle":
                faults.append(f"{name}: no pickle")
    return faults


FILES = _files()


def test_imports_go_one_way():
    assert layer_faults(FILES) == []


def test_packages_stay_where_they_belong():
    assert placement_faults(FILES) == []


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("canaryjax/stats/x.py", "from canaryjax.data import y", "stats imports canaryjax.data.y"),
        ("canaryjax/rl/x.py", "def f():\n    import canaryjax.audit.trial", "rl imports canaryjax.audit.trial"),
        ("canaryjax/rl/x.py", "from ..canaries import y\nfrom ..report import z", "rl imports canaryjax.report.z"),
        ("canaryjax/data/x.py", "from canaryjax import cli", "data imports canaryjax.cli"),
        ("canaryjax/audit/trial.py", "from canaryjax.cli import main", "audit imports canaryjax.cli.main"),
        ("canaryjax/errors.py", "from canaryjax import stats", "errors imports canaryjax.stats"),
        ("canaryjax/helpers/x.py", "", "'helpers' is no layer"),
    ],
)
def test_a_layer_fault_is_found(name, source, fault):
    # Proof that the test above can fail: each of these must be seen.
    assert fault in " ".join(layer_faults({name: ast.parse(source)}))


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("canaryjax/stats/x.py", "import jax.numpy as jnp", "stats imports no JAX"),
        ("canaryjax/rl/x.py", "from flax import nnx", "nnx is imported under models/ only"),
        ("canaryjax/weights/x.py", "def f():\n    import torch", "never imports torch"),
        ("canaryjax/report/x.py", "from canaryjax.rl import grpo", "report reads files"),
        ("canaryjax/report/x.py", "import jax", "report reads files"),
    ],
)
def test_a_misplaced_package_is_found(name, source, fault):
    assert fault in " ".join(placement_faults({name: ast.parse(source)}))


def test_what_is_allowed_is_not_a_fault():
    files = {
        "canaryjax/models/x.py": "from flax import nnx\nfrom canaryjax.errors import UserError",
        "canaryjax/audit/x.py": "from .y import z\nfrom canaryjax.rl import grpo",
        "canaryjax/audit/__main__.py": "from canaryjax.cli import main",
        "canaryjax/cli/x.py": "from canaryjax.report import y",
    }
    trees = {name: ast.parse(source) for name, source in files.items()}
    assert layer_faults(trees) + placement_faults(trees) == []


def test_shims_stay_shims():
    for name in SHIMS & set(FILES):
        assert len((ROOT / name).read_text().splitlines()) <= LONGEST_SHIM, name


def test_nothing_imports_a_program():
    programs = {folder.rstrip("/").replace("/", ".") for folder in PROGRAMS}
    others = {name: tree for name, tree in FILES.items() if not name.startswith(tuple(PROGRAMS))}
    users = [name for name, tree in others.items() for found in _imports(name, tree) if _under(found, programs)]
    assert users == []


def _under(imported, modules):
    return any(imported == module or imported.startswith(f"{module}.") for module in modules)


def test_files_and_functions_stay_short():
    lengths = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in FILES}
    long_files = {name for name, length in lengths.items() if length > LONGEST_FILE}
    assert long_files == set(LONG_FILES), "split the file, or give its reason in LONG_FILES"
    long_functions = {
        f"{name}:{node.name}"
        for name, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _code_lines(node) > LONGEST_FUNCTION
    }
    assert long_functions == set(LONG_FUNCTIONS), "split the function, or give its reason in LONG_FUNCTIONS"


def _code_lines(node):
    """Lines of a function without its docstring."""
    first = node.body[0]
    doc = first.end_lineno - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
    return node.end_lineno - node.lineno + 1 - doc


def test_no_module_is_named_for_nothing():
    assert [name for name in FILES if Path(name).stem in ("utils", "helpers", "misc", "common")] == []
