"""What a kernel that chooses the next tokens of a greedy search is held against: torch's own operations."""

import torch

from transformer_mt.config.special_ids import EOS_ID, UNK_ID
from transformer_mt.decoding.fast_layers.find_kernels import compiled_passes
from transformer_mt.decoding.search.greedy_rows import Choice, GreedyRows

CHOICES = [Choice(allow_unk, scored) for allow_unk in (False, True) for scored in (False, True)]


def assert_chooses_as_torch_does(
    kind: type[GreedyRows], choice: Choice, device: torch.device, vocab_size: int, bad: int, strided: bool
) -> None:
    """Over several steps; one row has ended before, and others do by EOS or by their length. `bad` is a token whose
    logit is no number once; what is `strided` lies apart in memory, as in an arena.
    """
    generator = torch.Generator(device).manual_seed(0)
    limits = torch.tensor([3, 9, 5, 7, 2, 9], device=device)
    theirs, ours = (rows.begin(limits, 12, choice.scored) for rows in (GreedyRows, kind))
    theirs.is_over[2] = ours.is_over[2] = True
    if strided:
        ours.tokens = limits.new_zeros(8, 2)[:6, 0]
    for step in range(6):
        logits = torch.randn(6, vocab_size, generator=generator, device=device)
        logits[1, UNK_ID] = 9.0 * (step == 1)
        logits[3, EOS_ID] = 9.0 * (step == 2)
        logits[5, 9], logits[5, vocab_size - 1] = -torch.inf, 7.0 * (step == 3)
        if step == 4:
            logits[5, bad] = logits[0, 7] = torch.nan  # the second of a row that has ended
        given = torch.cat((logits, logits), dim=1)[:, :vocab_size] if strided and step % 2 else logits.clone()
        with compiled_passes(False):
            report = theirs.choose(logits, choice)
        assert ours.choose(given, choice).tolist() == report.tolist()
        assert report[1] == (step == 4)
        if step < 4:
            for name in ("tokens", "is_over"):
                assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
            assert ours.history[:, : step + 1].tolist() == theirs.history[:, : step + 1].tolist()
            torch.testing.assert_close(ours.totals, theirs.totals, equal_nan=True)
    assert theirs.is_over.sum() >= 4


def assert_equal_logits_are_decided_by_the_token(kind: type[GreedyRows], device: torch.device) -> None:
    rows = kind.begin(torch.tensor([9, 9], device=device), 12, scored=False)
    logits = torch.full((2, 5000), -torch.inf, device=device)
    logits[0, [4999, 2100, 70]] = 1.5
    assert rows.choose(logits, Choice(allow_unk=False, scored=False)).tolist() == [1, 0]
    assert rows.tokens.tolist() == [70, EOS_ID]
