"""`tmt score`: a line out for every pair of lines in, with the score that the search gives the same tokens."""

import gzip
import json
import math
from pathlib import Path

import pytest

from transformer_mt.decoding.lines import line_stream

SOURCES = ["one two three.", "seven eight.", "four five six one."]
TRANSLATIONS = ["uno tres dos.", "ocho siete.", "cuatro cinco uno seis."]


def write(folder: Path, name: str, lines: list[str]) -> str:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(folder / name)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """The options that name two aligned files."""
    return "--src", write(tmp_path, "src", SOURCES), "--ref", write(tmp_path, "ref", TRANSLATIONS)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_translation_has_the_score_by_which_it_was_found(precision: str, files, call) -> None:
    search = ("--precision", precision, "--length-penalty", "0.9")
    found = call("translate", "--format", "jsonl", *search, *SOURCES).stdout.split("\n")[:-1]
    best = [json.loads(line)["hypotheses"][0] for line in found]
    assert [hypothesis["text"] for hypothesis in best] == TRANSLATIONS
    tolerance = 1e-5 if precision == "fp32" else 0.02
    plain = call("score", *files, *search)
    assert plain.returncode == 0, plain.stderr
    scores = [float(line) for line in plain.stdout.split("\n")[:-1]]
    assert scores == pytest.approx([hypothesis["score"] for hypothesis in best], abs=tolerance)
    rows = [json.loads(line) for line in call("score", *files, *search, "--format", "jsonl").stdout.split("\n")[:-1]]
    for row, score, source, hypothesis in zip(rows, scores, SOURCES, best, strict=True):
        assert row.keys() == {"source", "translation", "score", "log_prob", "tokens"}
        assert (row["source"], row["translation"], row["tokens"]) == (source, hypothesis["text"], hypothesis["tokens"])
        assert row["score"] == pytest.approx(score, abs=1e-6)
        assert row["log_prob"] == pytest.approx(hypothesis["log_prob"], abs=tolerance)


def test_word_scores_add_up_to_the_sentence(files, call) -> None:
    rows = [json.loads(s) for s in call("score", *files, "--word-scores", "--format", "jsonl").stdout.split("\n")[:-1]]
    text = call("score", *files, "--word-scores").stdout.split("\n")[:-1]
    for row, line, translation in zip(rows, text, TRANSLATIONS, strict=True):
        words = [word["log_prob"] for word in row["words"]]
        assert [word["word"] for word in row["words"]] == translation.split()
        assert len(row["token_log_probs"]) == len(row["tokens"]) + 1
        assert math.fsum(row["token_log_probs"]) == pytest.approx(row["log_prob"])
        assert math.fsum(words) + row["token_log_probs"][-1] == pytest.approx(row["log_prob"])
        score, _, numbers = line.partition("\t")
        assert float(score) == pytest.approx(row["score"], abs=1e-6)
        assert [float(n) for n in numbers.split(" ")] == pytest.approx([*words, row["token_log_probs"][-1]], abs=1e-6)


def test_a_line_without_a_score_is_blank_and_told(tmp_path: Path, call) -> None:
    pairs = [("one.", "uno."), ("", ""), ("one.", " "), ("", "uno."), ("one.", "uno " * 24), ("one\u2028two.", "dos.")]
    sources, references = map(list, zip(*pairs, strict=True))
    files = ("--src", write(tmp_path, "src", sources), "--ref", write(tmp_path, "ref", references))
    result = call("score", *files)
    assert [bool(line) for line in result.stdout.split("\n")] == [True, False, False, False, False, True, False]
    assert result.stderr.split("\n")[-4:-1] == [
        "line 3: the translation is blank, left blank",
        "line 4: the source is blank, left blank",
        "line 5: the translation is longer than the model's 24 positions, left blank",
    ]
    words = ("--word-scores", "--format", "jsonl")
    rows = [json.loads(line) for line in call("score", *files, *words).stdout.split("\n")[:-1]]
    assert [row["score"] is None for row in rows] == [False, True, True, True, True, False]
    assert [bool(row["words"]) and bool(row["token_log_probs"]) for row in rows] == [True, *[False] * 4, True]
    assert rows[2]["problem"] == "the translation is blank"


