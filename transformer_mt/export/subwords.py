"""Which of our tokenizers other engines can have: subwords over bytes, in one vocabulary for both languages."""

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.tokenizer import TokenizerConfig, language_of
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
            f"tokenizer.joint is false, and {engine} has one vocabulary for both languages. Train a "
            f"model with tokenizer.joint: true {INSTEAD}"
        )
    if config.lowercase:
        said.append(
            f"tokenizer.lowercase is true, and {engine} has other lower-case letters (a Greek sigma at the end of a "
            f"word). Train a model with tokenizer.lowercase: false {INSTEAD}"
        )
    said += _about_tags(config, engine)
    if said:
        raise UserError("\n".join(said))


def refuse_tags(config: TokenizerConfig, engine: str) -> None:
    """UserError, with the keys, where the config has tags or masks, of which our other tokenizers alone know."""
    if said := _about_tags(config, engine):
        raise UserError("\n".join(said))


def refuse_languages(config: RunConfig, engine: str) -> None:
    """UserError, with the key, where tags say which language is wanted: `tmt translate --to` puts them before a source,
    and nothing does in an engine.
    """
    if config.languages:
        tags = [tag for tag in config.tokenizer.tags if language_of(tag) in config.languages]
        raise UserError(
            f"tokenizer.tags holds {', '.join(tags)}, tags of languages, and {engine} puts none before a source. Train "
            f"a model of one language without them {INSTEAD}"
        )


def _about_tags(config: TokenizerConfig, engine: str) -> list[str]:
    said = []
    if config.tags:
        said.append(
            f"tokenizer.tags holds {', '.join(config.tags)}, which {engine} would cut into pieces. Train a model "
            f"without tokenizer.tags {INSTEAD}"
        )
    if config.masks:
        said.append(
            f"tokenizer.masks is {config.masks}, and {engine} would cut {config.all_tags[-1]} into pieces. Train a "
            f"model on pairs from this one, with training.init_from and tokenizer.masks: 0, {INSTEAD}"
        )
    return said
