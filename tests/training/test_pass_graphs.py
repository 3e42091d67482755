"""Passes that are repeated on the same memory: against passes that are made anew.

On a CPU a capture is a stand-in, which makes the pass again from the tensors that it was captured with.
"""

import pytest
import torch
from torch import Tensor

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.machine.cuda_graphs import CudaGraphs, Step
from transformer_mt.model.loss import cross_entropy_sums
from transformer_mt.model.transformer import Transformer
from transformer_mt.training import compiling, pass_graphs
from transformer_mt.training.micro_batch import add_gradient
from transformer_mt.training.pass_graphs import UNCAPTURED, PassGraphs, can_be_captured
from transformer_mt.training.sharing.alone import WithLoss

VOCAB, SMOOTHING = 40, 0.1
NO_SCALER = torch.GradScaler("cpu", enabled=False)
# Sources, targets and sentences: of some sizes there are more, of unlike batches that come to the same size.
SHAPES = [(9, 7, 6), (8, 7, 7), (9, 7, 6), (30, 20, 12), (8, 7, 6), (30, 20, 11), (9, 6, 6), (29, 20, 12), (1, 1, 1)]


class Again(CudaGraphs):
    """Captures nothing, but has a pass made again from what lies where it lay."""

    def __init__(self, room: bool = True) -> None:
        self.room = room
        self.fails = False

    def has_room_beside(self, share: float) -> bool:
        return self.room

    def free_unused(self) -> None:
        """There is nothing."""

    def forget(self) -> None:
        """There is nothing."""

    def random_state(self) -> Tensor:
        return torch.get_rng_state()

    def set_random_state(self, state: Tensor) -> None:
        torch.set_rng_state(state)

    def __call__(self, step: Step) -> Step:
        torch.rand(5)  # a capture may move the generator
        if self.fails:
            raise RuntimeError("no graphs here\nfor a reason")
        return step


def make_model(device: str = "cpu", **options: object) -> Transformer:
    """With heads that are wide enough for the passes of a CPU."""
    config = ModelConfig.model_validate({
        "d_model": 64, "d_ff": 48, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "max_len": 64,
        "dropout": 0.0, **options,
    })  # fmt: skip
    torch.manual_seed(0)
    return Transformer(config, VOCAB, VOCAB).to(device).train()


def batch_of(src_len: int, tgt_len: int, num_sentences: int, seed: int) -> Batch:
    """Sentences of several lengths, up to these."""
    torch.manual_seed(seed)
    sides = [
        [torch.randint(4, VOCAB, (max(1, longest - i % 3),)).numpy() for i in range(num_sentences)]
        for longest in (src_len, tgt_len)
    ]
    return make_batch(*sides)


def with_loss_of(model: Transformer) -> WithLoss:
    """With a cross-entropy that is not the CPU's own, as a compiled one is not."""
    with_loss = WithLoss(model)
    with_loss.cross_entropy = lambda *arguments: cross_entropy_sums(*arguments)
    return with_loss


