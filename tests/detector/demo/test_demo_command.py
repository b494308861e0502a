"""What the demo refuses before it begins, and what it says of a server that never listens."""

import pytest

from canaryjax.cli import main
from canaryjax.detector.demo.serving import serving
from canaryjax.errors import UserError


def test_a_directory_that_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(SystemExit) as stop:
        main(["detector", "demo", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "expected a new directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_server_that_ends_is_told_with_its_log(tmp_path):
    log = tmp_path / "server.log"
    with pytest.raises(UserError, match=r"server\.log"), serving(tmp_path / "nothing", log, 2):
        pytest.fail("served a model that is not there")
    assert "nothing" in log.read_text()
