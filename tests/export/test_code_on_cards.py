"""The code on the card of an export, which names the place that it was written to, whatever its name."""

import ast
import re
import zipfile
from pathlib import Path

import pytest
from exports import make_translator
from translators import SMALL, write_run

from transformer_mt.storage.run_folder import RunFolder, open_run

pytest.importorskip("ctranslate2", reason="the extra ct2 is not installed; the extra dev brings it")

from transformer_mt.export import ctranslate2
from transformer_mt.export.argos import export as argos
from transformer_mt.export.huggingface import export as huggingface

NAME = 'it\'s a "model" \\new'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    model = {"num_encoder_layers": 1, **SMALL, "norm_position": "post", "tie_embeddings": "none"}
    tokenizer = {"kind": "bpe", "vocab_size": 300, "joint": True}
    return open_run(write_run(tmp_path_factory.mktemp("run"), make_translator(model, tokenizer=tokenizer)))


@pytest.mark.parametrize("export_run", [ctranslate2.export_run, huggingface.export_run, argos.export_run])
def test_the_code_names_the_place_whatever_its_name(export_run, run: RunFolder, tmp_path: Path) -> None:
    name = f"{NAME}.argosmodel" if export_run is argos.export_run else NAME
    export_run(run, None, tmp_path / name)
    if export_run is argos.export_run:
        with zipfile.ZipFile(tmp_path / name) as archive:
            archive.extract("translate-en_es-1_0/README.md", tmp_path)
    (card,) = tmp_path.rglob("README.md")
    (code,) = re.findall(r"```python\n(.*?)```", card.read_text("utf-8"), re.DOTALL)
    assert name in {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
