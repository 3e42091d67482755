"""An aligner on the disk: both vocabularies as JSON, the numbers as safetensors, and their manifest."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transformer_mt.aligning.diagonal_model import DiagonalModel
from transformer_mt.aligning.lexical_table import LexicalTable
from transformer_mt.errors import UserError
from transformer_mt.storage.manifest import check_manifest, write_manifest
from transformer_mt.storage.weights import read_tensors, save_tensors

META, TABLES = "aligner.json", "tables.safetensors"
VERSION = 2  # of the files and of the splitting into words; raise it whenever another version would read them wrongly
_DIRECTIONS = ("forward", "backward")
_WAY_OUT = "Make it again with `tmt align --train`."
Vocabularies = tuple[list[str], list[str]]
Models = tuple[DiagonalModel, DiagonalModel]


def write_aligner(folder: Path, vocabularies: Vocabularies, models: Models) -> None:
    """Write the files to a folder that is there, the manifest last. Raises OSError."""
    tensors, numbers = {}, {}
    for name, model in zip(_DIRECTIONS, models, strict=True):
        tensors |= {f"{name}.{key}": tensor for key, tensor in _tensors(model).items()}
        numbers[name] = {"tension": model.tension, "null_probability": model.null_probability}
    save_tensors(tensors, folder / TABLES)
    meta = {"version": VERSION, **numbers, "src_words": vocabularies[0], "tgt_words": vocabularies[1]}
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")
    write_manifest(folder, [META, TABLES])


def read_aligner(folder: Path) -> tuple[Vocabularies, Models]:
    """What `write_aligner` wrote. UserError where a file is missing, was changed, or is of another version."""
    check_manifest(folder, [META, TABLES], _WAY_OUT)
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    if meta["version"] != VERSION:
        raise UserError(f"{folder} was made by another version of this program. {_WAY_OUT}")
    tensors = read_tensors(folder / TABLES)
    forward, backward = (_model(tensors, name, **meta[name]) for name in _DIRECTIONS)
    return (meta["src_words"], meta["tgt_words"]), (forward, backward)


def _tensors(model: DiagonalModel) -> dict[str, Tensor]:
    arrays = {
        "row_starts": model.table.row_starts,
        "columns": model.table.columns,
        "values": model.table.values.astype(np.float32),
        "null": model.null.astype(np.float32),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _model(tensors: dict[str, Tensor], name: str, tension: float, null_probability: float) -> DiagonalModel:
    arrays = {key: tensors[f"{name}.{key}"].numpy() for key in ("row_starts", "columns", "values", "null")}
    table = LexicalTable(arrays["row_starts"], arrays["columns"], arrays["values"].astype(np.float64))
    return DiagonalModel(table, arrays["null"].astype(np.float64), tension, null_probability)
