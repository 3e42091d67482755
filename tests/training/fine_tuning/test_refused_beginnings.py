"""What a training cannot begin with is one sentence that names the key, and exit status 2; nothing is left behind."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from commands import call_tmt
from toy import toy_config, toy_mapping, write_toy_corpus

from transformer_mt.config.loading import load_config
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.errors import UserError
from transformer_mt.model.named_parts import belongs, outline
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.fine_tuning.kept_tokenizers import way_to_new_words
from transformer_mt.training.fine_tuning.source_run import differing_keys, open_source
from transformer_mt.training.fine_tuning.take_weights import take_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`runs/old` of one step; `runs/damaged`, whose checkpoint was changed; `runs/half`, whose was never finished; and
    `runs/begun`, which has none.
    """
    folder = tmp_path_factory.mktemp("refused")
    mapping = toy_mapping(write_toy_corpus(folder / "toy", 30), training={"max_steps": 1})
    mapping["name"] = "old"
    mapping["data"]["cache_dir"] = str(folder / "cache")
    (folder / "old.yaml").write_text(yaml.safe_dump(mapping))
    assert call_tmt(folder, "train", "--config", "old.yaml", "validation.num_translated=0").returncode == 0
    runs = folder / "runs"
    for name in ("damaged", "half", "begun"):
        shutil.copytree(runs / "old", runs / name)
    weights = runs / "damaged/checkpoints/step_1/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (runs / "half/checkpoints/step_1/manifest.json").unlink()
    shutil.rmtree(runs / "begun/checkpoints")
    (folder / "empty").mkdir()
    (folder / "circle").symlink_to("circle")
    return folder


OLD = "training.init_from=runs/old"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["training.init_from=nowhere"], "training.init_from: nowhere is not the folder of a run"),
        (["training.init_from=empty"], "training.init_from: empty is not the folder of a run: it has no config.yaml"),
        (["training.init_from=circle"], "training.init_from: circle is not the folder of a run: it has no config.yaml"),
        (["training.init_from=runs/old/checkpoints/step_1"], "is not the folder of a run: .* Did you mean runs/old?"),
        ([f"training.init_from={'x' * 300}"], "training.init_from: x+ is too long a path for this system"),
        (["training.init_from=runs/begun"], "training.init_from: runs/begun has no checkpoint yet"),
        (["training.init_from=runs/half"], "training.init_from: runs/half has no checkpoint yet"),
        (["training.init_from=runs/damaged"], "model.safetensors is damaged: .* checkpoint: step_N"),
        (["training.init_from={run: runs/old, checkpoint: step_7}"],
         "has no checkpoint 'step_7'; there are best, last"),
        (["name=me", "training.init_from=runs/me"], "training.init_from names runs/me, .* this very run"),
        (["name=old", OLD], "training.init_from names runs/old, .* this very run"),
        ([OLD, "model.d_ff=48"],
         r"part encoder of runs/old .*model.d_ff is 48 and was 32, so that \S+ is \(48, 16\) here and \(32, 16\)"),
        ([OLD, "model.num_heads=4"], "model.num_heads is 4 and was 2, by which the same weights mean something else"),
        ([OLD, "model.num_decoder_layers=2"],
         r"the part decoder .*num_decoder_layers is 2 and was 1, so that decoder.layers.1\S+ is .* and missing there.*"
         r"or take what fits: training.init_from: \{run: runs/old, parts: \[encoder, [^\]]*output\]\}\.$"),
        ([OLD, "model.tie_embeddings=none"], "the part tgt_embeddings .*tie_embeddings is 'none' and was 'decoder'"),
        (["training.init_from={run: runs/old, parts: [output]}", "model.d_model=32"],
         r"the part output .*model.d_model is 32 and was 16, so that .*config.yaml does\)\.$"),
        ([OLD, "model.architecture=decoder_only", "model.num_encoder_layers=0", "tokenizer.joint=true"],
         "model.architecture is 'decoder_only' and was 'encoder_decoder'"),
        ([OLD, "tokenizer.kind=bpe", "tokenizer.vocab_size=400"], "tokenizer.kind is 'bpe' and was 'word'"),
        ([OLD, "tokenizer.lowercase=true"], "the tokenizers of runs/old are kept, .*lowercase is True and was False"),
        ([OLD, "tokenizer.vocab_size=50"], "tokenizer.vocab_size is 50 and was 100"),
        (["training.init_from={run: runs/old, vocabulary: extend}", "tokenizer.lowercase=true"], "lowercase is True"),
        (["training.init_from={run: runs/old, vocabulary: extend}", "tokenizer.kind=bpe", "tokenizer.vocab_size=400"],
         "vocabulary: extend adds words, and tokenizer.kind is bpe, whose bytes know every text"),
        (["training.init_from={run: runs/old, vocabulary: extend}", "data.streaming=true"],
         "vocabulary: extend reads all of data.train .* data.streaming is true"),
        (["training.init_from={run: runs/old, vocabulary: new}"], "vocabulary: new .* embeddings of both sides"),
        (["training.init_from={run: runs/old, vocabulary: new, parts: [src_embeddings]}", "tokenizer.joint=true"],
         "vocabulary: new keeps the tokenizer of one side, and tokenizer.joint is true"),
        (["training.init_from={run: runs/old, parts: []}"], "training.init_from.parts: .* at least 1 entry"),
        (["training.init_from={run: runs/old, parts: [encodr]}"], "'encodr' is not one of .* did you mean encoder?"),
        (["training.init_from={run: runs/old, parts: [encoder, output, encoder]}"],
         "training.init_from.parts: encoder is named twice; name each part once"),
        (["training.freeze=[decoder, decoder]"], "training.freeze: decoder is named twice; name each part once"),
        (["training.init_from={checkpoint: best}"], "training.init_from.run: missing"),
        (["training.init_from=3"], "training.init_from: 3 is a number"),
        (["training.freeze=[encoder, decoder, embeddings]"], "training.freeze names every part of the model"),
        (["training.freeze=[encoder, src_embeddings]", "model.architecture=decoder_only", "model.num_encoder_layers=0",
          "tokenizer.joint=true"], "training.freeze names encoder, which .* decoder_only has not"),
        (["training.freeze=encoder"], "training.freeze: 'encoder' is text, a list is needed"),
    ],
)  # fmt: skip
def test_it_is_one_sentence_that_names_the_key(folder: Path, arguments: list[str], message: str) -> None:
    before = sorted((folder / "runs").iterdir())
    result = call_tmt(folder, "train", "--config", "old.yaml", "name=new", *arguments)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert re.search(message, line), line
    assert line.startswith("tmt: ")
    assert sorted((folder / "runs").iterdir()) == before


