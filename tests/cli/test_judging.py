"""`tmt evaluate --compare` and `--html`: which of two is better, by runs and by finished translations."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

HOSTILE = '<script>alert(1)</script> </style><img src=x onerror="alert(2)"> & \x01 "quoted" مرحبا'


class Seen(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.directions: list[str | None] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.directions += [value for name, value in attrs if name == "dir"]
        assert not any(name in ("src", "href") or name.startswith("on") for name, _ in attrs), attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def scores_in(printed: str, metric: str) -> list[float]:
    """The score of each system in the table."""
    line = next(line for line in printed.split("\n") if line.startswith(f"{metric} ") and "±" in line)
    return [float(number) for number in re.findall(r"([\d.]+) ±", line)]


def test_two_runs_have_the_scores_of_tmt_evaluate(call, trained: Path) -> None:
    alone = call("evaluate", "--beam-size", "1", "--max-length", "4")
    saved = json.loads(Path(trained, alone.stdout.split("saved: ")[1].strip()).read_text())
    both = call("evaluate", "--compare", "runs/toy", "runs/toy", "--beam-size", "1", "--max-length", "4")
    assert both.returncode == 0
    assert scores_in(both.stdout, "BLEU") == pytest.approx([saved["bleu"]] * 2, abs=0.005)
    assert scores_in(both.stdout, "chrF") == pytest.approx([saved["chrf"]] * 2, abs=0.005)
    assert "A and B are the same translations." in both.stdout
    assert "B: runs/toy (2) (step_1200, greedy, fp32, nll " in both.stdout
    assert both.stderr.count("saved: runs/toy/evaluations/test_step_1200_beam1_max-length-4.json") == 2
    rows = [
        json.loads(line)
        for line in Path(trained, both.stderr.split("saved: ")[1].split("\n")[0])
        .with_suffix(".jsonl")
        .read_text()
        .splitlines()
    ]
    assert all(row["log_prob"] < 0 and 1 < row["num_tokens"] <= 5 for row in rows)


@pytest.fixture(scope="module")
def files(trained: Path) -> Path:
    """Finished translations of the validation split: of five words the first two, and all of them but one sentence. The
    run `turned` says of itself that it translates the other way.
    """
    lines = (trained / "data/valid.es").read_text().split("\n")[:-1]
    for name, texts in (("bad.es", [" ".join(line.split()[:2]) for line in lines]), ("good.es", ["", *lines[1:]])):
        (trained / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    shutil.copyfile(trained / "bad.es", trained / "sheet.html")
    (trained / "link.html").symlink_to("sheet.html")
    shutil.copytree(trained / "runs/toy", trained / "turned")
    for path in (trained / "turned").rglob("config.yaml"):
        mapping = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**mapping, "data": {**mapping["data"], "src_lang": "es", "tgt_lang": "en"}}))
    return trained


def test_two_files_and_a_report(call, files: Path) -> None:
    result = call(
        "evaluate",
        "--src",
        "data/valid.en",
        "--ref",
        "data/valid.es",
        "--compare",
        "bad.es",
        "good.es",
        "--html",
        "r.html",
    )
    assert result.returncode == 0
    assert "B is better than A by BLEU, chrF and TER." in result.stdout
    assert "empty: 0 in A, 1 in B" in result.stdout
    page = (files / "r.html").read_text(encoding="utf-8")
    seen = Seen(page)
    assert "B is better than A by BLEU, chrF and TER." in seen.text
    assert {"svg", "table", "mark", "u"} <= set(seen.names)
    assert "script" not in seen.names
    for metric in ("BLEU", "chrF", "TER"):
        for score in scores_in(result.stdout, metric):
            assert f"{score:.2f} [" in seen.text
    assert set(seen.directions) == {"auto"}
    drawn = re.findall(r"<title>[AB], [^<]*: ([\d.]+) \(([\d.]+) to ([\d.]+)\)</title>", page)
    assert len(drawn) >= 2 * 5
    assert all(f"{value} [{low}, {high}]" in seen.text for value, low, high in drawn)  # in the tables


def test_hostile_text_stays_text(call, files: Path) -> None:
    for name, text in (("h.en", HOSTILE), ("h.es", HOSTILE + " x"), ("<b>a", HOSTILE), ("b", "y")):
        (files / name).write_text(text + "\n", encoding="utf-8")
    result = call("evaluate", "--src", "h.en", "--ref", "h.es", "--compare", "<b>a", "b", "--html", "h.html")
    assert result.returncode == 0
    page = (files / "h.html").read_text(encoding="utf-8")
    seen = Seen(page)
    assert not {"script", "img"} & set(seen.names)
    assert HOSTILE.replace("\x01", "\ufffd") in seen.text
    assert "A: <b>a" in seen.text


def test_a_run_beside_a_file(call, files: Path) -> None:
    arguments = ["--src", "data/valid.en", "--ref", "data/valid.es", "--beam-size", "1"]
    result = call("evaluate", *arguments, "--compare", "good.es", "runs/toy")
    assert result.returncode == 0
    alone = call("evaluate", *arguments)
    assert f"BLEU {scores_in(result.stdout, 'BLEU')[1]:.2f} " in alone.stdout
    assert "A: good.es\nB: runs/toy (" in result.stdout


def test_what_cannot_be_saved_is_judged(call, files: Path) -> None:
    shutil.copytree(files / "runs/toy", files / "full")
    shutil.rmtree(files / "full/evaluations", ignore_errors=True)
    (files / "full/evaluations").write_text("in the way")
    arguments = ["--src", "data/valid.en", "--ref", "data/valid.es", "--beam-size", "1"]
    report = call("evaluate", "--run", "full", *arguments, "--html", "full.html")
    compared = call("evaluate", "--compare", "full", "good.es", *arguments)
    for result in (report, compared):
        assert result.returncode == 0, result.stderr
        assert "the translations of full are not saved. full/evaluations/" in result.stderr
        assert "cannot be written: File exists. They are judged all the same;" in result.stderr
        assert scores_in(result.stdout, "BLEU")
    assert "full" in Seen((files / "full.html").read_text(encoding="utf-8")).text


def test_the_second_run_translates_the_test_data_of_the_first(call, files: Path) -> None:
    shutil.copytree(files / "runs/toy", files / "runs/elsewhere", dirs_exist_ok=True)
    config = files / "runs/elsewhere/config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("{src: valid.en, tgt: valid.es}", "{src: gone.en, tgt: gone.es}"))
    assert config.read_text(encoding="utf-8") != text
    result = call("evaluate", "--compare", "runs/toy", "runs/elsewhere", "--beam-size", "1")
    assert result.returncode == 0, result.stderr
    assert "A and B are the same translations." in result.stdout
    first, second = (line for line in result.stderr.split("\n") if line.startswith("saved: "))
    assert first.endswith("/test_step_1200_beam1.json")
    assert re.search(r"runs/elsewhere/evaluations/test-\w{6}_step_1200_beam1.json$", second)  # not its own test data
    config.write_text(text.replace("tgt_lang: es", "tgt_lang: pt"))
    refused = call("evaluate", "--compare", "runs/toy", "runs/elsewhere")
    shutil.rmtree(files / "runs/elsewhere")
    assert refused.returncode == 2
    assert "One run translates en to es, the other en to pt." in refused.stderr


def test_the_second_run_reads_the_columns_of_the_first(call, files: Path) -> None:
    """The same file may hold several translations, and each run was tested on another."""
    sides = [
        (files / f"data/valid.{language}").read_text(encoding="utf-8").split("\n")[:-1] for language in ("en", "es")
    ]
    rows = "".join(f"{src}\t{tgt}\t{tgt} dos\n" for src, tgt in zip(*sides, strict=True))
    (files / "data/three.tsv").write_text(rows, encoding="utf-8")
    for tgt in (2, 3):
        shutil.copytree(files / "runs/toy", files / f"columns/{tgt}")
        config = files / f"columns/{tgt}/config.yaml"
        mapping = yaml.safe_load(config.read_text(encoding="utf-8"))
        mapping["data"] |= {"test": [{"tsv": "three.tsv"}], "columns": {"src": 1, "tgt": tgt}}
        config.write_text(yaml.safe_dump(mapping, allow_unicode=True), encoding="utf-8")
    result = call("evaluate", "--compare", "columns/2", "columns/3", "--beam-size", "1")
    assert result.returncode == 0, result.stderr
    assert "A and B are the same translations." in result.stdout


def test_several_test_sets_and_references_of_one_run(call, files: Path) -> None:
    result = call(
        "evaluate", "--src", "data/valid.en", "--src", "data/valid.en", "--ref", "bad.es", "--ref", "data/valid.es",
        "--ref", "data/valid.es", "--ref", "bad.es", "--html", "many.html",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    sets = result.stdout.split("\n\n")
    assert [one.split(":")[0] for one in sets] == [
        "data/valid.en / bad.es / data/valid.es", "data/valid.en / data/valid.es / bad.es",
    ]  # fmt: skip
    assert all("20 sentences, 2 references each" in one and "BLEU nrefs:2|" in one for one in sets)
    assert scores_in(sets[0], "BLEU") == scores_in(sets[1], "BLEU")
    page = Seen((files / "many.html").read_text(encoding="utf-8"))
    assert page.names.count("section") == 2
    assert "By the model's own score" in page.text
    assert "What changed" not in page.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compare", "bad.es", "good.es"], "Give the references with --ref FILE."),
        (["--compare", "bad.es", "none.es"], "There is no none.es. Compare runs, or files"),
        (["--compare", "bad.es", "good.es", "--ref", "data/train.es"], "6,000 lines and bad.es has 20."),
        (["--compare", "bad.es", "good.es", "--ref", "bad.es", "--beam-size", "3"], "--beam-size is for runs"),
        (["--compare", "bad.es", "good.es", "--ref", "bad.es", "--device", "cpu"], "--device is for runs"),
        (["--compare", "bad.es", "good.es", "--ref", "bad.es", "--bleu-tokenize", "x"], "'x' is not a BLEU tokenizer"),
        (["--compare", "bad.es", "runs/toy"], "One of both is a file of finished translations. Say of what"),
        (["--compare", "runs/toy", "runs/none"], "There is no runs/none."),
        (["--compare", "runs/toy", "runs/toy", "--run", "runs/toy"], "--compare names what is compared."),
        (["--compare", "runs/toy", "runs/toy", *["--checkpoint", "best"] * 3], "3 checkpoints for 2 runs: give one"),
        (["--src", "data/valid.en", "--ref", "bad.es", "--ref", "data/train.es"], "has 6,000 lines, not 20."),
        (["--src", "bad.es", "--src", "bad.es", "--ref", "bad.es"], "2 files of sources and 1 of references."),
        (["--html", "none/r.html"], "There is no folder"),
        (["--html", "link.html"], "link.html is a link, a pipe or a device, and would be replaced."),
        (["--html", "data"], "data is a folder. Name a file for --html."),
        (["--compare", "bad.es", "good.es", "--ref", "data/valid.es", "--html", "bad.txt"], "does not end in .html."),
        (["--compare", "bad.es", "sheet.html", "--ref", "bad.es", "--html", "./sheet.html"], "it would be replaced."),
        (["--compare", "runs/toy", "turned"], "One run translates en to es, the other es to en."),
        (["--compare", "runs/toy", "runs/toy", "--split", "root"], "There is no split 'root'. Use train, validation"),
        (["--compare", "data", "runs/toy"], "data is not the folder of a run"),
    ],
)  # fmt: skip
def test_mistakes(call, files: Path, arguments: list[str], message: str) -> None:
    result = call("evaluate", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Translating" not in result.stderr
