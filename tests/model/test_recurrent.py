"""The recurrent network against torch's layers and cells, and against the papers' formulas, one number at a time."""

import itertools

import pytest
import torch
from plain_model import random_ids
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.recurrent import cells
from transformer_mt.model.recurrent.attention import AdditiveAttention, GeneralAttention
from transformer_mt.model.recurrent.cells import CELLS, Steps, all_steps
from transformer_mt.model.recurrent.decoder import RNN_ATTENTIONS
from transformer_mt.model.recurrent.rnn import Rnn

VOCAB = 13
SHAPE = {"d_model": 6, "num_encoder_layers": 2, "num_decoder_layers": 2, "max_len": 12, "tie_embeddings": "none"}
SIZES = {"d_embedding": 5, "d_readout": 4}
KINDS = [
    {"cell": cell, "attention": attention, "input_feeding": feeding}
    for cell, attention, feeding in itertools.product(CELLS, RNN_ATTENTIONS, [True, False])
    if feeding or attention != "bahdanau"
]


def make_model(rnn: dict) -> Rnn:
    """In float64, with no bias at 0."""
    torch.manual_seed(3)
    config = ModelConfig.model_validate({"architecture": "rnn", "rnn": {**SIZES, **rnn}, **SHAPE})
    model = Rnn(config, VOCAB, VOCAB).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_the_encoder_is_torchs_over_each_sentence_alone(cell: str) -> None:
    """Two layers of two directions, from layers of one: torch's bidirectional one is not asked."""
    model = make_model({"cell": cell})
    lengths = [4, 1, 7]
    src = torch.full((3, 9), PAD_ID)
    for row, length in enumerate(lengths):
        src[row, :length] = random_ids(length, seed=row, vocab_size=VOCAB)
    memory, last = model.encoder(src)
    weights = model.encoder.rnn.state_dict()
    for row, length in enumerate(lengths):
        x = model.encoder.embedder.embedding.weight[src[row, :length]] * 5**0.5
        for layer in (0, 1):
            directions = []
            for suffix in ("", "_reverse"):
                one = CELLS[cell].layers(x.size(1), 6).double()
                names = {name.removesuffix("_l0"): name for name in one.state_dict()}
                one.load_state_dict({own: weights[f"{kind}_l{layer}{suffix}"] for kind, own in names.items()})
                directions.append(one(x)[0] if not suffix else one(x.flip(0))[0].flip(0))
            x = torch.cat(directions, dim=1)
        torch.testing.assert_close(memory[row, :length], x)
        torch.testing.assert_close(last[row], directions[1][0])
        assert not memory[row, length:].any()


@pytest.mark.parametrize(("name", "cell"), [("gru", nn.GRUCell), ("lstm", nn.LSTMCell)])
@torch.no_grad()
def test_a_step_is_that_of_torchs_cells(name: str, cell: type) -> None:
    torch.manual_seed(0)
    layers = CELLS[name].layers(5 + 3, 6, 2).double()
    words, fed = torch.randn(4, 5).double(), torch.randn(4, 3).double()
    states = tuple(torch.randn(2, 4, 6).double() for _ in range(CELLS[name].num_states))
    steps = Steps(layers, CELLS[name], 5, 0.0)
    found = steps(steps.of_words(words), fed, states)
    x = torch.cat((words, fed), dim=1)
    for layer in (0, 1):
        one = cell(x.size(1), 6).double()
        one.load_state_dict({kind: layers.state_dict()[f"{kind}_l{layer}"] for kind in one.state_dict()})
        state = [part[layer] for part in states]
        expected = one(x, state[0] if name == "gru" else state)
        expected = (expected,) if name == "gru" else expected
        for part, of_torch in zip(found, expected, strict=True):
            torch.testing.assert_close(part[layer], of_torch)
        x = expected[0]


# The papers' formulas: one sentence, one position, one source word after the other


