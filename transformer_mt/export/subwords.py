"""Which of our tokenizers other engines can have: subwords over bytes, in one vocabulary for both languages."""

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.tokenizers import TOKENIZERS
from transformer_mt.errors import UserError
from transformer_mt.export.expressible import INSTEAD


def refuse_tokenizer(config: TokenizerConfig, engine: str) -> None:
    """UserError, with all keys, unless the engine's tokenizer can treat a text as ours does."""
    said = []
    if not TOKENIZERS[config.kind].knows_every_text:
        others = " or ".join(kind for kind, tokenizer in TOKENIZERS.items() if tokenizer.knows_every_text)
        said.append(
            f"tokenizer.kind is {config.kind}, whose words a tokenizer of {engine} does not split alike. Train a "
            f"model with tokenizer.kind: {others} {INSTEAD}"
        )
    if not config.joint:
        said.append(
            f"tokenizer.joint is False, and {engine} has one vocabulary for both languages. Train a "
            f"model with tokenizer.joint: true {INSTEAD}"
        )
    if config.lowercase:
        said.append(
            f"tokenizer.lowercase is True, and {engine} has other lower-case letters (a Greek sigma at the end of a "
            f"word). Train a model with tokenizer.lowercase: false {INSTEAD}"
        )
    if said:
        raise UserError("\n".join(said))
