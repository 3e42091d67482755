"""The quick part of the check before a training: what it says, what it stops, and that it changes nothing."""

import random
import re
from pathlib import Path

import pytest
import yaml
from marks import slow
from toy import toy_pairs
from trainings import assert_same_run, train_here

from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.storage.run_folder import RunFolder


def write_pairs(folder: Path, src: list[str], tgt: list[str]) -> None:
    for name, texts in (("en", src), ("es", tgt)):
        (folder / "data" / f"train.{name}").write_text("".join(f"{text}\n" for text in texts))


def test_one_line_says_what_was_seen(folder: Path) -> None:
    src, tgt = map(list, zip(*toy_pairs(120), strict=True))
    src[50], tgt[50] = "one two three four.", "one two three four."  # where two stretches overlap
    write_pairs(folder, src, tgt)
    status, output = train_here(folder)
    assert status == 0, output
    told = "data check (120 training pairs): copy 1; `tmt data check` reads all and looks for more\n"
    assert output.count("data check") == 2
    assert told in output


def test_the_check_changes_nothing_of_a_training(folder: Path) -> None:
    status, with_check = train_here(folder, "name=with")
    assert status == 0, with_check
    status, without = train_here(folder, "name=without", "data.check=off")
    assert status == 0, without
    assert "data check" in with_check
    assert "data check" not in without
    assert_same_run(folder / "runs" / "with", folder / "runs" / "without", 3)


@pytest.mark.skipif(compiled_kernels() is None, reason="shifts are looked for where numba works")
def test_a_shift_stops_a_training_unless_it_is_not_to_be_looked_for(folder: Path) -> None:
    src, tgt = map(list, zip(*toy_pairs(900), strict=True))
    write_pairs(folder, src[:-1], tgt[:500] + tgt[501:])
    for _ in range(2):  # the second time from the cache
        status, output = train_here(folder)
        assert status == 2
        assert "The sides of the training data are shifted: about from" in output
        assert "line n of the source translates line n - 1 of the target. Mend the files" in output
        line = int(output.partition("train.es, line ")[2].partition(" ")[0])
        assert abs(line - 502) <= 20
        assert not RunFolder(folder / "runs" / "toy").config.exists()
    status, output = train_here(folder, "data.check=off")
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.skipif(compiled_kernels() is None, reason="shifts are looked for where numba works")
def test_a_shift_in_one_of_several_directions(folder: Path) -> None:
    """Beside many pairs of another direction and text in one language, the shift's place is that in its own file."""
    english, spanish = map(list, zip(*toy_pairs(900), strict=True))
    write_pairs(folder, english[:-1], spanish[:500] + spanish[501:])
    many = [pair for _ in range(5) for pair in toy_pairs(900, seed=7)]
    for name, side in (("many.en", 0), ("many.es", 1)):
        (folder / "data" / name).write_text("".join(f"{pair[side]}\n" for pair in many))
    mapping = yaml.safe_load((folder / "toy.yaml").read_text())
    reverse = {"src": "many.es", "tgt": "many.en", "tag": "<2en>"}
    shifted = {"src": "train.en", "tgt": "train.es", "tag": "<2es>"}
    mapping["data"] |= {
        "train": [reverse, {"mono": "valid.es", "tag": "<2es>"}, shifted],
        "validation": [{"src": "valid.en", "tgt": "valid.es", "tag": "<2es>"}],
        "noise": {"kind": "infilling"},
    }
    mapping["tokenizer"] |= {"joint": True, "masks": 1, "tags": ["<2en>", "<2es>"]}
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    status, output = train_here(folder)
    assert status == 2, output
    line = int(output.partition("train.es, line ")[2].partition(" ")[0])
    assert abs(line - 502) <= 20
    mapping["data"]["train"].remove(shifted)
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    status, output = train_here(folder)
    assert status == 0, output
    assert "data check (3,000 of 4,500 training pairs): " in output
    assert "; no shift; " in output


@pytest.mark.parametrize("seed", [1, slow(2)])
def test_pairs_in_any_order_are_not_shifted(folder: Path, seed: int) -> None:
    pairs = toy_pairs(900)
    random.Random(seed).shuffle(pairs)
    write_pairs(folder, *map(list, zip(*pairs, strict=True)))
    status, output = train_here(folder)
    assert status == 0, output
    assert "; no shift; `tmt data check` reads all and looks for more" in output


def test_pairs_that_do_not_translate_each_other_stop_nothing(folder: Path) -> None:
    pairs = toy_pairs(900)
    tgt = [pair[1] for pair in pairs]
    random.Random(1).shuffle(tgt)
    write_pairs(folder, [pair[0] for pair in pairs], tgt)
    status, output = train_here(folder)
    assert status == 0, output
    assert "whether lines are shifted cannot be told" in output


def test_a_stream_is_not_looked_at(folder: Path) -> None:
    status, output = train_here(folder, "data.streaming=true")
    assert status == 0, output
    assert "data check: a stream is not looked at" in output


def test_sides_that_are_swapped_as_a_whole_are_told(folder: Path) -> None:
    english, spanish = map(list, zip(*builtin_pairs("validation")[:150], strict=True))
    said = "; the source is named en and in es, the target named es and in en; swap the files; "
    write_pairs(folder, spanish, english)
    own = ("data.validation=[{src: train.en, tgt: train.es}]", "tokenizer.vocab_size=2000", "training.max_steps=1")
    assert said in train_here(folder, *own)[1]
    status, output = train_here(folder, *own, "data.reverse=true", "data.src_lang=es", "data.tgt_lang=en", "name=right")
    assert status == 0, output
    assert "; swap the files" not in output


def test_a_direction_of_which_no_pair_is_left(folder: Path) -> None:
    """Its pairs are dropped and counted; there is nothing to look at."""
    for name, text in (("blank.en", "\n" * 3), ("blank.de", "eins.\nzwei.\ndrei.\n")):
        (folder / "data" / name).write_text(text)
    mapping = yaml.safe_load((folder / "toy.yaml").read_text())
    mapping["data"] |= {
        "train": [
            {"src": "train.en", "tgt": "train.es", "tag": "<2es>"},
            {"src": "blank.en", "tgt": "blank.de", "tag": "<2de>"},
        ],
        "validation": [{"src": "valid.en", "tgt": "valid.es", "tag": "<2es>"}],
    }
    mapping["tokenizer"] |= {"joint": True, "tags": ["<2de>", "<2es>"]}
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    status, output = train_here(folder)
    assert status == 0, output
    assert re.search(r"data check \([\d,]+ training pairs\): ", output)