def cells_of(model: Rnn) -> list[nn.GRUCell | nn.LSTMCell]:
    """The decoder's layers as torch's cells."""
    rnn = model.decoder.rnn
    cells = []
    for layer in range(rnn.num_layers):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = {name: rnn.get_parameter(f"{name}_l{layer}") for name in names}
        kind = nn.GRUCell if isinstance(rnn, nn.GRU) else nn.LSTMCell
        cell = kind(weights["weight_ih"].size(1), rnn.hidden_size).double()
        cell.load_state_dict(weights)
        cells.append(cell)
    return cells


def through(cells: list[nn.GRUCell | nn.LSTMCell], x: Tensor, states: list) -> Tensor:
    """One position of all layers; `states` are replaced. -> the new state of the last."""
    for layer, cell in enumerate(cells):
        states[layer] = cell(x[None], states[layer])
        h = states[layer] if isinstance(states[layer], Tensor) else states[layer][0]
        x = h[0]
    return x


def first_states(model: Rnn, last: Tensor) -> list:
    """s_0 = tanh(W_s h_1), with h_1 of the backward direction (appendix A.2.2), for each layer and kind of state."""
    numbers = (model.decoder.bridge.weight @ last + model.decoder.bridge.bias).tanh().view(-1, 2, 1, 6)
    return [numbers[0][i] if len(numbers) == 1 else (numbers[0][i], numbers[1][i]) for i in range(2)]


def top(states: list) -> Tensor:
    return (states[-1] if isinstance(states[-1], Tensor) else states[-1][0])[0]


def context_of(model: Rnn, query: Tensor, memory: Tensor) -> Tensor:
    """sum_j alpha_j h_j with alpha = softmax(score); each score by itself."""
    attention = model.decoder.cross_attn
    scores = []
    for h in memory:
        if isinstance(attention, AdditiveAttention):  # v . tanh(W_a s + U_a h), appendix A.1.2
            inner = attention.q_proj.weight @ query + attention.k_proj.weight @ h + attention.k_proj.bias
            products = [v * x.tanh() for v, x in zip(attention.score_proj.weight[0], inner, strict=True)]
        else:  # h_t . W_a h_s, or h_t . h_s: equation 8
            key = attention.k_proj.weight @ h if isinstance(attention, GeneralAttention) else h
            products = [q * k for q, k in zip(query, key, strict=True)]
        scores.append(torch.stack(products).sum())
    shares = [score.exp() for score in scores]
    total = torch.stack(shares).sum()
    return torch.stack([share / total * h for share, h in zip(shares, memory, strict=True)]).sum(dim=0)


def bahdanau(model: Rnn, words: Tensor, memory: Tensor, states: list) -> list[Tensor]:
    """Appendix A.2.2; of t~ = U_o s + V_o E y + C_o c the larger of each two."""
    found, readout, cells = [], model.decoder.readout, cells_of(model)
    for word in words:
        context = context_of(model, top(states), memory)
        s = through(cells, torch.cat((word, context)), states)
        inner = readout.weight @ torch.cat((s, word, context)) + readout.bias
        found.append(torch.stack([max(inner[2 * j], inner[2 * j + 1]) for j in range(4)]))
    return found


def luong(model: Rnn, words: Tensor, memory: Tensor, states: list) -> list[Tensor]:
    """Equation 5, h~ = tanh(W_c [c; h]), and with input feeding section 3.3."""
    found, readout, cells = [], model.decoder.readout, cells_of(model)
    fed = [torch.zeros(4).double()] * model.config.recurrent.input_feeding
    for word in words:
        h = through(cells, torch.cat((word, *fed)), states)
        vector = (readout.weight @ torch.cat((context_of(model, h, memory), h)) + readout.bias).tanh()
        fed = [vector] * len(fed)
        found.append(vector)
    return found


@pytest.mark.parametrize("rnn", KINDS, ids=lambda rnn: "-".join(map(str, rnn.values())))
@torch.no_grad()
def test_the_decoder_is_the_papers(rnn: dict) -> None:
    model = make_model(rnn)
    src, tgt_in = random_ids(2, 5, vocab_size=VOCAB), random_ids(2, 4, seed=2, vocab_size=VOCAB)
    src[1, 3:] = PAD_ID
    memory, last = model.encoder(src)
    logits = model(src, tgt_in)
    slow = bahdanau if rnn["attention"] == "bahdanau" else luong
    for row, length in enumerate((5, 3)):
        words = model.decoder.embedder.embedding.weight[tgt_in[row]] * 5**0.5
        hidden = slow(model, words, memory[row, :length], first_states(model, last[row]))
        expected = torch.stack([model.output.weight @ one + model.output.bias for one in hidden])
        torch.testing.assert_close(logits[row], expected)


