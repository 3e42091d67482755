"""Real lines, a model and a folder to synthetic pairs."""

import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.line_files import name_of, open_lines, report_damaged
from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.search_flags import FLAGS
from transformer_mt.cli.synthesis.real_lines import LIKELIEST, PAIRS, Choice, RealLines
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.unknown_words import UnknownWords
from transformer_mt.config.switching_off import NONE, option_of
from transformer_mt.errors import UserError
from transformer_mt.paths import user_path
from transformer_mt.plurals import counted

if TYPE_CHECKING:
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.synthesis.make_pairs import Blank, PairMaker

SYNTHESIS_FLAGS = tuple(name for name in FLAGS if name != "constraints")
MIXED = ("src", "tgt")  # the names of both sides where the languages differ from line to line
NUM_TOLD = 20  # lines that the model left blank are told one by one, up to so many


def _folder(text: str) -> Path:
    if not text:  # which is the current folder for a path
        raise UserError("--output is empty. Name a folder.")
    return user_path(text)


OutputOption = Annotated[
    Path,
    typer.Option(
        parser=_folder,
        metavar="PATH",
        help="A folder for train.SRC and train.TGT. One that this command began is gone on with.",
    ),
]
TagOption = Annotated[
    str | None,
    typer.Option(help="A word such as <BT> before each source; name it in tokenizer.tags of the config that trains."),
]
WithoutOption = Annotated[
    list[Path] | None, path_option("A file of lines, such as a test set, that no pair may have; several times.")
]


def without_constraints(decoding: dict[str, Any]) -> dict[str, Any]:
    """What is searched by, whatever the run's config says: a line has no constraints here."""
    return {**decoding, "constraints": NONE}


def make_pairs(
    verb: str,
    models: Models,
    translator: "Translator",
    real: RealLines,
    output: Path,
    is_backward: bool,
    tag: str | None,
    without: list[Path] | None,
    choice: Choice,
    decoding: dict[str, Any],
    source_tags: frozenset[str] = frozenset(),
    languages: tuple[str, str] | None = None,
    language: str | None = None,
) -> None:
    """Write the pairs of the lines to `output`, and say what they are. One of `source_tags` may stand before a line;
    the translator does not see those that its run has not. `languages` are those of the lines and of their
    translations, by default what the run reads and writes, and MIXED where they differ from line to line. `language` is
    the tag that a source of these pairs needs beside those of other languages.

    Raises UserError as `begin_or_go_on` and `PairMaker.run` do; KeyboardInterrupt says how to go on.
    """
    from tqdm import tqdm

    from transformer_mt.decoding.lines.line_stream import chunk_size
    from transformer_mt.decoding.search.options import search_options
    from transformer_mt.synthesis.make_pairs import PairMaker, Recipe
    from transformer_mt.synthesis.parallel_files import ParallelFiles
    from transformer_mt.synthesis.settings import begin_or_go_on

    keys = _keys_of(without or [])
    options = search_options(translator.config.decoding, scored=choice.with_likeliest, **decoding)
    lock = begin_or_go_on(output, _settings(verb, models, translator, real, tag, keys, choice, options))
    unknown = UnknownWords()
    try:
        paths = _paths(output, languages or languages_of(translator.config, options.to), is_backward)
        files = ParallelFiles(paths if choice.with_likeliest else paths[:2])
        with closing(files), tqdm(desc="Translating", unit=" lines", total=real.num_lines, disable=None) as bar:

            def advance(number: int, words: Sequence[str]) -> None:
                unknown.add(words)
                bar.update(number)

            unread = source_tags.difference(translator.config.tokenizer.tags)
            recipe = Recipe(is_backward, tag or "", frozenset(keys), source_tags, unread, translator.languages)
            maker = PairMaker(
                translator, options, recipe, files, real.name, _Teller(real.name), advance,
                likeness=choice.nearest, references=real.references, with_likeliest=choice.with_likeliest,
            )  # fmt: skip
            try:
                maker.run(real.lines, chunk_size(options))
            except KeyboardInterrupt:
                done = f"{output} holds the pairs of the first {maker.report.num_lines:,} lines"
                raise KeyboardInterrupt(f"{done}. The same command goes on from there") from None
        unknown.report()
        tags = [one for one in (tag, language, *sorted(source_tags)) if one]
        _say(maker, tags, language, languages not in (None, languages_of(translator.config, None)))
    finally:
        lock.release()


def _settings(
    verb: str,
    models: Models,
    translator: "Translator",
    real: RealLines,
    tag: str | None,
    keys: set[int],
    choice: Choice,
    options: "SearchOptions",
) -> dict[str, Any]:
    """What an output is begun with, by the names that a message calls it: with other settings it is not gone on with.
    `keys` are those of the lines of --without. UserError where a file of phrases or terms cannot be read.
    """
    from transformer_mt.config.switching_off import named_by
    from transformer_mt.data.cache import key_of
    from transformer_mt.decoding.demands import lines_named_by
    from transformer_mt.synthesis.settings import PRECISION

    def lines_of(key: str, path: str) -> list[str]:
        return [line for _, line in lines_named_by(named_by(translator.config.decoding, key, path), Path(path))]

    files = {"avoid": options.avoid, "glossary": options.glossary}
    return {
        "the command": verb,
        "--run": [f"{run.path.name} ({one.name}, weights {_digest_of(one)})" for run, one in translator.checkpoints],
        "--ensemble-mode": models.ensemble_mode,
        "--tag": tag,
        "--nearest": choice.nearest,
        "--with-likeliest": "given" if choice.with_likeliest else None,
        "the beginning of the real translations": key_of(list(first), 6) if (first := real.first_references) else None,
        "the lines of --without": f"{len(keys):,} ({key_of(sorted(keys), 6)})" if keys else None,
        **{f"the lines of --{key}": path and key_of(lines_of(key, path), 6) for key, path in files.items()},
        **{option_of(key): value for key, value in options.model_dump(mode="json").items()},
        PRECISION: translator.precision,
    }