def test_unknown_words_are_scored_as_the_model_reads_them(tmp_path: Path, call) -> None:
    files = ("--src", write(tmp_path, "src", ["one zebra."]), "--ref", write(tmp_path, "ref", ["uno cebra."]))
    result = call("score", *files)
    assert float(result.stdout) < 0
    assert result.stderr.endswith(
        "the model does not know 2 words of the input, and scores them as UNK: zebra, cebra\n"
    )


@pytest.mark.parametrize("longer", ["src", "ref"])
def test_files_of_unequal_length_are_told_after_all_pairs(longer: str, files, tmp_path: Path, call) -> None:
    expected = call("score", *files).stdout
    shorter = {"src": "ref", "ref": "src"}[longer]
    with (tmp_path / longer).open("a") as file:
        file.write("one.\n" * 3)
    result = call("score", *files)
    assert result.returncode == 2
    assert result.stdout == expected
    told = f"tmt: {tmp_path / shorter} ends after line 3, and {tmp_path / longer} goes on. Line n of one must translate"
    assert told in result.stderr


def test_packed_files_and_standard_input_are_files_too(files, tmp_path: Path, call) -> None:
    expected = call("score", *files).stdout
    (tmp_path / "packed").write_bytes(gzip.compress((tmp_path / "src").read_bytes()))
    references = (tmp_path / "ref").read_bytes()
    out = tmp_path / "out"
    result = call("score", "--src", str(tmp_path / "packed"), "--ref", "-", "--output", str(out), stdin=references)
    assert (result.returncode, result.stdout) == (0, "")
    assert out.read_text() == expected


def test_the_scores_come_in_order_whatever_the_number_of_processes(tmp_path: Path, call, begun) -> None:
    files = ("--src", write(tmp_path, "src", SOURCES * 40), "--ref", write(tmp_path, "ref", TRANSLATIONS * 40))
    result = call("score", *files, "--batch-size", "3", threads=2)
    assert result.returncode == 0, result.stderr
    assert len(begun) == 2
    found = [float(line) for line in result.stdout.split("\n")[:-1]]
    alone = call("score", *files[:2], *files[2:], "--batch-size", "1").stdout.split("\n")[:-1]
    assert found == pytest.approx([float(line) for line in alone], abs=1e-5)


def test_ctrl_c_leaves_whole_lines_and_says_how_to_go_on(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score_chunks = line_stream.score_chunks

    def stopped(*arguments):
        yield next(score_chunks(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(line_stream, "score_chunks", stopped)
    src, out = write(tmp_path, "src", SOURCES * 50), tmp_path / "out"
    ref = tmp_path / "ref.packed"
    ref.write_bytes(gzip.compress("".join(f"{line}\n" for line in TRANSLATIONS * 50).encode()))
    result = call("score", "--src", src, "--ref", str(ref), "--batch-size", "2", "--output", str(out))
    assert result.returncode == 130
    num_lines = out.read_text().count("\n")
    assert 0 < num_lines < 150
    assert result.stderr.endswith(
        f"tmt: stopped. {out} holds the scores of the first {num_lines} lines. Go on with the same options: tmt score "
        f"--src <(tail -n +{num_lines + 1} {src}) --ref <(zcat {ref} | tail -n +{num_lines + 1}) … >> {out}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--src", "toy.yaml"], "Missing option '--ref'"),
        (["--src", "-", "--ref", "-"], "--src and --ref are both -. Name a file for one of them."),
        (
            ["--src", "none", "--ref", "toy.yaml"],
            "none cannot be read: No such file or directory. Check the name after",
        ),
        (["--src", "toy.yaml", "--ref", "none"], "after --ref"),
        (["--src", "toy.yaml", "--ref", "toy.yaml", "--output", "toy.yaml"], "is the input itself"),
        (["--src", "toy.yaml", "--ref", "toy.yaml", "--beam-size", "3"], "No such option"),
        (["--src", "packed.bz2", "--ref", "toy.yaml"], "packed.bz2 is bzip2. Unpack it: bzcat FILE > TEXT_FILE."),
        (["--src", "toy.yaml", "--ref", "toy.yaml", "--batch-size", "0"], "batch_size: 0 is not allowed"),
    ],
)
def test_mistakes_get_one_clear_sentence(arguments: list[str], message: str, trained: Path, call) -> None:
    (trained / "packed.bz2").write_bytes(b"BZh91AY&SY and so on\n")
    result = call("score", *arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
