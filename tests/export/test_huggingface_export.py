"""An exported folder computes our logits in the real `transformers`; its tokenizer makes our ids; refusals by key."""

import json
import random
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import tokenizers as hf
import torch
from foreign import ask, foreign_python
from safetensors import SafetensorError
from safetensors.torch import load_file
from toy import all_entries, toy_pairs
from translators import PICTURES, SMALL, write_run
from translators import make_translator as make_any_translator

from transformer_mt.config.sections.decoding import DecodingConfig, SearchConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.section import as_typed
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.export.card import EXAMPLE
from transformer_mt.export.expressible import OPTIONS
from transformer_mt.export.huggingface.export import OBEYED, export_run, generation_settings, search_notes, write_model
from transformer_mt.export.huggingface.weights import refuse_inexpressible
from transformer_mt.storage import weights
from transformer_mt.storage.run_folder import open_run

make_translator = partial(make_any_translator, noise=0.3, training={"max_tokens": 512})  # weights far apart
# The oldest and the newest that are promised, each with what it asks for beside what is installed here.
VERSIONS = {"4.57.6": ["huggingface_hub<1.0"], "5.23.0": []}
SCRIPT = Path(__file__).with_name("foreign_transformers.py")
TIED = {"tie_embeddings": "all"}


def expressible(key: str) -> list[str]:
    return [name for name, option in OPTIONS[key].items() if option.huggingface is not None]


INEXPRESSIBLE = [(key, name) for key in OPTIONS for name in OPTIONS[key] if name not in expressible(key)]
CONVERTED: dict[str, dict[str, Any]] = {
    **{
        f"{norm_position}-norm, {activation}": {"norm_position": norm_position, "activation": activation, **TIED}
        for norm_position in expressible("norm_position")
        for activation in expressible("activation")
    },
    **{
        f"post-norm, tied: {tied}{', no bias' * (not bias)}": {
            "norm_position": "post", "tie_embeddings": tied, "bias": bias,
        }
        for tied in ("none", "decoder")
        for bias in (True, False)
    },
    **{f"{p}-norm, no bias": {"norm_position": p, "bias": False, **TIED} for p in expressible("norm_position")},
    "two key heads": {"num_kv_heads": 2, **TIED},
    "unscaled": {"scale_attention": False, **TIED},
    "three layers and one": {"num_encoder_layers": 3, "num_decoder_layers": 1, **TIED},
    "a window that hides nothing": {"attention_window": SMALL["max_len"], **TIED},
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "min_length": {"min_length": 6},
    "max_length": {"max_length": 3},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "allow_unk": {"allow_unk": True},
}
UNLIMITED = {"beam_size": 1, "max_length_ratio": 100.0}  # the positions are the limit, as they are there
TEXTS = [
    *(src for src, _ in toy_pairs(12, seed=1)), "", "  one\u00a0 two\u2028three\x1cfour\t", "</s> <pad> one<s><unk>",
    "e\u0301 🙂 ß\u200b ñandú, «¿qué?» don't... 日本語。", "▁ Ġ Ċ \\u0041 \u0085",
]  # fmt: skip
HOSTILE = [(a, b) for a in TEXTS[12:] for b in TEXTS[12:] if a and b]


def translator_of(model: dict[str, Any], kind: str = "bpe", decoding: dict[str, Any] | None = None) -> Translator:
    tokenizer = {"kind": kind, "vocab_size": 400, **all_entries(kind), "joint": True}
    return make_translator(
        {"num_encoder_layers": 2, **SMALL, **model}, toy_pairs(50) + HOSTILE, tokenizer=tokenizer,
        decoding={**UNLIMITED, **(decoding or {})},
    )  # fmt: skip


def write(translator: Translator, folder: Path) -> Path:
    write_model(translator.model, translator.src_tokenizer, translator.config, folder)
    return folder


def padded(rows: list[list[int]]) -> list[list[int]]:
    longest = max(map(len, rows))
    return [row + [PAD_ID] * (longest - len(row)) for row in rows]


def questions(translator: Translator) -> dict[str, Any]:
    dice = random.Random(5)
    ids = range(UNK_ID + 3, translator.src_tokenizer.vocab_size)
    sources = [[*dice.choices(ids, k=n), EOS_ID] for n in (1, 5, 23, 14, 3)]
    targets = [[BOS_ID, *dice.choices(ids, k=n)] for n in (1, 9, 23, 2, 20)]
    texts = [text for text in TEXTS if len(translator.src_tokenizer.encode(text)) < SMALL["max_len"]]
    written = [[*dice.choices(ids, k=8), EOS_ID, PAD_ID] for _ in range(30)] + [[BOS_ID, EOS_ID], []]
    return {"src": padded(sources), "tgt_in": padded(targets), "texts": texts, "ids": written, "generate": [{}]}


