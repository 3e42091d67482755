"""Words that negate, by language: a small table, and no rule for a language that has no row."""

import regex

from transformer_mt.config.language_names import base

# Words in any case. Only whole words count, except in scripts without spaces.
_WORDS = {
    "ca": "no mai res ningú gens",
    "da": "ikke ej aldrig ingen intet ingenting",
    "de": "nicht nichts nie niemals niemand niemanden niemandem kein keine keinen keinem keiner keines nirgends",
    "en": "not no never nobody nothing none nowhere neither nor cannot",
    "es": "no nunca jamás nada nadie ningún ninguno ninguna ni tampoco",
    "fr": "ne pas jamais rien aucun aucune ni non",
    "it": "non no mai niente nulla nessuno nessun nessuna né neanche",
    "nb": "ikke aldri ingen intet ingenting",
    "nl": "niet niets nooit niemand geen nergens",
    "no": "ikke aldri ingen intet ingenting",
    "pl": "nie nigdy nic nikt nigdzie żaden żadna żadne",
    "pt": "não nunca jamais nada ninguém nenhum nenhuma nem",
    "ro": "nu niciodată nimic nimeni niciun nicio nici",
    "ru": "не нет ни никогда ничего ничто никто никого нигде нельзя",
    "sv": "inte ej aldrig ingen inget inga ingenting",
    "uk": "не ні немає ніколи нічого ніщо ніхто нікого ніде",
}
_PATTERNS = {"en": r"n['’]t\b", "fr": r"\bn['’]", "ja": r"ない|なか(?:った|く)|ません", "zh": "[不没沒]"}


def negation_of(language: str) -> regex.Pattern[str] | None:
    """What finds a negation in a text of a language such as `en` or `pt_BR`; None for one that the table has not."""
    code = base(language)
    words = "|".join(map(regex.escape, _WORDS.get(code, "").split()))
    parts = [part for part in (rf"\b(?:{words})\b" if words else "", _PATTERNS.get(code, "")) if part]
    return regex.compile("|".join(parts), regex.IGNORECASE) if parts else None