def gradients_of(model: Transformer) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    flat, wanted = (torch.cat([tensor.flatten().float() for tensor in tensors]) for tensors in (found, expected))
    assert (flat - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize(
    "options",
    [{}, {"positions": "rotary", "norm_position": "pre"}, {"tie_embeddings": "all", "activation": "geglu"}],
    ids=str,
)
def test_a_pass_from_memory_is_the_pass_of_its_batch(options: dict) -> None:
    model = make_model(**options)
    with_loss = with_loss_of(model)
    graphs = PassGraphs(model, with_loss, "fp32", SMOOTHING, Again())
    for seed, shape in enumerate(SHAPES * 2):
        batch = batch_of(*shape, seed)
        model.zero_grad()
        expected = add_gradient(with_loss, batch, 1, "fp32", SMOOTHING, batch.num_tokens, NO_SCALER)
        wanted = gradients_of(model)
        model.zero_grad()
        found = graphs.add_gradient(batch, 1, 1 / batch.num_tokens)
        assert_same(gradients_of(model), wanted)
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close(found.nll, expected.nll)
    assert graphs.num_captured == 3  # for nine kinds of batches
    assert not graphs.has_failed


def test_gradients_add_up_and_begin_anew() -> None:
    """Whoever drops them, and whatever tensors others have put in their place."""
    model = make_model()
    with_loss = with_loss_of(model)
    graphs = PassGraphs(model, with_loss, "fp32", SMOOTHING, Again())
    batches = [batch_of(9, 7, 6, seed) for seed in range(4)]
    for _ in range(UNCAPTURED + 2):
        model.zero_grad()
        for batch in batches[:2]:
            add_gradient(with_loss, batch, 1, "fp32", SMOOTHING, 20, NO_SCALER)
        for batch in batches[2:]:
            graphs.add_gradient(batch, 1, 1 / 20)
        found = gradients_of(model)
        model.zero_grad()
        for batch in batches:
            add_gradient(with_loss, batch, 1, "fp32", SMOOTHING, 20, NO_SCALER)
        assert_same(found, gradients_of(model))
    assert graphs.num_captured == 1


def test_dropout_goes_by_the_seed_captured_or_not() -> None:
    model = make_model(dropout=0.3, src_word_dropout=0.2)
    batch = batch_of(9, 7, 6, 0)
    graphs = PassGraphs(model, with_loss_of(model), "fp32", SMOOTHING, Again())
    losses = {seed: [float(graphs.add_gradient(batch, seed, 1.0).loss) for _ in range(4)] for seed in (1, 2)}
    assert graphs.num_captured == 1
    assert len(set(losses[1])) == len(set(losses[2])) == 1
    assert losses[1][0] != losses[2][0]


@pytest.mark.parametrize("fails", [True, False])
def test_without_graphs_the_passes_go_on(fails: bool, recwarn: pytest.WarningsRecorder) -> None:
    """Where a capture fails, and where torch holds too much of the memory already."""
    model = make_model()
    capture = Again(room=fails)
    capture.fails = fails
    graphs = PassGraphs(model, with_loss_of(model), "fp32", SMOOTHING, capture)
    batch = batch_of(9, 7, 6, 0)
    found = []
    for _ in range(5):
        model.zero_grad()
        graphs.add_gradient(batch, 1, 1.0)
        found.append(gradients_of(model))
    for one in found[1:]:
        assert_same(one, found[0])
    assert graphs.num_captured == 0
    said = [text for warning in recwarn if "graph" in (text := str(warning.message))]  # others' stand there too
    assert said == ["training without CUDA graphs, which is slower: no graphs here"] * fails


def test_given_up_graphs_are_gone_for_good() -> None:
    model = make_model()
    graphs = PassGraphs(model, with_loss_of(model), "fp32", SMOOTHING, Again())
    batch = batch_of(9, 7, 6, 0)
    assert not graphs.give_up()
    losses = [float(graphs.add_gradient(batch, 1, 1.0).loss) for _ in range(3)]
    assert (graphs.num_captured, graphs.take_prepares()) == (1, True)
    assert graphs.give_up()
    losses += [float(graphs.add_gradient(batch, 1, 1.0).loss) for _ in range(3)]
    assert len(set(losses)) == 1
    assert (graphs.num_captured, graphs.take_prepares(), graphs.give_up()) == (1, False, False)


def test_sizes_have_a_bound_and_little_is_added() -> None:
    rounded = [pass_graphs._rounded(rows) for rows in range(64, 2**15, 64)]
    assert all(size % 64 == 0 for size in rounded)
    added = [(size - rows, rows) for size, rows in zip(rounded, range(64, 2**15, 64), strict=True)]
    assert all(surplus < max(64, min(rows / 4, 1024)) for surplus, rows in added)
    assert len(set(rounded)) <= 8 + 4 * 4 + 8 + 16


def test_what_changes_from_pass_to_pass_is_not_captured() -> None:
    assert not can_be_captured(make_model(), "bf16", torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_graphs_give_the_gradients_of_passes(precision: str, compiled: bool, norm_position: str) -> None:
    model = make_model("cuda", norm_position=norm_position)
    device = torch.device("cuda")
    assert can_be_captured(model, precision, device)
    with_loss = with_loss_of(model)
    step = compiling.CompiledStep(model) if compiled else None
    if step is not None:
        with_loss.cross_entropy = step.cross_entropy
    graphs = PassGraphs(model, with_loss, precision, SMOOTHING, CudaGraphs(device))
    for seed, shape in enumerate(SHAPES * 3):
        batch = batch_of(*shape, seed).to(device)
        model.zero_grad()
        expected = add_gradient(with_loss, batch, 1, precision, SMOOTHING, batch.num_tokens, NO_SCALER)
        wanted = gradients_of(model)
        model.zero_grad()
        found = graphs.add_gradient(batch, 1, 1 / batch.num_tokens)
        tolerance = 1e-4 if precision == "fp32" else 2**-6
        assert_same(gradients_of(model), wanted, tolerance)
        assert_same([found.loss, found.nll], [expected.loss, expected.nll], tolerance)
    assert graphs.num_captured == 3
    assert not graphs.has_failed


@pytest.mark.gpu
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize(("precision", "compiled"), [("fp32", False), ("bf16", True)])
def test_on_a_gpu_a_graph_drops_by_the_seed(precision: str, compiled: bool, norm_position: str) -> None:
    model = make_model("cuda", dropout=0.3, norm_position=norm_position)
    with_loss = with_loss_of(model)
    if compiled:
        with_loss.cross_entropy = compiling.CompiledStep(model).cross_entropy
    graphs = PassGraphs(model, with_loss, precision, SMOOTHING, CudaGraphs(torch.device("cuda")))
    batch = batch_of(9, 7, 6, 0)
    losses = {seed: [float(graphs.add_gradient(batch, seed, 1.0).loss) for _ in range(6)] for seed in (1, 2, 3)}
    assert graphs.num_captured == 1
    for found in losses.values():
        torch.testing.assert_close(torch.tensor(found), torch.full((6,), found[0]), rtol=1e-5, atol=0)
    assert len({round(found[0], 2) for found in losses.values()}) == 3
