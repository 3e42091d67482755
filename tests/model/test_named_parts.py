"""The named parts of a model are its parameters, each in one part; what is frozen gets no gradient."""

import itertools

import pytest
import torch

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.errors import UserError
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.named_parts import PARTS, belongs, freeze, frozen_line, outline, parameters_of, trained, whole

SMALL = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "max_len": 4}


def config_of(**keys: object) -> ModelConfig:
    keys = {**SMALL, **keys}
    if keys.get("architecture") == "decoder_only":
        keys["num_encoder_layers"] = 0
    if keys.get("architecture") == "encoder_only":
        keys["num_decoder_layers"] = 0
    if keys.get("architecture") == "rnn":
        keys = {key: value for key, value in keys.items() if key not in ("d_ff", "num_heads", "positions")}
    return ModelConfig.model_validate(keys)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
@pytest.mark.parametrize("positions", ["learned", "relative_bias", "rotary"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_parameter_belongs_to_one_part(architecture: str, positions: str, bias: bool) -> None:
    model = outline(config_of(architecture=architecture, positions=positions, bias=bias, tie_embeddings="none"))
    parts = whole(model.config)
    for name, _ in model.named_parameters():
        assert sum(belongs(name, part) for part in parts) == 1, name
    assert parameters_of(model, parts, "").keys() == dict(model.named_parameters()).keys()
    both = [part for part in ("src_embeddings", "tgt_embeddings") if part in parts]
    assert parameters_of(model, ["embeddings"], "").keys() == parameters_of(model, both, "").keys()


def test_parts_are_what_their_names_say() -> None:
    model = outline(config_of(tie_embeddings="none", positions="learned"))
    modules = {
        "encoder": [model.get_submodule("encoder.layers"), model.get_submodule("encoder.norm"),
                    model.get_submodule("encoder.embedder.positions")],
        "decoder": [model.get_submodule("decoder.layers"), model.get_submodule("decoder.norm"),
                    model.get_submodule("decoder.embedder.positions")],
        "src_embeddings": [model.get_submodule("encoder.embedder.embedding")],
        "tgt_embeddings": [model.get_submodule("decoder.embedder.embedding")],
        "embeddings": [model.get_submodule(f"{side}.embedder.embedding") for side in ("encoder", "decoder")],
        "output": [model.output],
    }  # fmt: skip
    assert [*modules, "head"] == list(PARTS)
    for part, owners in modules.items():
        expected = {parameter for owner in owners for parameter in owner.parameters()}
        assert set(parameters_of(model, [part], "").values()) == expected, part


@pytest.mark.parametrize(
    ("tied", "parts"), itertools.product(["none", "decoder", "all"], [part for part in PARTS if part != "head"])
)
def test_tied_weights_are_frozen_under_every_name(tied: str, parts: str) -> None:
    model = outline(config_of(tie_embeddings=tied))
    freeze(model, [parts])
    frozen = {id(p) for p in model.parameters() if not p.requires_grad}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if belongs(name, parts):
            assert id(parameter) in frozen
    assert trained(model).keys() == {name for name, p in model.named_parameters() if id(p) not in frozen}
    others = {"none": [], "decoder": ["tgt_embeddings"], "all": ["src_embeddings", "tgt_embeddings"]}[tied]
    if parts == "output" and others:
        assert f"frozen: output (and so {', '.join(others)}, by model.tie_embeddings: {tied}), " in (
            frozen_line(model, ["output"])
        )
    if parts == "output" and not others:
        numbers = f"{9 * 8:,} of {sum(p.numel() for p in model.parameters()):,} parameters"
        assert frozen_line(model, ["output"]) == f"frozen: output, {numbers}"


@pytest.mark.parametrize("tied", ["none", "decoder", "all"])
def test_freezing_everything_is_refused(tied: str) -> None:
    parts = ["encoder", "decoder", "embeddings"] + ["output"] * (tied == "none")
    with pytest.raises(UserError, match=r"training\.freeze names every part .* Leave one out\."):
        freeze(outline(config_of(tie_embeddings=tied)), parts)
    freeze(outline(config_of(tie_embeddings=tied)), parts[:-1])


def test_a_part_that_is_not_there_is_refused() -> None:
    model = outline(config_of(architecture="decoder_only"))
    for part in ("encoder", "src_embeddings"):
        with pytest.raises(UserError, match=f"training.freeze names {part}, which .* decoder_only has not"):
            freeze(model, [part])
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert next(model.parameters()).device == torch.device("meta")