@pytest.mark.parametrize(
    ("changed", "refused", "parts"),
    [
        (["tokenizer.kind=bpe", "tokenizer.vocab_size=400"], 1, "encoder, decoder"),
        (["tokenizer.joint=true", "model.tie_embeddings=all", "model.num_encoder_layers=2"], 2, "decoder"),
    ],
)
def test_what_it_advises_is_taken(folder: Path, changed: list[str], refused: int, parts: str, tmp_path: Path) -> None:
    """A model and tokenizers that differ are told at once, and without the parts that hang on either it trains."""
    command = ("train", "--config", "old.yaml", "--runs", str(tmp_path), "validation.num_translated=0", *changed)
    result = call_tmt(folder, *command, OLD)
    assert result.returncode == 2
    assert ("does not fit this config" in result.stderr) + (
        "tokenizers of runs/old are kept" in result.stderr
    ) == refused
    (advice,) = re.findall(r"or take what fits: (training\.init_from): (\{.*\})\.$", result.stderr.strip())
    assert f"parts: [{parts}], vocabulary: new" in advice[1]
    followed = call_tmt(folder, *command, "=".join(advice))
    assert followed.returncode == 0, followed.stderr


def test_for_a_larger_vocabulary_of_words_it_advises_to_extend(folder: Path, tmp_path: Path) -> None:
    command = ("train", "--config", "old.yaml", "--runs", str(tmp_path), "validation.num_translated=0")
    result = call_tmt(folder, *command, OLD, "tokenizer.vocab_size=900")
    assert result.returncode == 2
    advice = re.findall(r"behind the old ones: (training\.init_from): (\{.*\})\.$", result.stderr.strip())
    assert advice == [("training.init_from", "{run: runs/old, vocabulary: extend}")]
    followed = call_tmt(folder, *command, "=".join(advice[0]), "tokenizer.vocab_size=900")
    assert followed.returncode == 0, followed.stderr
    smaller = call_tmt(folder, *command, OLD, "tokenizer.vocab_size=20")
    assert smaller.returncode == 2
    assert "extend}" not in smaller.stderr


