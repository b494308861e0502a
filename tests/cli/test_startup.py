"""Memory and cache settings, in processes of their own: they are set once, for good."""

import os
import subprocess
import sys

import pytest

CODE = """
from canaryjax.cli import startup
print(startup.keep_memory())
print(startup.use_compilation_cache())
import jax
print(jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def _start(code=CODE, **env):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "JAX_", "XDG_"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=kept | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_cache_stands_under_the_users_cache_folder(tmp_path):
    folder = f"{tmp_path}/canaryjax/jax"
    lines = _start(XDG_CACHE_HOME=str(tmp_path))
    assert lines[1:] == [folder, f"{folder} 0.0"]


def test_a_given_cache_folder_is_kept(tmp_path):
    lines = _start(JAX_COMPILATION_CACHE_DIR=f"{tmp_path}/mine", XDG_CACHE_HOME=f"{tmp_path}/other")
    assert lines[1] == f"{tmp_path}/mine"
    assert not (tmp_path / "other").exists()


def test_settings_reach_jax_that_was_imported_before(tmp_path):
    lines = _start("import jax\n" + CODE, XDG_CACHE_HOME=str(tmp_path))
    assert lines[2] == f"{tmp_path}/canaryjax/jax 0.0"


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    lines = _start(XDG_CACHE_HOME=f"{tmp_path}/file")
    assert lines[1] == "None"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's; found another system")
def test_malloc_is_told_once_and_the_users_own_settings_win(tmp_path):
    assert _start(XDG_CACHE_HOME=str(tmp_path))[0] == "True"
    assert _start(XDG_CACHE_HOME=str(tmp_path), MALLOC_ARENA_MAX="2")[0] == "False"
