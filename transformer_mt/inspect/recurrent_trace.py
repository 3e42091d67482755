"""The vectors of a recurrent network for a trace."""

import torch
from torch import Tensor

from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.inspect.stack_trace import RecurrentTrace, StackTrace
from transformer_mt.model.recurrent.encoder import WordEmbedder
from transformer_mt.model.recurrent.rnn import Rnn

_KINDS = ("state", "cell state")  # the second of an LSTM alone


def recurrent_stacks(
    model: Rnn, src: Tensor, tgt_in: Tensor, recorded: dict[str, Tensor], tokenizers: dict[str, Tokenizer]
) -> list[StackTrace]:
    """The encoder and the decoder for one source (1, src_len) and one target (1, tgt_len). `recorded` are the weights
    of their pass. The states of the decoder's layers are those of a search that is fed the target.
    """
    memory, _ = model.encoder(src)
    forward, backward = memory[0].chunk(2, dim=1)
    cache, every, hidden = model.start(src), [], []
    for token in tgt_in.unbind(dim=1):
        hidden.append(model.decoder.step(token, cache))
        every.append(torch.stack(cache.states)[:, :, 0])
    by_position = torch.stack(every, dim=2)  # (kinds, layers, tgt_len, d_model)
    weights = recorded["decoder.cross_attn"][0]
    context = weights[0] @ memory[0].to(weights.dtype)
    of_encoder = {"state read forwards": forward, "state read backwards": backward}
    of_decoder = {
        f"{kind} of layer {layer}": states
        for kind, layers in zip(_KINDS, by_position, strict=False)
        for layer, states in enumerate(layers)
    } | {"context": context}
    return [
        _trace("encoder", model.encoder.embedder, src, of_encoder, memory[0], None, tokenizers["encoder"]),
        _trace(
            "decoder", model.decoder.embedder, tgt_in, of_decoder, torch.cat(hidden), weights, tokenizers["decoder"]
        ),
    ]


def _trace(
    name: str,
    embedder: WordEmbedder,
    ids: Tensor,
    states: dict[str, Tensor],
    output: Tensor,
    weights: Tensor | None,
    tokenizer: Tokenizer,
) -> RecurrentTrace:
    embedding = embedder.embedding.weight[ids[0]].cpu()
    scaled = embedder(ids)[0].cpu()
    return RecurrentTrace(
        name=name,
        ids=ids[0].tolist(),
        tokens=tokenizer.tokens(ids[0].tolist()),
        embedding=embedding,
        scaled=scaled,
        position=None,
        sum=scaled,
        layers=[],
        final_norm=False,
        output=output.cpu(),
        states={name: vectors.cpu() for name, vectors in states.items()},
        weights=None if weights is None else weights.cpu(),
    )
