"""From files and overrides to a validated config: OmegaConf merges, pydantic checks."""

import difflib
import hashlib
import json
import os.path
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from canaryjax.config.mistake import describe
from canaryjax.config.policy import ALGORITHMS, chosen_algorithm
from canaryjax.config.schema import AuditConfig
from canaryjax.errors import UserError

# What reading and merging raises for what a file or an override holds: a tag may make its own errors, too.
UNREADABLE = (
    yaml.YAMLError,
    OmegaConfBaseException,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
# Keys that only observe a run: they change no bit of what it trains and scores, so a resumed run may have others.
OBSERVING = ("output.log_every", "output.sample_every", "output.report_to")
MOST_MISTAKES = 5  # that are told at once
SHIPPED_FOR = {"grpo": "quick", "ppo": "embedded/ppo"}
SWEEPS = "sweeps"  # the folder of shipped sweep files, which are no configs of an audit
SHIPPED_CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def config_hash(config: AuditConfig) -> str:
    """Hex digest of every value but those of `OBSERVING`; two runs with equal hashes train and score the same."""
    values = config.model_dump(mode="json")
    for key in OBSERVING:
        section, name = key.split(".")
        del values[section][name]
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_config(path: str | Path, overrides: list[str] | None = None) -> AuditConfig:
    """Reads a YAML file, applies `key=value` overrides and validates the result.

    Args:
      path: A file, or the name of a shipped config such as `quick` or `embedded/null`. A file's `extends:` key names
        another, relative to it, whose values it starts from; a policy section that names another algorithm replaces
        that file's, since the two have other keys and other defaults.
      overrides: Items such as `canary.rate=0.1`.

    Returns:
      The validated tree.

    Raises:
      UserError: A missing or malformed file, an unknown key (the nearest is named), or a value out of range.
    """
    tree = _read_tree(find_config(path), seen=())
    for item in overrides or []:
        if "=" not in item or "" in item.split("=", 1)[0].split("."):
            raise UserError(f"expected an override of the form key=value, found {item!r}; for example canary.rate=0.1")
    try:
        over = OmegaConf.from_dotlist(list(overrides or []))
        _refuse_other_algorithm(tree, over, str(path))
        tree = _merged(tree, over, str(path))
        _refuse_missing(OmegaConf.missing_keys(tree), str(path))
        values = OmegaConf.to_container(tree, resolve=True)
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"expected overrides that merge into {path}; {_one_line(error)}") from error
    return validate_config(values, where=str(path))


def find_config(path: str | Path) -> Path:
    """The file a config argument means: itself, or the shipped config of that name."""
    return _find(Path(), str(path))


def _find(folder: Path, name: str) -> Path:
    """The file that a name means to whoever stands in a folder."""
    for candidate in (folder / name, SHIPPED_CONFIGS / name, SHIPPED_CONFIGS / f"{name}.yaml"):
        if os.path.isfile(candidate):  # False, not an error, for a name that is too long for the file system
            return candidate
    files = [path.relative_to(SHIPPED_CONFIGS).with_suffix("") for path in SHIPPED_CONFIGS.rglob("*.yaml")]
    shipped = sorted(str(path) for path in files if path.parts[0] != SWEEPS)
    near = difflib.get_close_matches(name.removesuffix(".yaml"), shipped, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "check the name"
    raise UserError(f"expected a config file or one of {shipped}, found no file {name!r}; {hint}")


def validate_config(values: object, where: str) -> AuditConfig:
    """Turns plain values into a config, or raises one `UserError` that names each mistake."""
    if not isinstance(values, dict):
        raise UserError(f"expected a mapping of config keys in {where}, found {type(values).__name__}")
    try:
        return AuditConfig.model_validate(values)
    except ValidationError as error:
        algorithm = chosen_algorithm(values.get("policy"))
        algorithm = algorithm if algorithm in list(ALGORITHMS) else "grpo"
        found = "; ".join(describe(item, algorithm) for item in error.errors()[:MOST_MISTAKES])
        raise UserError(f"{found} (in {where})") from None


def _read_tree(path: Path, seen: tuple[Path, ...]):
    if path.resolve() in seen:
        raise UserError(f"expected `extends` to end, found a circle at {path}; remove one of the links")
    try:
        tree = OmegaConf.load(path)
    except (*UNREADABLE, OSError) as error:
        raise UserError(f"expected readable YAML in {path}; {_one_line(error)}") from error
    if not OmegaConf.is_dict(tree) or not tree:  # nothing would mean every default: days of training, unasked
        found = "something else" if tree else "nothing"
        raise UserError(f"expected a mapping of config keys in {path}, found {found}; see configs/quick.yaml")
    assert isinstance(tree, DictConfig)
    if "grid" in tree or "factors" in tree:
        raise UserError(
            f"expected the config of one audit in {path}, found a sweep of several; run canaryjax sweep {path}"
        )
    try:
        if OmegaConf.is_missing(tree, "extends"):
            _refuse_missing({"extends"}, str(path))
        parent = tree.pop("extends", None)
    except OmegaConfBaseException as error:  # an interpolation
        raise UserError(f"expected `extends` in {path} to name a file; {_one_line(error)}") from error
    if parent is None:
        if not tree:
            raise UserError(f"expected keys beside `extends: null` in {path}, found none; see configs/quick.yaml")
        return tree
    try:
        beside = _find(path.parent, str(parent))
    except UserError as error:
        raise UserError(f"`extends: {parent}` in {path}: {error}") from error
    start = _read_tree(beside, (*seen, path.resolve()))
    try:
        own, inherited = tree.get("policy"), start.get("policy")
        if isinstance(own, DictConfig) and "algorithm" in own and own.algorithm != chosen_algorithm(inherited):
            start.pop("policy", None)
        return _merged(start, tree, str(path))
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"expected values in {path} that merge into {beside}; {_one_line(error)}") from error


def _merged(tree, over, where: str):
    """`over` on top of `tree`; a value of ??? would be passed over and the one below it taken."""
    merged = OmegaConf.merge(tree, over)
    _refuse_missing(OmegaConf.missing_keys(over) - OmegaConf.missing_keys(merged), where)
    return merged


def _refuse_other_algorithm(tree, over, where: str) -> None:
    """A policy section is written for one algorithm: its rates and lengths make no study of the other, nor do defaults.

    Those are the paper's, for models a thousand times the embedded one's size.
    """
    own, wanted = tree.get("policy"), over.get("policy")
    if not (isinstance(own, DictConfig) and isinstance(wanted, DictConfig) and "algorithm" in wanted):
        return
    before, now = chosen_algorithm(own), wanted.algorithm
    if before == now or now not in list(ALGORITHMS) or not set(own) - {"algorithm"}:
        return
    sibling = where.removesuffix(".yaml").replace(f"_{before}", f"_{now}")
    known = sibling != where.removesuffix(".yaml") and os.path.isfile(SHIPPED_CONFIGS / f"{sibling}.yaml")
    raise UserError(
        f"expected policy.algorithm={before}, for which the policy section of {where} is written, found the override "
        f"{now}; take the config {sibling if known else SHIPPED_FOR[now]}, or a file with `extends: {where}` and a "
        "policy section of its own"
    )


def _refuse_missing(keys: set[str], where: str) -> None:
    if keys:
        raise UserError(f"expected a value for {min(keys)!r}, found ??? (in {where}); give one, or leave the key out")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
