"""`tmt config show` and `tmt config schema`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transformer_mt.cli.verbs.config import app
from transformer_mt.config.loading import config_schema, dump_config, load_config
from transformer_mt.errors import UserError

YAML = "data: {train: [{tsv: größe.tsv}], validation: [{tsv: b}]}\ntraining: {max_steps: 1}\n"


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("a.yaml").write_text(YAML, encoding="utf-8")
    Path("configs/b.yaml").write_text(YAML, encoding="utf-8")


def test_show_prints_the_resolved_config():
    result = CliRunner().invoke(app, ["show", "a.yaml", "model.d_model=256", "seed=3"])
    assert result.exit_code == 0
    assert result.stdout == dump_config(load_config("a.yaml", ["model.d_model=256", "seed=3"]).config)
    assert "d_model: 256\n" in result.stdout
    assert result.stderr == ""


def test_show_says_on_standard_error_which_file_it_took():
    result = CliRunner().invoke(app, ["show", "b.yaml"])
    assert result.stderr == "b.yaml: there is none in the working folder; taking configs/b.yaml\n"
    assert result.stdout.startswith("name: b\n")


def test_a_user_error_is_left_to_the_entry_point():
    result = CliRunner().invoke(app, ["show", "a.yaml", "model.n_heads=8"])
    assert isinstance(result.exception, UserError)


def test_schema_prints_json():
    result = CliRunner().invoke(app, ["schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == config_schema()


def test_the_command_line_starts_light_and_never_loads_torch():
    code = (
        "import sys; from transformer_mt.cli.verbs.config import app\n"
        "assert not {'pydantic', 'yaml'} & set(sys.modules)\n"
        "app(['show', 'a.yaml'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=False)
    assert result.stderr == ""
    assert "größe.tsv" in result.stdout


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_is_shown_can_be_read_whatever_the_encoding_of_the_terminal(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for override in ("data.root=dön", "data.root=świat"):
        command = [sys.executable, "-m", "transformer_mt", "config", "show", "a.yaml", override]
        shown = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
        Path("shown.yaml").write_bytes(shown)
        assert load_config("shown.yaml").config.data.root == override.partition("=")[2]
