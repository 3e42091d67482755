"""What is wrong with a configuration, in sentences: path, value, what is allowed, and what was perhaps meant."""

import re
import types
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from transformer_mt.config.schema import RunConfig
from transformer_mt.plurals import counted

MAX_PROBLEMS = 30
MAX_LENGTH = 1000  # of a problem; a key may be a megabyte long

# Names that other toolkits use, and our keys. A name counts only in a section that has the key, except where its own
# section stands before it: then it counts everywhere.
SYNONYMS = {
    "batch_size": "max_tokens",
    "batch_type": "training.max_tokens",
    "bpe_size": "vocab_size",
    "clip": "clip_norm",
    "early_stopping_metric": "validation.metric",
    "embed_dim": "d_model",
    "embedding_size": "d_model",
    "emb_dim": "d_model",
    "epochs": "max_epochs",
    "ff_size": "model.d_ff",
    "ffn_dim": "d_ff",
    "gradient_accumulation": "grad_accum",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "learning_rate": "lr",
    "num_epochs": "max_epochs",
    "steps": "max_steps",
    "type": "kind",
    "use_cuda": "training.device",
    "voc_limit": "tokenizer.vocab_size",
}
REMARKS = {"batch_type": " Batches are always counted in tokens."}  # on a name of theirs
VALUES = {"sentencepiece": ["unigram", "bpe"]}  # that other toolkits have, and ours

# Each regular expression of the schema in words.
PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "must be letters (a to z), digits, '.', '_' and '-', and begin with a letter or "
    "digit (without name: in the file, the name of the file is taken)",
    r"^(auto|cpu|mps|cuda(:\d+)?)$": "must be auto, cpu, mps, cuda or cuda:NUMBER",
    r"^<[A-Za-z0-9_.:/-]+>$": "must be letters (a to z), digits, '_', '.', ':', '/' and '-' between < and >, like <BT>",
}

_LIMITS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda ctx: f"must be more than {_number(ctx['gt'])}",
    "greater_than_equal": lambda ctx: f"must be at least {_number(ctx['ge'])}",
    "less_than": lambda ctx: f"must be less than {_number(ctx['lt'])}",
    "less_than_equal": lambda ctx: f"must be at most {_number(ctx['le'])}",
    "enum": lambda ctx: f"must be {ctx['expected']}",
    "finite_number": lambda ctx: "must be a finite number",
    "string_too_short": lambda ctx: "must not be empty",
    "string_too_long": lambda ctx: f"must have at most {counted(ctx['max_length'], 'character')}",
    "string_pattern_mismatch": lambda ctx: PATTERNS.get(ctx["pattern"], f"must match {ctx['pattern']}"),
    "string_unicode": lambda ctx: "holds a character that is no text",
    "too_short": lambda ctx: f"must have at least {counted(ctx['min_length'], 'entry', 'entries')}",
    "too_long": lambda ctx: f"must have at most {counted(ctx['max_length'], 'entry', 'entries')}",
}
_WRONG_TYPE = re.compile(r".*_type|int_from_float")