@cache
def asked(version: str, folder: Path) -> tuple[dict[str, Translator], dict[str, dict], dict[str, dict]]:
    """Every model of CONVERTED and RULES, what was asked of it, and what that version answered."""
    translators = {name: translator_of(model) for name, model in CONVERTED.items()}
    free = {"norm_position": "post", "tie_embeddings": "none"}  # a model that says more than one thing
    translators |= {name: translator_of(free, decoding=rule) for name, rule in RULES.items()}
    translators["unigram"] = translator_of(free, kind="unigram")
    translators["min_length"] = ending(translators["min_length"])
    paths = {name: str(write(translator, folder / str(i))) for i, (name, translator) in enumerate(translators.items())}
    named = {name: questions(translator) for name, translator in translators.items()}
    python = foreign_python(f"transformers-{version}", f"transformers=={version}", *VERSIONS[version])
    answers = json.loads(ask(python, SCRIPT, stdin=json.dumps({paths[name]: asked for name, asked in named.items()})))
    found = {name: {**answers[path], **load_file(f"{path}.safetensors")} for name, path in paths.items()}
    return translators, named, found


def ending(translator: Translator) -> Translator:
    """The same where EOS is likelier than everything else."""
    with torch.no_grad():
        translator.model.output.bias[EOS_ID] += 12
    return Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config)


@pytest.fixture(scope="session", params=VERSIONS)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    answered = asked(request.param, tmp_path_factory.mktemp(request.param))
    assert {found["version"] for found in answered[2].values()} == {request.param}
    return answered


@pytest.mark.foreign
@torch.no_grad()
@pytest.mark.parametrize("name", [*CONVERTED, "unigram"])
def test_transformers_computes_our_logits(name: str, foreign: tuple) -> None:
    translator, asked, found = (part[name] for part in foreign)
    kinds = {"pre": "PegasusForConditionalGeneration", "post": "MarianMTModel"}
    assert found["classes"][0] == kinds[translator.config.model.norm_position]
    assert found["ours"] == []
    src, tgt_in = torch.tensor(asked["src"]), torch.tensor(asked["tgt_in"])
    logits, real = translator.model(src, tgt_in), tgt_in != PAD_ID
    print(f"largest difference: {(found['logits'] - logits)[real].abs().max():.1e}")
    for theirs in (found["logits"], found["again"]):
        torch.testing.assert_close(theirs[real], logits[real], atol=3e-5, rtol=1e-5)
    assert logits[real].std(dim=-1).mean() > 0.5, "such weights tell one token from another"


@pytest.mark.foreign
@pytest.mark.parametrize("name", [*CONVERTED, *RULES, "unigram"])
def test_transformers_makes_our_ids_and_our_text(name: str, foreign: tuple) -> None:
    translator, asked, found = (part[name] for part in foreign)
    assert found["ids"] == [[*ids, EOS_ID] for ids in translator.src_tokenizer.encode_batch(asked["texts"])]
    assert found["decoded"] == [translator.tgt_tokenizer.decode(ids) for ids in asked["ids"]]
    # A blank line is translated as nothing by us alone: `transformers` searches for a translation of EOS.
    pairs = zip(translator.translate(asked["texts"]), found["generated"][0], asked["texts"], strict=True)
    assert all(ours == theirs for ours, theirs, text in pairs if text)
    lengths = {rule: foreign[2][rule]["lengths"][0] for rule in RULES}
    assert min(lengths["min_length"]) == 6 < max(lengths["no_repeat_ngram_size"])
    assert max(lengths["max_length"]) == 3


