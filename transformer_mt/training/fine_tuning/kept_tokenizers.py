"""The tokenizers of a training that begins with another run's weights."""

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.encoding import corpus_tokenizers, load_tokenizers
from transformer_mt.data.preparation import with_pictures
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.vocabulary.extend import Extended, extend_vocabularies
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted
from transformer_mt.training.fine_tuning.source_run import SourceRun


def kept_tokenizers(config: RunConfig, source: SourceRun) -> tuple[Tokenizer, Tokenizer] | None:
    """Source and target tokenizer as `vocabulary` says, told in a line; None where both are to be learned.

    Raises UserError where those of the run were changed, and where the vocabulary has no room for new words.
    """
    asked, path = source.asked, source.run.path
    was, now = ((of.data.src_lang, of.data.tgt_lang) for of in (source.config, config))
    if was != now:
        print(f"languages: {' to '.join(was)} in {path}, {' to '.join(now)} now")
    if not (asked.keeps_src or asked.keeps_tgt):
        print(f"tokenizers: new, none of {path}'s")
        return None
    src, tgt = load_tokenizers(source.run.tokenizers, config.tokenizer, f"Put back the tokenizers of {path}.")
    if asked.vocabulary == "keep":
        print(f"tokenizers: those of {path}, kept as they are")
        return src, tgt
    corpus = load_corpus(config.data.train, config.data, mono=True)
    if asked.vocabulary == "extend":
        sides = extend_vocabularies(corpus, src, tgt, config.tokenizer)
        both = [("both sides", sides[0])]
        named = both if config.tokenizer.joint else list(zip(("source", "target"), sides, strict=True))
        for side, extended in named:
            _refuse_frozen(config, side, extended.num_new)
        print(f"tokenizers: those of {path}, and behind their words " + "; ".join(_told(*side) for side in named))
        return sides[0].tokenizer, sides[1].tokenizer
    new_src, new_tgt = with_pictures(config, corpus_tokenizers(corpus, config.tokenizer, config.data))
    kept, new = ("source", "target") if asked.keeps_src else ("target", "source")
    print(f"tokenizers: the {kept}'s is that of {path}, the {new}'s is new")
    return (src, new_tgt) if asked.keeps_src else (new_src, tgt)


def way_to_new_words(config: RunConfig) -> list[str]:
    """What makes fewer words unknown, where the vocabulary is another run's; nothing where it is not."""
    asked = config.training.init_from
    if asked is None or not (asked.keeps_src or asked.keeps_tgt):
        return []
    if asked.vocabulary == "new":
        return [
            f"what the tokenizer of {asked.run} does not know stays so; the other side's words come from data.train"
        ]
    if asked.vocabulary == "extend":
        return ["a lower tokenizer.min_frequency makes more of them new entries, if tokenizer.vocab_size leaves room"]
    return ["training.init_from.vocabulary: extend adds those that data.train has often"]


def _refuse_frozen(config: RunConfig, side: str, num_new: int) -> None:
    """UserError where new words of this side would keep the random numbers that they begin with."""
    parts = {"source": ("src_embeddings",), "target": ("tgt_embeddings", "output")}
    held = {"embeddings", *(part for name in parts for part in parts[name] if side in (name, "both sides"))}
    if num_new and (frozen := next((part for part in config.training.freeze if part in held), None)):
        raise UserError(
            f"training.freeze has {frozen}, and the {counted(num_new, 'new word')} of training.init_from.vocabulary: "
            "extend would keep the random numbers that they begin with. Take it out of training.freeze, or use "
            "vocabulary: keep."
        )


def _told(side: str, extended: Extended) -> str:
    rest = extended.num_without_room
    more = f" ({rest:,} more have no room in tokenizer.vocab_size)" if rest else ""
    return f"{extended.num_new:,} new ones of {side}{more}"
