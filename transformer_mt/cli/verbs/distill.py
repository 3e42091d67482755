"""`tmt distill`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.synthesis.pairs import (
    MIXED,
    SYNTHESIS_FLAGS,
    OutputOption,
    TagOption,
    WithoutOption,
    languages_of,
    load_for,
    make_pairs,
    tag_of_pairs,
    without_constraints,
)
from transformer_mt.cli.synthesis.real_lines import (
    Choice,
    RealLines,
    input_lines,
    refuse_other_language,
    refuse_written,
)
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options
from transformer_mt.config.switching_off import NONE
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translator


@partial(with_options, names=SYNTHESIS_FLAGS)
def distill(
    *,
    models: Models,
    output: OutputOption,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings that replace those of --config, for example data.root=FOLDER.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", help="Whose training sources are translated. Default: those of the run itself."),
    ] = None,
    input: Annotated[
        Path | None, path_option("Text of the source language instead of training sources, one sentence a line.")
    ] = None,
    tag: TagOption = None,
    without: WithoutOption = None,
    choice: Choice,
    decoding: dict[str, Any],
) -> None:
    """Make training pairs whose targets are a teacher's translations: of training sources, or of other text.

    Of training sources this is sequence-level knowledge distillation (Kim and Rush 2016), and with --nearest
    sequence-level interpolation. With --input it is self-training. Several runs are an ensemble. Line n of each file
    belongs to pair or line n. The same command goes on after a stop.
    """
    if config is not None and input is not None:
        raise UserError("--config and --input were both given. Give one of them.")
    if overrides and config is None:
        raise UserError(
            f"{overrides[0]} would be a setting of --config, and none was given. Give one, or leave it out."
        )
    decoding = choice.searching(models, without_constraints(decoding), input)
    translator = load_for(output, models, decoding, tag)
    write = partial(
        make_pairs, "distill", models, translator, output=output, is_backward=False, tag=tag, without=without,
        choice=choice, decoding=decoding,
    )  # fmt: skip
    if input is not None:
        to = models.search_options(decoding).to
        languages = languages_of(translator.config, to)
        refuse_other_language(input, languages, "Take a teacher of the other direction, or `tmt backtranslate`.")
        choice.refuse_language(languages)
        with input_lines(input, output, without, choice) as real:
            write(real, language=tag_of_pairs(translator.config, languages[1], to))
        return
    sources = _training_sources(translator, config, overrides or [], decoding.get("to"), output)
    real = RealLines((src for src, _ in sources.pairs), "data.train")
    if choice.nearest:
        real = RealLines.of_pairs(sources.pairs, real.name)
    write(real, source_tags=sources.tags, languages=sources.languages)


class _Sources(NamedTuple):
    """Training pairs in their order, the tags before sources, and where these name languages those of the pairs."""

    pairs: Iterator[tuple[str, str]]
    tags: frozenset[str]
    languages: tuple[str, str] | None


def _training_sources(
    translator: "Translator", config: str | None, overrides: list[str], to: str | None, output: Path
) -> _Sources:
    """The sources of `data.train` of the config, or of the teacher's own. UserError where the teacher is one of another
    direction, or lacks the tag of a language, where `to` is given for sources that name theirs themselves, where one is
    a file of `output`, and where the two files of one have not as many lines.
    """
    from transformer_mt.config.loading import load_config
    from transformer_mt.config.sections.tokenizer import language_of
    from transformer_mt.data.batches.stream_window import stream_pairs
    from transformer_mt.data.sources.kinds import sources_of_pairs
    from transformer_mt.data.sources.text_pair import TextPair

    data = (load_config(config, overrides).config if config is not None else translator.config).data
    taught = translator.config.data.src_lang, translator.config.data.tgt_lang
    if taught != (data.src_lang, data.tgt_lang):
        raise UserError(
            f"The teacher translates {translator.config.data.direction}, and {config} trains {data.direction}. "
            "Take a teacher of that direction, or give the config of this one."
        )
    sources = sources_of_pairs(data.train, data)
    for source in sources:
        for path in source.files():
            refuse_written(path, output, "data.train:")
        if isinstance(source, TextPair):
            source.refuse_unequal()  # or all would be translated before it shows
    tags = frozenset(source.config.tag for source in sources if source.config.tag is not None)
    unknown = sorted(tags.difference(translator.config.tokenizer.tags))
    for one in unknown:
        if language_of(one):  # without it another language would be written
            raise UserError(
                f"{config} has a source with tag: {one}, which is none of the teacher's tokenizer.tags. Take "
                "a teacher that knows this language, or a config without that source."
            )
    if unknown:
        remark(f"the teacher's tokenizer.tags lack {', '.join(unknown)}, so it translates what follows the tag")
    named = next(filter(language_of, sorted(tags)), None)
    if named is not None and to not in (None, NONE):
        raise UserError(
            f"--to is {to}, and the sources of data.train have tags of their own, such as {named}. Leave --to out, or "
            "give the text of one direction with --input."
        )
    directions = list(dict.fromkeys(data.languages_of(source.config) for source in sources))
    languages = directions[0] if len(directions) == 1 else MIXED
    return _Sources(((pair.src, pair.tgt) for _, pair in stream_pairs(sources)), tags, languages if named else None)