def test_text_of_other_words_is_refused_with_the_way_to_new_words(folder: Path) -> None:
    for language in ("en", "es"):
        (folder / f"other.{language}").write_text("alpha beta gamma\n" * 3)
    other = f"[{{src: {folder}/other.en, tgt: {folder}/other.es}}]"
    both = (f"data.train={other}", f"data.validation={other}")
    result = call_tmt(folder, "train", "--config", "old.yaml", "name=new", OLD, *both)
    assert result.returncode == 2
    assert "100% of the validation target's words are not in the vocabulary (15 entries)" in result.stderr
    assert "If not, vocabulary: extend there adds the frequent words of data.train" in result.stderr


@pytest.mark.parametrize(
    ("init_from", "way"),
    [
        (None, None),
        ("runs/old", "vocabulary: extend adds"),
        ({"run": "runs/old", "vocabulary": "extend"}, "a lower tokenizer.min_frequency"),
        ({"run": "runs/old", "vocabulary": "new", "parts": ["encoder"]}, None),
        ({"run": "runs/old", "vocabulary": "new", "parts": ["encoder", "src_embeddings"]}, "runs/old does not know"),
    ],
)
def test_what_makes_words_known_is_said_by_the_vocabulary(folder: Path, init_from: object, way: str | None) -> None:
    told = way_to_new_words(toy_config(folder / "toy", training={"init_from": init_from}))
    assert [way in line for line in told] == [True] if way else told == []


def test_positions_that_no_weight_knows_may_be_more() -> None:
    """`max_len` counts where positions are learned; ties of the target do not concern the embeddings of the source."""
    at_64, at_32 = (
        {"d_model": 8, "num_heads": 2, "max_len": length, "layer_drop": length / 100} for length in (64, 32)
    )
    models = [ModelConfig.model_validate(keys) for keys in (at_64, at_32)]
    assert differing_keys("encoder", *models) == []
    learned = [ModelConfig.model_validate({**keys, "positions": "learned"}) for keys in (at_64, at_32)]
    assert differing_keys("encoder", *learned) == ["max_len"]
    assert differing_keys("embeddings", *learned) == []
    ties = {tied: ModelConfig.model_validate({**at_64, "tie_embeddings": tied}) for tied in ("none", "decoder", "all")}
    assert differing_keys("src_embeddings", ties["none"], ties["decoder"]) == []
    assert differing_keys("src_embeddings", ties["none"], ties["all"]) == ["tie_embeddings"]
    assert differing_keys("output", ties["none"], ties["decoder"]) == ["tie_embeddings"]


