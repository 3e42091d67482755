"""The calibration of a run: learned from the run's validation split at its first use, and kept in the run's folder."""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.config.switching_off import named_by
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.sources.kinds import sources_of, those_of_pairs
from transformer_mt.decoding.demands import lines_named_by
from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.finishing.calibration import Calibrator
from transformer_mt.finishing.confidence import NUM_SENTENCE_FEATURES, NUM_WORD_FEATURES, Calibration
from transformer_mt.paths import exists
from transformer_mt.plurals import counted
from transformer_mt.storage.files import replace_file, written_to
from transformer_mt.storage.manifest import digest
from transformer_mt.storage.run_folder import MANIFEST

VERSION = 1  # of the file, the features and the words; raise it whenever another version would read them wrongly
MOST_SENTENCES = 2000  # more make no confidence better that a person would notice, and take time at the first use
FEWEST_SENTENCES, ENOUGH_SENTENCES = 100, 500
Remark = Callable[[str], None]


@dataclass(frozen=True)
class MadeWith:
    """What a calibration is for: another way to translate, or other weights, need another one.

    `checkpoints` are the run, the checkpoint and a hash of its manifest, of each model of an ensemble; the first run
    has no name. `decoding` are the keys of the section that change a translation, with a hash of its lines for a file
    of phrases or terms. `validation` is a hash of the sources' content, empty where they cannot be found.
    """

    checkpoints: list[list[str]]
    ensemble_mode: str
    precision: str
    decoding: dict[str, Any]
    validation: str

    @property
    def name(self) -> str:
        """The file's name without its ending: the same for weights and data that were changed since."""
        models = [checkpoint[:2] for checkpoint in self.checkpoints]
        key = _hash([models, self.ensemble_mode, self.precision, self.decoding])[:6]
        return f"{self.checkpoints[0][1]}_beam{self.decoding['beam_size']}_{self.precision}_{key}"


@dataclass(frozen=True)
class RunCalibration:
    """A calibration, and how far it was off on the half of the sentences that it had not learned from."""

    calibration: Calibration
    made_with: MadeWith
    num_sentences: int
    num_words: int
    word_error: float
    sentence_error: float


def calibration_of_run(translator: Translator, options: SearchOptions, remark: Remark) -> RunCalibration:
    """The calibration that is kept in the folder of the translator's (first) run. It is made where there is none, where
    its file is damaged, and where it was made with other weights or validation data.

    `remark` gets a sentence on whatever takes time. Raises UserError as `calibrate_run` does.
    """
    made_with = _made_with(translator, options, translator.config.data)
    path = _path(translator, made_with)
    if not exists(path):
        return calibrate_run(translator, options, remark)
    try:
        found = _read(path)
    except (OSError, ValueError, KeyError, TypeError):
        remark(f"{path} is damaged or of another version. The calibration is made again.")
        return calibrate_run(translator, options, remark)
    before = found.made_with
    if before.checkpoints != made_with.checkpoints:
        remark(f"{path} was made with other weights. The calibration is made again.")
        return calibrate_run(translator, options, remark)
    if made_with.validation and before.validation != made_with.validation:
        remark(f"{path} was made with other validation pairs. The calibration is made again.")
        return calibrate_run(translator, options, remark)
    return found


def calibrate_run(
    translator: Translator, options: SearchOptions, remark: Remark, data_root: str | None = None
) -> RunCalibration:
    """Translate the validation split, learn how good such translations are, and keep that in the run's folder.

    One half of the sentences is learned from, and the errors are those on the other half. What is kept is learned from
    both. data_root: the folder of the split's files, where it is no longer the config's data.root. Raises UserError
    where the pairs cannot be read, where they are too few, and where the folder cannot be written.
    """
    start = time.perf_counter()
    data = translator.config.data.model_copy(update={} if data_root is None else {"root": data_root})
    pairs = _validation_pairs(data, options.to)
    remark(f"calibrating confidences on {len(pairs):,} validation pairs, once for this checkpoint and these options")
    if len(pairs) < ENOUGH_SENTENCES:
        few = counted(len(pairs), "pair is", "pairs are")
        remark(f"{few} few; confidences are rough. {ENOUGH_SENTENCES} make better ones.")
    asked = options.model_copy(update={"n_best": 1, "evidence": True, "too_long": TooLong.BLANK})
    evidence, references = [], []
    for line, (_, reference) in zip(translator.translate_lines([src for src, _ in pairs], asked), pairs, strict=True):
        if line.hypotheses and line.hypotheses[0].evidence[0].words:
            evidence.append(line.hypotheses[0].evidence[0])
            references.append(reference)
    if len(evidence) < FEWEST_SENTENCES:
        raise _too_few(len(evidence), "have a translation")
    learned = Calibration.fit(evidence[::2], references[::2])
    word_error, sentence_error = learned.errors(evidence[1::2], references[1::2])
    num_words = sum(len(one.words) for one in evidence)
    made_with = _made_with(translator, options, data)
    kept = Calibration.fit(evidence, references)
    made = RunCalibration(kept, made_with, len(evidence), num_words, word_error, sentence_error)
    path = _path(translator, made_with)
    _write(path, made)
    remark(f"the calibration is {path}; it took {time.perf_counter() - start:.1f} s")
    return made