class _Teller:
    def __init__(self, name: str) -> None:
        self.name, self.num_told = name, 0

    def __call__(self, number: int, why: "Blank") -> None:
        self.num_told += 1
        if self.num_told <= NUM_TOLD:
            remark(f"{self.name}, line {number}: {why}; left blank in all files")
        elif self.num_told == NUM_TOLD + 1:
            remark("more lines are left blank; they are counted at the end")


def _say(maker: "PairMaker", tags: list[str], language: str | None, is_alone: bool) -> None:
    from transformer_mt.config.sections.section import as_typed

    report, paths = maker.report, maker.files.paths
    blank = ", ".join(f"{number:,} {why}" for why, number in report.blank.items())
    named = " and ".join(map(str, paths))
    print(
        f"{named}: {counted(report.num_lines, 'line')}, {counted(report.num_pairs, 'pair')}"
        + (f"; blank in all files: {blank}" if blank else "")
        + (f" (there before: {counted(report.num_found, 'line')})" if report.num_found else "")
    )
    if not report.num_pairs:
        print("there is no pair to train on")
        return
    # Beside another language a source needs a tag, and lines that have theirs would get two.
    more = ({"tag": language} if language else {}) | ({} if is_alone else {"weight": 1})
    sides = [paths[:2]]
    if len(paths) > 2:
        sides.append((paths[2], paths[1]) if maker.recipe.is_backward else (paths[0], paths[2]))
    sources = " and ".join(as_typed({"src": str(src), "tgt": str(tgt)} | more) for src, tgt in sides)
    told = f", with tokenizer.tags: [{', '.join(map(repr, tags))}]" if tags else ""
    print(f"to train on them{' alone' * is_alone}, in data.train: {sources}{told}")


def _paths(output: Path, languages: tuple[str, str], is_backward: bool) -> tuple[Path, Path, Path]:
    """The files of the sources, of the targets, and of the likeliest translations beside the nearest."""
    src, tgt = languages[::-1] if is_backward else languages
    if src == tgt or "/" in src + tgt:
        src, tgt = MIXED
    return output / f"{PAIRS}.{src}", output / f"{PAIRS}.{tgt}", output / f"{LIKELIEST}.{src if is_backward else tgt}"


def _keys_of(paths: list[Path]) -> set[int]:
    from transformer_mt.data.split import sentence_key
    from transformer_mt.decoding.lines.line_stream import chunk_lines

    keys: set[int] = set()
    for path in paths:
        name = name_of(path)
        with open_lines(path, "--without") as stream:
            for chunk in chunk_lines(stream, 1000, partial(report_damaged, name), name, onwards="> TEXT_FILE"):
                keys |= {sentence_key(line) for line in chunk if line.strip()}
    return keys


def _digest_of(checkpoint: Path) -> str:
    """The hash of the weights, from the manifest, against which they were checked as they were read."""
    from transformer_mt.storage.checkpoint_files import WEIGHTS
    from transformer_mt.storage.run_folder import MANIFEST

    return json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))[WEIGHTS]["blake2b"][:12]


def languages_of(config: Any, to: str | None) -> tuple[str, str]:
    """What a run reads and writes, where it is asked to translate `to` a language."""
    data = config.data
    src = data.tgt_lang if to == data.src_lang else data.src_lang
    return (data.src_lang, data.tgt_lang) if to is None else (src, to)


def tag_of_pairs(config: Any, target: str, to: str | None) -> str | None:
    """The tag that a source of pairs with this target language needs, where the run was asked for a language and has
    that one too.
    """
    return f"<2{target}>" if to is not None and target in config.languages else None


def load_for(output: Path, models: Models, decoding: dict[str, Any], tag: str | None) -> "Translator":
    """The translator, in the precision that `output` was begun in. UserError as in `Models.search_options` and
    `Translator.load`, and for a `tag` that no config could name.
    """
    from transformer_mt.config.sections.tokenizer import can_be_tag
    from transformer_mt.synthesis.settings import precision_of

    if tag is not None and not can_be_tag(tag):
        raise UserError(
            f"--tag is {tag!r}, which tokenizer.tags cannot hold: a tag is letters, digits and _ . : / - between < and "
            "> and no entry of another meaning. Give one such as --tag '<BT>'."
        )
    models.search_options(decoding)  # refused before weights are read
    translator = models.load(decoding.get("precision") or precision_of(output))
    if unused := translator.config.decoding.lines.unused:
        remark(unused)
    return translator