# Sizes


def test_rnn_search_has_the_papers_parameters() -> None:
    """RNNsearch-50 of Bahdanau et al. 2015: what the matrices of their appendix A add up to, with the sizes of appendix
    A.2.3: 30,000 words a side, m 620, n 1000, n' 1000, l 500. They print no total, and leave biases out of formulas.
    """
    words, m, n, align, maxout = 30_000, 620, 1000, 1000, 500
    embeddings = 2 * words * m
    encoder = 2 * 3 * (n * m + n * n)  # two directions; E x and h for the state and both gates
    decoder = 3 * (n * m + n * n + n * 2 * n) + n * n  # E y, s and c; and W_s for the first state
    attention = align * n + align * 2 * n + align  # W_a, U_a, v_a
    output = 2 * maxout * (n + m + 2 * n) + words * maxout  # U_o, V_o, C_o, W_o
    papers = embeddings + encoder + decoder + attention + output
    assert papers == 80_401_000
    with torch.device("meta"):
        model = Rnn(ModelConfig(**MODELS["rnn-search"]), words, words)
    matrices = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)
    assert matrices == papers
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(papers, rel=0.01)


@pytest.mark.parametrize(("attention", "of_pair"), [("bahdanau", 6), ("luong_general", 0)])
def test_what_a_step_keeps_grows_with_the_pairs_of_positions_where_they_meet_in_a_tanh(
    attention: str, of_pair: int
) -> None:
    config = make_model({"attention": attention}).config
    assert Rnn.held(config).of_pair == of_pair
    assert Rnn.held(config).of_position > 0


def test_the_recurrent_matrices_begin_orthogonal_and_forget_gates_open() -> None:
    torch.manual_seed(0)
    config = ModelConfig.model_validate({"architecture": "rnn", "rnn": {"cell": "lstm"}, **SHAPE})
    rnn = Rnn(config, VOCAB, VOCAB).decoder.rnn
    for gate in rnn.get_parameter("weight_hh_l1").detach().split(6):
        torch.testing.assert_close(gate @ gate.T, torch.eye(6))
    gates = rnn.get_parameter("bias_ih_l0").detach().split(6)
    assert gates[1].eq(1).all()
    assert not torch.cat([gates[0], *gates[2:], rnn.get_parameter("bias_hh_l0").detach()]).any()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("packed", [True, False])
@torch.enable_grad()
def test_layers_that_a_processor_cannot_round_run_in_single_precision(
    cell: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the states and the gradients that they have without autocast; and to ask draws no random number."""
    layers = CELLS[cell].layers(3, 4, 2, batch_first=True)
    words = torch.randn(2, 5, 3, requires_grad=True)
    given = pack_padded_sequence(words, [5, 2], batch_first=True) if packed else words
    before = torch.get_rng_state()
    expected, last = layers(given)
    cells._has_kernel.cache_clear()
    monkeypatch.setattr(cells.nn.Module, "__call__", refuse_in_bf16)
    with torch.autocast("cpu", torch.bfloat16):
        found, found_last = all_steps(layers, given)
    cells._has_kernel.cache_clear()
    assert torch.equal(torch.get_rng_state(), before)
    found, expected = (one.data if isinstance(one, PackedSequence) else one for one in (found, expected))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert all(map(torch.equal, found_last, last))
    (gradient,) = torch.autograd.grad(found.sum(), words, retain_graph=True)
    assert torch.equal(gradient, torch.autograd.grad(expected.sum(), words)[0])


def refuse_in_bf16(module: nn.Module, *given: object) -> object:
    if torch.is_autocast_enabled("cpu"):
        raise RuntimeError("could not create a primitive descriptor")
    return module.forward(*given)
