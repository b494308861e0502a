"""A throw-away site, made once: its folder, lists, shapes and decoder."""

import pytest

from canaryjax.detector.decode import Decoder
from canaryjax.detector.shapes import read_shapes
from canaryjax.detector.throwaway import make_site_lists
from canaryjax.detector.vocabulary import read_vocabulary


@pytest.fixture(scope="session")
def site_lists(tmp_path_factory):
    """Folder of throw-away lists and shapes; read, never written: copy it first."""
    folder = tmp_path_factory.mktemp("site") / "lists"
    make_site_lists(folder, seed=7)
    return folder


@pytest.fixture(scope="session")
def vocabulary(site_lists):
    return read_vocabulary(site_lists)


@pytest.fixture(scope="session")
def shapes(site_lists):
    return read_shapes(site_lists / "shapes.yaml")


@pytest.fixture(scope="session")
def decoder(vocabulary):
    return Decoder(vocabulary)
