"""Claims about attention beside recurrence: what must wait for what, how long it takes, how far positions are apart."""

import torch
from measuring.comparing import least_seconds
from torch import Tensor, nn

from measured_claims.claim import Finding, Settings, decided
from measured_claims.models import encoded, recurrent, transformer, words
from transformer_mt.inspect.flops import flops_by_part
from transformer_mt.model.interface import TranslationModel


def longest_chain(result: Tensor) -> int:
    """How many operations stand one behind another on the longest way through what computed it, by torch's own graph
    for the backward pass. Operations of different ways could run at the same time.
    """
    chain: dict[object, int] = {}
    waiting = [(result.grad_fn, False)]
    while waiting:
        node, is_done = waiting.pop()
        if node is None or (node in chain and not is_done):
            continue
        before = [one for one, _ in node.next_functions if one is not None]
        if is_done:
            chain[node] = 1 + max((chain[one] for one in before), default=0)
        else:
            waiting += [(node, True), *((one, False) for one in before)]
    return chain[result.grad_fn]


def sequential(settings: Settings) -> Finding:
    """Of a training pass over sentences of some lengths."""
    lengths = (4, 8) if settings.small else (8, 16, 32, 64)
    models = {"Transformer": transformer(16), "recurrent, GRU": recurrent(16)}
    chains = {
        name: [longest_chain(model(words(1, length), words(1, length)).sum()) for length in lengths]
        for name, model in models.items()
    }
    rows = [[name, *map(str, counts)] for name, counts in chains.items()]
    flat, growing = chains.values()
    holds = len(set(flat)) == 1 and growing[-1] - growing[0] >= lengths[-1] - lengths[0]
    return Finding(("operations in a chain", *(f"length {length}" for length in lengths)), rows, decided(holds))


def parallel(settings: Settings) -> Finding:
    """Forward and backward passes over as many tokens, in fewer and longer sentences."""
    num_tokens, lengths, d_model, rounds = (128, (8, 64), 16, 2) if settings.small else (2048, (8, 32, 128), 128, 7)
    models = {"Transformer": transformer(d_model, 2), "recurrent, GRU": recurrent(d_model)}
    batches = [words(num_tokens // length, length) for length in lengths]

    def step(model: TranslationModel, ids: Tensor) -> None:
        model(ids, ids).logsumexp(dim=-1).sum().backward()
        model.zero_grad()

    works = [lambda model=model, ids=ids: step(model, ids) for model in models.values() for ids in batches]
    seconds = least_seconds(works, rounds)
    rows, growth = [], []
    for place, name in enumerate(models):
        own = seconds[place * len(lengths) : (place + 1) * len(lengths)]
        growth.append(own[-1] / own[0])
        rows.append([name, *(f"{second / own[0]:.2f}" for second in own)])
    heads = ("time of a step, as a ratio", *(f"{num_tokens // length} x {length}" for length in lengths))
    return Finding(heads, rows, decided(growth[1] > 1.5 * growth[0]))


def first_beside_last(memory: Tensor, embedded: Tensor) -> float:
    """How much the vector of the last position depends on the first word, beside how much it does on the word before
    the last: norms of gradients. memory and embedded (batch, length, size).
    """
    direction = torch.randn(memory.size(-1), generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((memory[:, -1] @ direction).sum(), embedded)
    norms = gradient.norm(dim=-1).mean(dim=0)
    return float(norms[0] / norms[-2])


def path(settings: Settings) -> Finding:
    """Of untrained layers: one of an encoder, and a recurrence that reads from the first position to the last."""
    lengths = (8, 32) if settings.small else (8, 32, 128, 512)
    d_model = 16 if settings.small else 64
    attention = transformer(d_model)
    cells = {"GRU": recurrent(d_model, "gru").encoder.rnn, "LSTM": recurrent(d_model, "lstm").encoder.rnn}
    found: dict[str, list[float]] = {"attention": []}
    for length in lengths:
        memory, vectors = encoded(attention, words(16, length))
        found["attention"].append(first_beside_last(memory, vectors))
        for name, rnn in cells.items():
            assert isinstance(rnn, nn.RNNBase)
            embedded = vectors.detach().requires_grad_()
            states = rnn(embedded)[0][..., : rnn.hidden_size]
            found.setdefault(name, []).append(first_beside_last(states, embedded))
    rows = [[name, *(f"{one:.1e}" if one < 0.01 else f"{one:.2f}" for one in ones)] for name, ones in found.items()]
    far = {name: ones[-1] for name, ones in found.items()}
    holds = far["attention"] > 0.1 and max(far["GRU"], far["LSTM"]) < 0.01
    return Finding(("first word beside a neighbour", *(f"length {n}" for n in lengths)), rows, decided(holds))


def layer_cost(settings: Settings) -> Finding:
    """Operations of a layer, a multiply-add as two, at lengths around its width. A recurrence of one direction."""
    d_model = 16 if settings.small else 512
    attention, rnn = transformer(d_model), recurrent(d_model)
    rows, cheaper = [], []
    for length in (d_model // 4, d_model // 2, d_model, 2 * d_model, 4 * d_model):
        of_attention = flops_by_part(attention, length, 1)["encoder.self_attn"]
        of_rnn = flops_by_part(rnn, length, 1)["encoder.rnn"] // 2  # which has two directions
        cheaper.append((length, of_attention / of_rnn))
        rows.append([f"{length}", f"{of_attention / 1e6:,.2f}", f"{of_rnn / 1e6:,.2f}", f"{of_attention / of_rnn:.2f}"])
    holds = all((ratio < 1) == (length < d_model) for length, ratio in cheaper)
    heads = (f"length, at d_model {d_model}", "self-attention, MFLOP", "GRU, MFLOP", "ratio")
    return Finding(heads, rows, decided(holds))