RECURRENT = {"architecture": "rnn", "d_model": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.mark.parametrize(
    ("part", "rnn", "found"),
    [
        ("encoder", {}, []),  # what null stands for
        ("encoder", {"d_embedding": 8, "d_readout": 8}, []),
        ("encoder", {"cell": "lstm"}, ["rnn.cell"]),
        ("encoder", {"d_readout": 4}, []),
        ("decoder", {"d_readout": 4}, ["rnn.d_readout"]),
        ("decoder", {"attention": "luong_dot", "input_feeding": False}, ["rnn.attention", "rnn.input_feeding"]),
        ("src_embeddings", {"d_embedding": 4}, ["rnn.d_embedding"]),
        ("tgt_embeddings", {"d_embedding": 4}, ["rnn.d_embedding"]),
        ("output", {"d_readout": 4}, ["rnn.d_readout"]),
        ("output", {"attention": "luong_dot"}, []),
    ],
)
def test_the_keys_of_a_recurrent_network_count_one_by_one(part: str, rnn: dict, found: list[str]) -> None:
    keys = {**RECURRENT, "tie_embeddings": "none"}
    models = [ModelConfig.model_validate(keys), ModelConfig.model_validate({**keys, "rnn": rnn})]
    assert differing_keys(part, *models) == found
    shapes = [{n: p.shape for n, p in outline(model).named_parameters() if belongs(n, part)} for model in models]
    assert (shapes[0] == shapes[1]) or found, "what no key tells apart has the same shapes"


def test_a_part_of_other_sections_is_told_by_their_keys(folder: Path) -> None:
    """No value of a section as a whole: each key by itself, and those of a recurrent network for two of these alone."""
    keys = {**RECURRENT, "tie_embeddings": "none"}
    recurrent, other = ModelConfig.model_validate(keys), ModelConfig(d_model=8, num_heads=2, tie_embeddings="none")
    assert not any(key.startswith("rnn") for key in differing_keys("encoder", recurrent, other))
    drawn = ModelConfig.model_validate({"d_model": 8, "num_heads": 2, "patches": {"height": 16, "width": 8}})
    same, narrower = (
        ModelConfig.model_validate({**drawn.model_dump(), "patches": {"height": 16, "width": 8, "step": step}})
        for step in (8, 4)
    )
    assert differing_keys("encoder", drawn, same) == []
    assert differing_keys("src_embeddings", drawn, narrower) == ["patches.step"]
    pictures = ("model.patches={height: 16, width: 8}", "data.source_as=picture", OLD)
    result = call_tmt(folder, "train", "--config", "old.yaml", "name=new", *pictures)
    assert "model.patches.height is 16 and was None, model.patches.width is 8 and was None" in result.stderr
    assert "PatchesConfig" not in result.stderr


def test_a_path_from_python_that_is_none_is_refused(folder: Path) -> None:
    config = toy_config(folder / "toy", training={"init_from": "a\0b"})
    with pytest.raises(UserError, match=r"training\.init_from: 'a\\x00b' holds a NUL character"):
        open_source(config, RunFolder(folder / "runs/new"))


def test_weights_of_another_vocabulary_are_refused_by_name_and_shapes(folder: Path) -> None:
    """Tokenizers of another run, with their own manifest, in the folder."""
    mapping = yaml.safe_load((folder / "old.yaml").read_text())
    mapping["tokenizer"]["vocab_size"] = 12
    (folder / "small.yaml").write_text(yaml.safe_dump(mapping))
    small = ("train", "--config", "small.yaml", "name=small", "validation.num_translated=0")
    assert call_tmt(folder, *small).returncode == 0
    shutil.copytree(folder / "runs/old", folder / "mixed")
    shutil.rmtree(folder / "mixed/tokenizers")
    shutil.copytree(folder / "runs/small/tokenizers", folder / "mixed/tokenizers")
    result = call_tmt(folder, "train", "--config", "old.yaml", "name=new", "training.init_from=mixed")
    assert result.returncode == 2
    name = "encoder.embedder.embedding.weight"
    assert f"tmt: training.init_from: {name} is (15, 16) in mixed/checkpoints/step_1 and (12, 16) in" in result.stderr


def test_a_checkpoint_that_is_deleted_meanwhile_is_told_by_the_key(folder: Path, tmp_path: Path) -> None:
    """By a run that still trains, while the data is prepared."""
    shutil.copytree(folder / "runs/old", tmp_path / "gone")
    config = load_config(str(folder / "old.yaml"), [f"training.init_from={tmp_path / 'gone'}"]).config
    source = open_source(config, RunFolder(tmp_path / "new"))
    assert source is not None
    shutil.rmtree(source.checkpoint)
    source.origin.write(tmp_path / "origin.json")
    way_out = r"is missing\. Choose another with training\.init_from: {run"
    with pytest.raises(UserError, match=rf"^training\.init_from: .*step_1/manifest\.json {way_out}"):
        take_weights(outline(config.model), source)


def test_a_damaged_origin_is_told_where_it_is_read(folder: Path) -> None:
    new = ("train", "--config", "old.yaml", "name=child", OLD, "validation.num_translated=0")
    assert call_tmt(folder, *new).returncode == 0
    assert call_tmt(folder, "card", "--run", "runs/child").returncode == 0
    (folder / "runs/child/origin.json").write_text('{"name": 1}')
    result = call_tmt(folder, "card", "--run", "runs/child")
    assert result.returncode == 2
    assert "origin.json is damaged" in result.stderr
