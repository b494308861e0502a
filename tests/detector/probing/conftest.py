"""A throw-away site, made once, and copies of it for tests that write beside it."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("oracle.py")


@pytest.fixture(scope="session")
def oracle():
    """The module of the backend that knows."""
    spec = importlib.util.spec_from_file_location("detector_oracle", FILE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def made_site(oracle, tmp_path_factory):
    """A folder with a site's folders `site` and `keys`; not to be written to."""
    root = tmp_path_factory.mktemp("made")
    oracle.make_site(root)
    return root


@pytest.fixture(scope="session")
def site(oracle, made_site):
    """The site, read."""
    from canaryjax.detector.targets import make_targets

    return make_targets(oracle.make_config(made_site))


@pytest.fixture
def root(made_site, tmp_path):
    """A folder for one test with the site's secrets and what a run reads of a site besides, which is not much."""
    (tmp_path / "copy" / "site").mkdir(parents=True)
    shutil.copytree(made_site / "keys", tmp_path / "copy" / "keys")
    return tmp_path / "copy"


@pytest.fixture
def full_root(made_site, tmp_path):
    """A copy of all of the site's folders, for one test that changes them."""
    shutil.copytree(made_site, tmp_path / "full")
    return tmp_path / "full"
