"""Which of a run's evaluations is the one that stands for it beside other runs."""

import json
import math
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.bleu_tokenizers import tokenizer_over
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.decoding.search.options import search_options
from transformer_mt.storage.run_folder import RunFolder

# What may be wrong with a file that is not as `tmt evaluate` wrote it.
_NOT_OURS = (ValueError, LookupError, TypeError, AttributeError, OSError)


def own_test_bleu(run: RunFolder, config: RunConfig, checkpoint: str, problems: list[str]) -> float | None:
    """BLEU as `tmt evaluate` gives it without options: of this checkpoint, which is the one that verbs take, on the
    run's own test split, by the config's search, with the tokenizer of its language and its case. None where that was
    not measured. A file that cannot be read is told among the problems.

    The highest of all would be another thing in each run: a BLEU of characters is higher than one of words, and the
    best of many checkpoints and searches was chosen on the test split itself.
    """
    found = []
    for path in sorted(run.evaluations.glob("*.json")):
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            if _stands_for(path, saved, config, checkpoint):
                # The newest holds: the same may have been measured in another precision, or where the data lies now.
                found.append((path.stat().st_mtime_ns, path.name, _finite(saved["bleu"])))
        except _NOT_OURS:
            problems.append(f"evaluations/{path.name} cannot be read")
    return max(found)[-1] if found else None


def _finite(value: Any) -> float:
    """The number. ValueError where it is none that JSON has a name for."""
    if not math.isfinite(number := float(value)):
        raise ValueError("no finite number")
    return number


def _stands_for(path: Path, saved: Any, config: RunConfig, checkpoint: str) -> bool:
    # What earlier versions saved lacks the split, and only its name begins with it.
    is_own = saved.get("split", path.name.split("_")[0]) == "test" and not saved.get("ensemble")
    # The test data that the config names now may be another since the evaluation.
    test_data = [source.description for source in sources_of(config.data.test, config.data)]
    if not is_own or saved["checkpoint"] != checkpoint or saved["source"] != test_data:
        return False
    return _is_of_search(saved["decoding"], config) and _is_signed(saved, config)


def _is_of_search(decoding: dict[str, Any], config: RunConfig) -> bool:
    """Whether the config asks for this search. A key that was not there yet when it ran had its default value, and the
    language is a caller's to say where the config names none.
    """
    asked = search_options(config.decoding).as_saved
    default = type(config.decoding)().model_dump()
    asked["to"] = asked["to"] or decoding.get("to")
    return all(decoding.get(key, default[key]) == value for key, value in asked.items())


def _is_signed(saved: dict[str, Any], config: RunConfig) -> bool:
    """Whether BLEU's tokenizer and its case are those that the config leads to."""
    signed = dict(part.split(":", 1) for part in saved["bleu_signature"].split("|"))
    to = saved["decoding"].get("to")
    sources = (one.model_copy(update={"tag": one.tag or (to and f"<2{to}>")}) for one in config.data.test)
    directions = list(dict.fromkeys(map(config.data.languages_of, sources)))
    tokenizer = tokenizer_over(directions, config.data.tgt_lang)
    is_cut_so = signed["tok"] == tokenizer or signed["tok"].startswith(f"{tokenizer}-")  # ja-mecab-0.996-IPA
    return is_cut_so and signed["case"] == ("lc" if config.tokenizer.lowercase else "mixed")
