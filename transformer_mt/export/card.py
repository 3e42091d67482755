"""The model card of a run: what it was trained on, how well it does and what it cannot, in Markdown.

The head is YAML, by the keys of the model cards on the Hugging Face hub.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt import __version__
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import search_in_words
from transformer_mt.config.sections.section import SPLITS
from transformer_mt.config.yaml_text import write_yaml
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.load_model import load_trained_config
from transformer_mt.errors import UserError
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.encoder_only import refuse_to_translate
from transformer_mt.model.model_size import model_size
from transformer_mt.plurals import rounded
from transformer_mt.storage.checkpoint_files import STATE, averaged_steps, full_name
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.metrics_lines import whole_lines
from transformer_mt.storage.origin import Origin, read_origin
from transformer_mt.storage.run_folder import RunFolder

UNKNOWN_LICENCE = "unknown"
CARD = "README.md"
# What a reader wants to know of each section; config.yaml of the run has all keys.
_SETTINGS = {
    "model": None,
    "tokenizer": None,
    "training": {
        "max_tokens",
        "update_tokens",
        "grad_accum",
        "label_smoothing",
        "schedule",
        "lr",
        "factor",
        "warmup_steps",
        "precision",
    },
    "decoding": {"beam_size", "length_penalty", "length_norm", "max_length_ratio", "max_length_extra"},
}
EXAMPLE = "A sentence."
_EVALUATE_AGAIN = "Put back a copy of it, or delete it and run `tmt evaluate` again."

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Usage:
    """How the model of a folder is run: a block of code in its language, the engine's name, and what the engine does
    otherwise than this project.
    """

    code: str
    language: str = "bash"
    library: str = "transformer_mt"
    limits: Sequence[str] = ()
    heading: str = "How to run it"


def model_card(run: RunFolder, choice: str | None, licence: str | None, usage: Usage | None = None) -> str:
    """The card of a checkpoint, `choice` as in `find_checkpoint`; without `usage` it says how `tmt` runs the model
    from the current folder.

    Raises UserError where the run lacks what the card tells, or a file of it is damaged.
    """
    config, checkpoint = load_trained_config(run, choice)
    if not ARCHITECTURES[config.model.architecture].translates:
        refuse_to_translate()
    src, tgt = load_tokenizers(run.tokenizers, config.tokenizer)
    name = checkpoint.name
    usage = usage or _ours(config, run, name)
    does = ", ".join(f"{src} to {tgt}" for src, tgt in _directions(config))
    if not config.data.has_pairs:
        does = f"text of {' and '.join(dict.fromkeys(tgt for _, tgt in _directions(config)))}"
    parts = [
        _head(config, licence or UNKNOWN_LICENCE, usage),
        f"# {config.name}: {does}",
        _what(config, run, checkpoint, src, tgt, does),
        f"## {usage.heading}\n\n```{usage.language}\n{usage.code}\n```",
        "## Data\n\n" + _data(config, run),
        "## Scores\n\n" + _scores(config, run, name),
        "## Settings\n\n```yaml\n" + write_yaml(_settings(config)) + "```",
        "## Limits\n\n" + "\n".join(f"- {limit}" for limit in [*_limits(config, src), *usage.limits]),
        "## Licence\n\n" + _licence(licence),
    ]
    return "\n\n".join(parts) + "\n"


def _ours(config: RunConfig, run: RunFolder, checkpoint: str) -> Usage:
    """How `tmt` runs the model from the current folder; where it saw no translation, how training goes on with it."""
    here = Path.cwd()
    from_here = RunFolder(run.path.relative_to(here)) if run.path.is_relative_to(here) else run
    if not config.data.has_pairs:
        init_from = {"run": str(from_here.path), "checkpoint": checkpoint}
        return Usage(
            write_yaml({"training": {"init_from": init_from}}).rstrip("\n"), "yaml", heading="How to train it on pairs"
        )
    to = f"--to {config.languages[0]} " if len(config.languages) > 1 else ""
    return Usage(f'tmt translate --run {from_here.quoted} --checkpoint {checkpoint} {to}"{EXAMPLE}"')


def _directions(config: RunConfig) -> list[tuple[str, str]]:
    """Source and target language of the pairs that it was trained on; of text in one language that one twice."""
    sources = [source for source in config.data.train if not (source.mono and config.data.has_pairs)]
    return list(dict.fromkeys(map(config.data.languages_of, sources)))


def _head(config: RunConfig, licence: str, usage: Usage) -> str:
    languages = dict.fromkeys(language for pair in _directions(config) for language in pair)
    head = {
        "language": list(languages),
        "license": licence,
        "library_name": usage.library,
        "pipeline_tag": "translation",
        "tags": ["translation", "transformer_mt"],
    }
    if not config.data.has_pairs:
        head = {**head, "tags": ["transformer_mt"]}
        del head["pipeline_tag"]
    return f"---\n{write_yaml(head)}---"


def _what(config: RunConfig, run: RunFolder, checkpoint: Path, src: Tokenizer, tgt: Tokenizer, does: str) -> str:
    size = model_size(config.model, src.vocab_size, tgt.vocab_size).parameters
    steps = f"after {checkpoint.name.removeprefix('step_')} updates"
    if checkpoint == run.average:
        steps = f"the mean of the weights after {', '.join(map(str, averaged_steps(run)))} updates"
    origin = read_origin(run.origin)
    kind = "recurrent network with attention" if config.model.architecture == "rnn" else "Transformer"
    what = f"translates {does}"
    if not config.data.has_pairs:
        noise = config.data.noise
        what = f"has learned from {does} alone (`data.noise.kind: {noise.kind if noise else ''}`), and no translation"
    return (
        f"A {kind} that {what}, trained by transformer_mt {__version__} from "
        f"{_beginning(origin) if origin else 'random weights'}. It has {size:,} parameters ({steps}), and "
        f"{_vocabularies(config, src, tgt)}."
    )


def _vocabularies(config: RunConfig, src: Tokenizer, tgt: Tokenizer) -> str:
    kind, patches = config.tokenizer.kind, config.model.patches
    if patches is not None:
        return (
            f"a vocabulary of {tgt.vocab_size:,} entries (`{kind}`) to write. It reads pictures of text: "
            f"{patches.height} x {patches.width} pixels at a time"
        )
    joint = ", one for both languages" if config.tokenizer.joint else ""
    return f"vocabularies of {src.vocab_size:,} and {tgt.vocab_size:,} entries (`{kind}`{joint})"


def _beginning(origin: Origin) -> str:
    """The weights that a training began with, and those that these began with themselves."""
    told = []
    for at in origin.chain():
        of = f"the {', '.join(at.parts)} of " if at.parts else ""
        data = ", ".join(map(_without_folders, at.trained_on))
        told.append(f"{of}the weights of `{at.name}` ({at.checkpoint}, blake2b {at.weights}), trained on {data}")
    return ", which began with ".join(told)


def _data(config: RunConfig, run: RunFolder) -> str:
    """A table of the splits. The newest checkpoint has counted the pairs of those that a training reads."""
    newest = run.step(run.trained_steps()[-1])
    check_manifest(newest, [STATE], f"Put back a copy of it; `tmt train --resume {run.quoted}` sets it aside.")
    counted = json.loads((newest / STATE).read_text(encoding="utf-8")).get("data", {})
    rows = ["| split | pairs | from |", "|---|---|---|"]
    for split in SPLITS:
        sources = sources_of(getattr(config.data, split), config.data)
        if sources:
            number = counted.get(split, {}).get("num_pairs")
            names = ", ".join(_without_folders(source.description) for source in sources)
            rows.append(f"| {split} | {'not counted' if number is None else f'{number:,}'} | {names} |")
    return "\n".join(rows)


def _without_folders(description: str) -> str:
    """A source's description without the folders of a whole path, which are nobody's business; nothing in it ends a
    cell of a table or begins an element.
    """
    names = (Path(name).name if Path(name).is_absolute() else name for name in description.split(" / "))
    return " / ".join(names).replace("|", r"\|").replace("<", r"\<")


def _scores(config: RunConfig, run: RunFolder, checkpoint: str) -> str:
    """What `tmt evaluate` saved of this checkpoint, with signatures; else the validation of its step."""
    rows, signatures = [], []
    for path, found in _evaluations(run, checkpoint):
        with _undamaged(path, _EVALUATE_AGAIN):
            names = ", ".join(map(_without_folders, found["source"]))
            search = search_in_words(found["decoding"])
            scores = f"{found['bleu']:.2f} | {found['chrf']:.2f} | {rounded(found['ppl'])}"
            signed = f"BLEU `{found['bleu_signature']}`, chrF `{found['chrf_signature']}`"
            if signed not in signatures:
                signatures.append(signed)
            row = f"{names} | {found['num_sentences']:,} | {search}, {found['precision']}"
            rows.append(f"| {row} | {scores} | {signatures.index(signed) + 1} |")
    if rows:
        head = "| data | sentences | search | BLEU | chrF | ppl | signatures |\n|---|---|---|---|---|---|---|\n"
        listed = (f"{number}. {signed}" for number, signed in enumerate(signatures, start=1))
        return "\n".join([head + "\n".join(rows), "", *listed])
    if found := _validation(run, checkpoint):
        metrics = ", ".join(f"{name} {rounded(value)}" for name, value in found.items())
        if not config.data.has_pairs and "bleu" not in found:
            return f"On the text of the validation split, while it was trained: {metrics}."
        sample = "BLEU and chrF are those of a sample. " if found.keys() & {"bleu", "chrf"} else ""
        return (
            f"On the validation split, while it was trained: {metrics}. {sample}"
            "`tmt evaluate` would give comparable scores, and it was not run on this checkpoint."
        )
    return "None: `tmt evaluate` was not run on this checkpoint."


def _evaluations(run: RunFolder, checkpoint: str) -> Iterator[tuple[Path, Any]]:
    """What was saved of this checkpoint alone. A file whose name is of another one may be damaged."""
    label = full_name(run, checkpoint)
    for path in sorted(run.evaluations.glob("*.json")):
        is_named = f"_{label}_" in path.name
        try:
            with _undamaged(path, _EVALUATE_AGAIN):
                found = json.loads(path.read_text(encoding="utf-8"))
                is_of_it = found["checkpoint"] == checkpoint and not found["ensemble"] and is_named
        except UserError as error:
            if is_named:
                raise
            LOGGER.warning("left out of the card, since its name is of another checkpoint: %s", error)
            continue
        if is_of_it:
            yield path, found


def _validation(run: RunFolder, checkpoint: str) -> dict[str, float]:
    """The scores of the newest validation of this checkpoint; nothing where no whole line is of it."""
    scores = {}
    with _undamaged(run.metrics, "See that it may be read."):
        for _, line in whole_lines(run.metrics):  # a kill may have torn one, and the others are as good
            if line["kind"] == "validation" and f"step_{line['step']}" == checkpoint:
                scores = {name: line.get(name) for name in ("bleu", "chrf", "nll", "ppl")}
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}


def _settings(config: RunConfig) -> dict[str, Any]:
    return {section: getattr(config, section).model_dump(include=keys) for section, keys in _SETTINGS.items()}


def _limits(config: RunConfig, src: Tokenizer) -> list[str]:
    read = "tokens" if config.model.patches is None else "patches"
    limits = [] if config.data.has_pairs else ["It has seen no translation, and translates nothing: train it on pairs."]
    limits += [
        "The model knows what its training data teaches and nothing else. On text of another kind it is worse than the "
        "scores above, and it may write fluent sentences that are wrong.",
        f"It reads one sentence at a time, of {config.model.max_len - 1} {read} at most.",
        "Nothing was done about offensive or one-sided text in the training data.",
    ]
    if config.model.patches is not None:
        limits.append("A character that its font lacks is read as an empty box, and guessed.")
    elif not src.knows_every_text:
        limits.append("A word that its vocabulary lacks is read as an unknown word, and guessed.")
    if config.tokenizer.lowercase:
        limits.append("It reads and writes lower case.")
    return limits


def _licence(licence: str | None) -> str:
    if licence is None:
        return (
            "None was named. Whoever hands the model on names one, which the licences of the training data may bind: "
            "`license` in the head of this file."
        )
    return f"{licence}, as whoever made this file says. The training data has licences of its own."


@contextmanager
def _undamaged(path: Path, way_out: str) -> Iterator[None]:
    """UserError, with the file, where what is read of it inside is not what `tmt` writes."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}). {way_out}") from error