def problems_of(error: ValidationError, root: type[BaseModel] = RunConfig) -> list[str]:
    """One line for each thing that is wrong, in the order of the schema. `root` is what was validated."""
    by_place: dict[str, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        by_place.setdefault(_locate(details["loc"], root)[0], []).append(details)
    lines = []
    for group in by_place.values():
        # A value that may have one of two types fails once for each. The problem with its own type is worth reading.
        telling = [details for details in group if not _WRONG_TYPE.fullmatch(details["type"])]
        lines += [_sentence(details, root) for details in telling or group[:1]]
    lines = [line if len(line) <= MAX_LENGTH else f"{line[:200]} ... {line[200 - MAX_LENGTH :]}" for line in lines]
    if len(lines) > MAX_PROBLEMS:
        lines[MAX_PROBLEMS:] = [f"... and {len(lines) - MAX_PROBLEMS} more"]
    return lines


def sentence_of(error: ValidationError, root: type[BaseModel]) -> str:
    """All that is wrong as one sentence, with the mark at its end."""
    said = "; ".join(problems_of(error, root))
    return said if said.endswith("?") else f"{said}."


def near(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The candidates that `word` may stand for, at most two, the likeliest first.

    A candidate is near by its letters (`n_heads`: `num_heads`) or by holding every word of it (`layers`:
    `num_encoder_layers`, `num_decoder_layers`). Of several that hold them, those nearest by their letters.
    """
    word = word.lower().replace("-", "_")
    words = set(word.split("_")) - {""}

    def score(candidate: str) -> tuple[float, float]:
        candidate = candidate.lower().replace("-", "_")
        letters = SequenceMatcher(None, word[:100], candidate).ratio()
        return max(letters, 0.7 if words and words <= set(candidate.split("_")) else 0.0), letters

    scores = {candidate: score(candidate) for candidate in candidates}
    best = max(scores.values(), default=(0.0, 0.0))
    return [candidate for candidate in scores if scores[candidate] == best and best[0] >= cutoff][:2]


def _did_you_mean(suggestions: list[str]) -> str:
    """`, did you mean A or B?`, or nothing."""
    return f", did you mean {' or '.join(suggestions)}?" if suggestions else ""


def _sentence(details: ErrorDetails, root: type[BaseModel]) -> str:
    path, annotation, owner = _locate(details["loc"], root)
    kind, value, ctx = details["type"], details["input"], details.get("ctx", {})
    if kind == "value_error":
        return f"{path}: {ctx['error']}" if path else str(ctx["error"])
    if kind == "missing":
        return f"{path}: missing; {_needed(annotation)} is needed{_keys_to_start_with(annotation)}"
    if kind == "extra_forbidden" and owner is not None:
        return f"{path}: unknown key{_meant_key(str(details['loc'][-1]), path, owner, root)}"
    if kind == "invalid_key":
        return f"{path}: a key must be text; put it in quotes or take it out"
    if kind == "literal_error":
        return f"{path}: {_show(value)} is not one of {_among(value, annotation)}"
    if _WRONG_TYPE.fullmatch(kind):
        return f"{path}: {_wrong_type(value, annotation)}"
    limit = _LIMITS[kind](ctx) if kind in _LIMITS else details["msg"]
    return f"{path}: {_show(value)} is not allowed; {limit}"


def _locate(loc: tuple[int | str, ...], root: type[BaseModel]) -> tuple[str, object, type[BaseModel] | None]:
    """The path as a user writes it, the annotation of its value, and the section that holds it."""
    path, annotation, owner = "", root, None
    for part in loc:
        section, item = _member(annotation, BaseModel), _member(annotation, list)
        if section is not None:
            owner = section
            field = section.model_fields.get(str(part))
            annotation = field.annotation if field else None
            path += f".{part}" if path else str(part)
        elif item is not None and isinstance(part, int):
            annotation = get_args(item)[0]
            path += f"[{part}]"
        else:  # pydantic's name for one member of a union
            break
    return path, annotation, owner


def _members(annotation: object) -> list[Any]:
    """The types that an annotation allows, except None."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [] if annotation in (None, types.NoneType) else [annotation]


def _member(annotation: object, base: type) -> Any:
    for member in _members(annotation):
        origin = get_origin(member) or member
        if isinstance(origin, type) and issubclass(origin, base):
            return member
    return None


def _needed(annotation: object) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
    needed = []
    for member in _members(annotation):
        origin = get_origin(member) or member
        needed.append("one of " + ", ".join(map(str, get_args(member))) if origin is Literal else words.get(origin))
    return " or ".join(word or "a map of keys" for word in needed)


def _keys_to_start_with(annotation: object) -> str:
    section = _member(annotation, BaseModel)
    if section is None:
        return ""
    required = [key for key, field in section.model_fields.items() if field.is_required()]
    return f" (with {' and '.join(required)})" if required else f" ({', '.join(list(section.model_fields)[:3])}, ...)"


def _wrong_type(value: object, annotation: object) -> str:
    needed = _needed(annotation)
    if isinstance(value, list | dict) or value is None:
        return f"{_show(value)} is not allowed, {needed} is needed"
    kinds = {bool: "a boolean", str: "text", int: "a number", float: "a number with a point or an exponent"}
    return f"{_show(value)} is {kinds.get(type(value), 'no plain value')}, {needed} is needed{_rewrite(value, needed)}"


def _rewrite(value: object, needed: str) -> str:
    """How to write a value that is right but of the wrong type."""
    if needed == "true or false" and isinstance(value, str):
        meant = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
        return f" (write {meant[value.lower()]})" if value.lower() in meant else ""
    if needed == "text" and isinstance(value, int | float):
        return " (put it in quotes)"
    if needed == "a whole number" and isinstance(value, float) and value.is_integer():
        return f" (write {value:.0f})" if abs(value) < 1e18 else ""
    if "number" in needed and isinstance(value, str):
        digits = value.strip().replace("_", "")
        number = r"[-+]?(0|[1-9][0-9]*)" if needed == "a whole number" else r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?"
        return f" (write {digits}, without quotes)" if re.fullmatch(number, digits, re.ASCII) else ""
    return ""


def _meant_key(key: str, path: str, owner: type[BaseModel], root: type[BaseModel]) -> str:
    """What to write instead of an unknown key: the same key in another section, a similar one, or all known ones."""
    here = list(owner.model_fields)
    plain = key.lower().replace("-", "_")
    if plain in here:
        return _did_you_mean([plain])
    meant = SYNONYMS.get(plain, "")
    section, _, last = meant.rpartition(".")
    if last in here and path.partition(".")[0] == (section or path.partition(".")[0]):
        return _did_you_mean([last]) + REMARKS.get(plain, "")
    if section in root.model_fields:
        return _did_you_mean([meant]) + REMARKS.get(plain, "")
    places = list(root.model_fields.items())
    if "." in path:  # it may belong to a section within this one
        places = [(f"{path.rpartition('.')[0]}.{name}", field) for name, field in owner.model_fields.items()] + places
    elsewhere = [
        f"{name}.{plain}"
        for name, field in places
        if (section := _member(field.annotation, BaseModel)) and section is not owner and plain in section.model_fields
    ]
    if plain in root.model_fields and "." in path:
        elsewhere.insert(0, f"{plain} (a key of the top level)")
    suggestions = elsewhere + near(key, here, cutoff=0.75 if elsewhere else 0.6)
    return _did_you_mean(suggestions) or f"; the keys here are {', '.join(here)}"


def place_of(name: str, section: type[BaseModel] = RunConfig) -> str | None:
    """The key of this name, as an override writes it: `max_steps` is `training.max_steps`. A name with a point is
    taken as it is, if its section exists, and names of other toolkits count. None where there is no such key.
    """
    if "." in name:
        return name if name.partition(".")[0] in section.model_fields else None
    for key in (name, SYNONYMS.get(name, name).rpartition(".")[2]):
        if key in section.model_fields:
            return key
        for part, field in section.model_fields.items():
            inner = _member(field.annotation, BaseModel)
            found = place_of(key, inner) if inner else None
            if found is not None:
                return f"{part}.{found}"
    return None


def _among(value: object, annotation: object) -> str:
    allowed = [str(choice) for member in _members(annotation) for choice in get_args(member)]
    meant = []
    if isinstance(value, str):
        meant = [ours for ours in VALUES.get(value.lower(), []) if ours in allowed] or near(value, allowed)
    return ", ".join(allowed) + _did_you_mean(meant)


def _show(value: object) -> str:
    """A value as it may stand in the YAML file, cut short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        kind, empty = ("a list", "[]") if isinstance(value, list) else ("a map", "{}")
        return kind if value else empty
    if isinstance(value, int):
        return str(value) if value.bit_length() < 400 else "a number of more than 100 digits"
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)