@pytest.mark.foreign
@pytest.mark.parametrize("version", VERSIONS)
def test_the_three_lines_of_the_card_translate(version: str, tmp_path: Path) -> None:
    translator = translator_of({"norm_position": "post", "tie_embeddings": "none"})
    export_run(open_run(write_run(tmp_path / "run", translator)), None, tmp_path / "new")
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "new" / "README.md").read_text("utf-8"), re.DOTALL)
    assert code.count("\n") == 3
    script = tmp_path / "three_lines.py"
    script.write_text(f"import os; os.chdir({str(tmp_path)!r})\n{code}", encoding="utf-8")
    python = foreign_python(f"transformers-{version}", f"transformers=={version}", *VERSIONS[version])
    assert ask(python, script) == f"{translator.translate([EXAMPLE])}\n"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_tokenizer_is_ours_whatever_the_text(kind: str, tmp_path: Path) -> None:
    """By the library that both sides use, with what the files say of the text's preparation."""
    translator = translator_of(TIED, kind)
    theirs = hf.Tokenizer.from_file(str(write(translator, tmp_path / "model") / "tokenizer.json"))
    theirs.encode_special_tokens = True  # what split_special_tokens sets
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert settings["split_special_tokens"] is True
    assert settings["model_input_names"] == ["input_ids", "attention_mask"]
    spaces = "".join(map(chr, range(0x3100)))
    texts = [
        *TEXTS,
        "".join(c for c in spaces if c.isspace() or c in "ab"),
        spaces[:0x2FF],
        *map("a{}b".format, spaces),
    ]
    ours = translator.src_tokenizer
    assert [theirs.encode(text).ids for text in texts] == [[*ids, EOS_ID] for ids in ours.encode_batch(texts)]
    dice = random.Random(3)
    for length in (0, 1, 2, 5, 30) * 40:
        ids = dice.choices(range(4, ours.vocab_size), k=length)
        assert theirs.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == ours.decode(ids)


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"num_experts": 4, **TIED}, "model.num_experts is 4"),
        ({"attention_window": 23, **TIED}, "model.attention_window is 23"),
        ({"architecture": "decoder_only", "num_encoder_layers": 0}, "model.architecture is decoder_only"),
        *(
            (
                {"norm_position": "pre", "tie_embeddings": tied},
                f"model.tie_embeddings is {tied} .*tie_embeddings: all, or",
            )
            for tied in ("none", "decoder")
        ),
        *(({key: name}, f"model.{key} is {name}, .* Train one with model.{key}: ") for key, name in INEXPRESSIBLE),
    ],
)
def test_what_is_not_exact_is_refused_by_its_key(model: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=key):
        write(translator_of(model), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), SafetensorError("I/O error: No space left on device (os error 28)")]
)
def test_a_full_disk_leaves_nothing(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(weights, "save_file", full)
    with pytest.raises(UserError, match=r"model cannot be written: .*No space left.*\. Choose another folder"):
        write(translator_of(TIED), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_all_that_a_config_would_have_to_change_is_told_at_once(tmp_path: Path) -> None:
    tokenizer = {"kind": "word", "joint": False, "lowercase": True}
    model = {"norm": "rmsnorm", "activation": "swiglu", "num_experts": 2, "attention_window": 9}
    translator = make_translator({"num_encoder_layers": 1, **SMALL, **model}, tokenizer=tokenizer)
    keys = [f"model.{key} is {value}" for key, value in model.items()]
    keys += [
        "model.tie_embeddings is decoder",
        "tokenizer.kind is word",
        "tokenizer.joint is",
        "tokenizer.lowercase is",
    ]
    with pytest.raises(UserError) as refused:
        write(translator, tmp_path / "model")
    said = str(refused.value).split("\n")
    assert [line.startswith(key) for line, key in zip(said, keys, strict=True)] == [True] * len(keys)


@pytest.mark.parametrize(("key", "name"), [(key, name) for key in OPTIONS for name in OPTIONS[key]])
def test_an_option_that_says_nothing_of_transformers_is_refused(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS[key], name, replace(OPTIONS[key][name], huggingface=None))
    with pytest.raises(UserError, match=f"model.{key} is {name}, which transformers does not compute"):
        refuse_inexpressible(ModelConfig.model_validate({**SMALL, **TIED, key: name}))


def test_pictures_are_refused_with_the_keys_that_read_text() -> None:
    with pytest.raises(UserError, match=r"model.patches is set, .* model.patches: null and data.source_as: text"):
        refuse_inexpressible(ModelConfig.model_validate(PICTURES))


def test_every_key_of_decoding_is_written_or_told() -> None:
    plain = search_notes(DecodingConfig(beam_size=1))
    assert [note.partition(" is ")[0] for note in plain] == ["decoding.max_length_ratio"]
    others = {
        "coverage_penalty": 0.5, "patience": 2.0, "mbr": "chrf", "mbr_candidates": 4, "diverse_beam_groups": 2,
        "sampling_topk": 3, "sampling_topp": 0.5, "temperature": 2.0, "avoid": "words.txt", "constraints": "ordered",
        "glossary": "terms.tsv", "to": "es",
    }  # fmt: skip
    assert others.keys() | OBEYED == set(SearchConfig.model_fields)
    for key, value in others.items():
        note = search_notes(DecodingConfig.model_validate({"beam_size": 4, "length_norm": "average", key: value}))[0]
        assert note.startswith(f"decoding.{key} is {as_typed(value)}, which transformers does not do")
    note = search_notes(DecodingConfig(beam_size=1, lines=LinesConfig(keep=["urls"])))[0]
    assert note.startswith("decoding.lines.keep is [urls], which transformers does not do")
    notes = search_notes(DecodingConfig(beam_size=4, length_norm="gnmt"))
    assert notes[0].startswith("decoding.length_norm is gnmt, and transformers has only average")


def test_the_rules_of_the_search_are_in_the_file() -> None:
    decoding = DecodingConfig(
        beam_size=7, length_penalty=0.3, length_norm="average", min_length=2, max_length=9, no_repeat_ngram_size=3
    )
    found = generation_settings(decoding, max_len=24)
    expected = {
        "num_beams": 7, "length_penalty": 0.3, "min_new_tokens": 2, "max_length": 11, "no_repeat_ngram_size": 3,
        "suppress_tokens": [PAD_ID, UNK_ID, BOS_ID], "decoder_start_token_id": BOS_ID, "eos_token_id": EOS_ID,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert generation_settings(DecodingConfig(allow_unk=True), max_len=24)["suppress_tokens"] == [PAD_ID, BOS_ID]
