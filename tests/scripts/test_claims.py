"""scripts/claims.py: what decides a claim, measurements at small sizes, and docs/claims.md beside the table."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from measured_claims import costs, lengths, reach, scores, trained, workshop
from measured_claims.claim import Finding, Settings, Verdict, compared, not_larger
from measured_claims.models import VOCAB_SIZE, encoded, recurrent, transformer, words
from measured_claims.table import CLAIMS
from pages import REPOSITORY, prose, read, tables

from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.model.recurrent.decoder import RNN_ATTENTIONS
from transformer_mt.model.recurrent.rnn import Rnn

PAGE = "docs/claims.md"
SCRIPT = REPOSITORY / "scripts/claims.py"
TIMED = {"parallel", "heads_cost", "norm_cost"}
FAILING = {"window_memory"}  # the cache keeps what the window hides
UNTRAINED = [name for name, claim in CLAIMS.items() if not claim.trains]


def settings(work: Path) -> Settings:
    return Settings(work, seeds=(1, 2), steps=8, small=True)


def assert_whole(finding: Finding) -> None:
    assert finding.rows
    assert {len(row) for row in finding.rows} == {len(finding.heads)}


# Measurements


@pytest.mark.parametrize("name", UNTRAINED)
def test_a_claim_that_needs_no_training_is_decided_at_small_sizes(name: str, tmp_path: Path) -> None:
    finding = CLAIMS[name].measure(settings(tmp_path))
    assert_whole(finding)
    if name not in TIMED:
        assert finding.verdict is (Verdict.FAILS if name in FAILING else Verdict.HOLDS)


@pytest.mark.slow
def test_claims_that_train_keep_what_they_trained(tmp_path: Path) -> None:
    for claim in CLAIMS.values():
        if claim.trains:
            assert_whole(claim.measure(settings(tmp_path)))
    checkpoints = sorted(tmp_path.glob("*/checkpoints/step_8/model.safetensors"))
    times = [path.stat().st_mtime_ns for path in checkpoints]
    assert len(times) > 20
    assert_whole(CLAIMS["label_smoothing"].measure(settings(tmp_path)))
    assert [path.stat().st_mtime_ns for path in checkpoints] == times


# What decides


@pytest.mark.parametrize(
    ("better", "worse", "verdict"),
    [
        ([3.0, 3.2], [1.0, 1.2], Verdict.HOLDS),
        ([1.0, 1.2], [3.0, 3.2], Verdict.FAILS),
        ([1.0, 3.0], [0.9, 2.9], Verdict.UNDECIDED),
        # Variances 2 and 2, two values each: the error is sqrt(2), and twice of it 2.828.
        ([3.8, 5.8], [1.0, 3.0], Verdict.UNDECIDED),
        ([3.9, 5.9], [1.0, 3.0], Verdict.HOLDS),
        ([9.0], [1.0], Verdict.UNDECIDED),
    ],
)
def test_a_difference_decides_where_it_is_beyond_its_error(
    better: list[float], worse: list[float], verdict: Verdict
) -> None:
    assert compared(better, worse) is verdict


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ([3.0, 3.2], [1.0, 1.2], Verdict.FAILS),
        ([1.0, 1.2], [3.0, 3.2], Verdict.HOLDS),
        ([1.0, 3.0], [0.9, 2.9], Verdict.HOLDS),
        ([1.0], [3.0], Verdict.UNDECIDED),
        ([1.0, 1.2], [3.0], Verdict.UNDECIDED),
    ],
)
def test_no_loss_is_one_within_its_error(one: list[float], other: list[float], verdict: Verdict) -> None:
    assert not_larger(one, other) is verdict


@pytest.mark.parametrize("name", ["weight_tying", "rms_norm"])
def test_one_seed_decides_nothing(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = iter([{"nll": [3.0], "bleu": [9.0]}, {"nll": [3.0], "bleu": [9.0]}])
    monkeypatch.setattr(trained, "runs_of", lambda wanted, settings: [tmp_path])
    monkeypatch.setattr(trained, "scores_of", lambda runs: next(found))
    monkeypatch.setattr(trained, "num_parameters", lambda wanted, settings, run: 1)
    assert CLAIMS[name].measure(Settings(tmp_path, seeds=(1,))).verdict is Verdict.UNDECIDED


def test_the_longest_chain_by_hand() -> None:
    x = torch.ones(3, requires_grad=True)  # its accumulation is one
    assert reach.longest_chain(x * 2) == 2
    assert reach.longest_chain((x * 2 + 1) * (x * 3)) == 4, "the longer of both ways"
    state = x
    for _ in range(5000):
        state = state * 2
    assert reach.longest_chain(state) == 5001, "no limit of Python's recursion"


def test_how_far_the_first_word_reaches_by_hand() -> None:
    embedded = torch.ones(1, 4, 2, requires_grad=True)
    memory = (embedded * torch.tensor([0.5, 1.0, 2.0, 1.0])[None, :, None]).cumsum(dim=1)
    assert reach.first_beside_last(memory, embedded) == pytest.approx(0.25)


def test_the_matrix_of_a_shift_by_hand() -> None:
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)  # a sine becomes a cosine, it minus a sine
    assert torch.allclose(scores.shift(2, 3), torch.matrix_exp(3 * quarter))  # three radians


def test_the_vectors_that_an_encoder_begins_with() -> None:
    model, ids = transformer(16), words(2, 5)
    _, vectors = encoded(model, ids)
    table = model.encoder.embedder.table
    assert torch.allclose(vectors[:, 0], table[ids[:, 0]] * 4 + torch.tensor([0.0, 1.0]).repeat(8))


def test_flops_of_a_step_by_hand() -> None:
    """One decoder layer: 8 d^2 for self-attention, 4 d^2 for queries and outputs of cross-attention, 16 d^2 for the
    feed-forward, 2 d V for the output; 4 d for each key: 16 slots, and 8 words of the source filled up to
    16.
    """
    d_model = 16
    model = transformer(d_model)
    found = costs.flops_of_step(costs.filled_cache(model, 3), model)
    assert found == 28 * d_model**2 + 2 * d_model * VOCAB_SIZE + 4 * d_model * (16 + 16)


def test_keys_that_a_step_attends_to() -> None:
    model = transformer(16, attention_window=4)
    assert [costs.num_visible(model, costs.filled_cache(model, length)) for length in (1, 3, 4, 9)] == [1, 3, 4, 4]


# Text and models of the trainings


def test_joined_lines_hold_every_pair_once(tmp_path: Path) -> None:
    folder = workshop.joined_files(tmp_path, 3)
    for place, language in enumerate(("en", "es")):
        lines = (folder / f"train.{language}").read_text(encoding="utf-8").split("\n")[:-1]
        given = [pair[place] for pair in builtin_pairs("train")]
        assert sorted(" ".join(lines).split()) == sorted(" ".join(given).split())
        assert abs(len(lines) - len(given) / 2) < 2, "of one, two and three pairs equally many"
        test = [pair[place] for pair in builtin_pairs("test")]
        assert (
            (folder / f"test_2.{language}").read_text(encoding="utf-8").startswith(f"{test[0]} {test[1]}\n{test[2]} ")
        )
    assert workshop.joined_files(tmp_path, 3) == folder


def test_without_attention_every_word_is_given_the_mean() -> None:
    there = RNN_ATTENTIONS["luong_dot"]
    config = recurrent(8).config
    config = config.model_copy(update={"rnn": config.recurrent.model_copy(update={"attention": "luong_dot"})})
    with lengths.without_attention(True):
        model = Rnn(config, VOCAB_SIZE, VOCAB_SIZE)
    assert RNN_ATTENTIONS["luong_dot"] is there
    memory = torch.randn(1, 4, 8)
    mask = torch.tensor([[[True, True, True, False]]])
    given = model.decoder.cross_attn(torch.randn(1, 2, 8), memory, memory, mask)
    assert torch.allclose(given, memory[:, :3].mean(dim=1, keepdim=True).expand(-1, 2, -1))
    with lengths.without_attention(False):
        assert RNN_ATTENTIONS["luong_dot"] is there


# The script and the page


def test_the_list_names_every_claim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--list"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert [line.split()[0] for line in lines] == list(CLAIMS)
    assert [line.split()[1] == "trains" for line in lines] == [claim.trains for claim in CLAIMS.values()]


def test_the_page_has_the_claims_of_the_table_and_no_others() -> None:
    text = read(PAGE)
    summary = next(table for table in tables(text) if table[0] == ["name", "claim", "verdict"])
    assert [re.sub(r"\[`(\w+)`\]\(#\1\)", r"\1", name) for name, *_ in summary[1:]] == list(CLAIMS)
    assert [says for _, says, _ in summary[1:]] == [claim.says for claim in CLAIMS.values()]
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", prose(text), re.DOTALL | re.MULTILINE))
    assert list(sections) == list(CLAIMS)
    for (name, said), (_, _, verdict) in zip(sections.items(), summary[1:], strict=True):
        claim = CLAIMS[name]
        told = f"{claim.says} ({claim.source}.) It holds if {claim.threshold}: **{verdict}**."
        assert " ".join(said.split()).startswith(" ".join(told.split())), name
        assert verdict in [*Verdict, "not measured yet"]
        assert (verdict != "not measured yet") == bool(tables(said)), name