def _of_language(data: DataConfig, to: str | None) -> list[SourceConfig]:
    """The validation sources of pairs to this language; all of them where none is, or no language is named."""
    pairs = those_of_pairs(data.validation)
    return [one for one in pairs if data.languages_of(one)[1] == to] or pairs


def _validation_pairs(data: DataConfig, to: str | None) -> list[tuple[str, str]]:
    """Up to `MOST_SENTENCES` pairs from all over the split, of those to a language. Raises UserError."""
    pairs = list(load_corpus(_of_language(data, to), data))
    if len(pairs) < FEWEST_SENTENCES:
        raise _too_few(len(pairs), "are there")
    return pairs[:: -(-len(pairs) // MOST_SENTENCES)]


def _too_few(number: int, what: str) -> UserError:
    return UserError(
        f"Of the run's validation pairs {number:,} {what}, too few to learn from how sure a translation is. Train with "
        f"a validation split of {FEWEST_SENTENCES} pairs or more, or leave out --confidence and --reject-below."
    )


def _made_with(translator: Translator, options: SearchOptions, data: DataConfig) -> MadeWith:
    assert translator.checkpoints, "a calibration lies in the folder of the run that `Translator.load` read"
    checkpoints = [[run.path.name, path.name, digest(path / MANIFEST)] for run, path in translator.checkpoints]
    checkpoints[0][0] = ""  # the file lies in that run's folder, which may get another name
    validation = ""
    with suppress(UserError, OSError):  # a run needs nothing but its folder
        validation = _hash([source.whole_key() for source in sources_of(_of_language(data, options.to), data)])
    without = {"batch_size", "precision", "seed", *["to"] * (options.to is None)}
    decoding = options.model_dump(include=SearchConfig.model_fields.keys() - without)
    for key in {"avoid", "glossary"} & decoding.keys():
        if (path := decoding[key]) is not None:
            named = named_by(translator.config.decoding, key, path)
            decoding[key] = _hash([line for _, line in lines_named_by(named, Path(path))])
    return MadeWith(
        checkpoints,
        translator.model.mode if isinstance(translator.model, Ensemble) else "",
        translator.precision,
        decoding,
        validation,
    )


def _hash(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=20).hexdigest()


def _path(translator: Translator, made_with: MadeWith) -> Path:
    return translator.checkpoints[0][0].confidence / f"{made_with.name}.json"


def _write(path: Path, made: RunCalibration) -> None:
    content = {
        "version": VERSION,
        "made_with": asdict(made.made_with),
        "num_sentences": made.num_sentences,
        "num_words": made.num_words,
        "word_error": made.word_error,
        "sentence_error": made.sentence_error,
        "words": made.calibration.words.to_json(),
        "sentences": made.calibration.sentences.to_json(),
    }
    with written_to("calibration", path, path.parent.parent):
        path.parent.mkdir(exist_ok=True)
        replace_file(path, json.dumps(content, indent=1) + "\n")


def _read(path: Path) -> RunCalibration:
    """Raises OSError, ValueError, KeyError or TypeError for a file that `_write` did not make."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["version"] != VERSION:
        raise ValueError("another version")
    words, sentences = Calibrator.from_json(content["words"]), Calibrator.from_json(content["sentences"])
    if (len(words.mean), len(sentences.mean)) != (NUM_WORD_FEATURES, NUM_SENTENCE_FEATURES):
        raise ValueError("other features")
    numbers = [content[name] for name in ("num_sentences", "num_words", "word_error", "sentence_error")]
    return RunCalibration(Calibration(words, sentences), MadeWith(**content["made_with"]), *numbers)
