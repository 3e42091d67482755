"""One small trained run and one server of it for all tests of serving."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from commands import call_tmt
from servers import Answers, Serve, Served
from toy import toy_mapping, toy_pairs, write_toy_corpus
from trainings import trained_once

from transformer_mt import Translator


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has learned some of the toy language, with its aligner."""
    return trained_once(tmp_path_factory, "served", train) / "runs/toy"


def train(folder: Path) -> None:
    write_toy_corpus(folder / "data", 2000)
    training = {
        "max_tokens": 512, "max_steps": 300, "schedule": "cosine", "lr": 0.004, "warmup_steps": 50,
        "checkpoint_every_steps": 300, "log_every_steps": 50,
    }  # fmt: skip
    model = {"d_model": 48, "d_ff": 96, "num_heads": 4, "dropout": 0.0, "max_len": 24}
    validation = {"every_steps": 300, "num_translated": 5}
    mapping = toy_mapping(folder / "data", model=model, training=training, validation=validation)
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    for arguments in (("train", "--config", "toy.yaml"), ("align", "--train", "--run", "runs/toy")):
        result = call_tmt(folder, *arguments)
        assert result.returncode == 0, result.stderr


@pytest.fixture(scope="session")
def backwards(run: Path) -> Path:
    """A run of the other direction: the same weights, under another pair of languages."""
    folder = run.with_name("backwards")
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "aligner")
    for path in folder.rglob("config.yaml"):
        mapping = yaml.safe_load(path.read_text())
        mapping["data"] |= {"src_lang": "es", "tgt_lang": "en"}
        for split in ("train", "validation"):
            for source in mapping["data"][split]:
                source["src"], source["tgt"] = source["tgt"], source["src"]
        path.write_text(yaml.safe_dump(mapping))
    return folder


@pytest.fixture(scope="session")
def translator(run: Path) -> Translator:
    """What says how the server must translate: one sentence at a time, without a server."""
    return Translator.load(run, device="cpu")


@pytest.fixture(scope="session")
def server(run: Path) -> Iterator[Served]:
    """A server of two processes with the limits as they are by default."""
    with Served(run, "--workers", "2", anew=True) as served:
        yield served


@pytest.fixture
def serve(run: Path) -> Iterator[Serve]:
    """Starts a server with options of its own, which ends with the test."""
    started: list[Served] = []

    def start(*arguments: str, runs: tuple[Path, ...] = (run,), anew: bool = False) -> Served:
        started.append(Served(*runs, *arguments, anew=anew))
        return started[-1]

    yield start
    for served in started:
        served.end()


@pytest.fixture
def still_answers(translator: Translator) -> Answers:
    """Asserts that a server has the right answers and that all its processes live, whatever was done to it."""
    sentences = [english for english, _ in toy_pairs(3, seed=8)]
    wanted = translator.translate(sentences)

    def check(server: Served) -> None:
        assert server.translate(sentences) == wanted
        assert server.get("/health").json == {"status": "ok"}
        end = time.monotonic() + 60
        while "tmt_waiting_requests 0" not in (told := server.get("/metrics").body.decode()):
            assert time.monotonic() < end, told
            time.sleep(0.01)  # a moment passes until a client is known to be gone
        assert "tmt_processes_begun_again_total 0" in told
        assert 'status="500"' not in told
        assert not any("Traceback" in line for line in server.told), server.told

    return check
