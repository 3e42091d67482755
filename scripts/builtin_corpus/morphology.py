"""How English and Spanish words change their form; nothing here knows about sentences.

A person is an index into `PERSONS`: I, you (always singular and familiar, tú), he or she, we, they.
Spanish tables list their five forms in that order.
"""

import re
from functools import cache

PERSONS = ("I", "you", "he", "we", "they")
ME, YOU, HE, WE, THEY = range(5)

# English ---------------------------------------------------------------------------------------------------------

DOUBLED = {"sit", "run", "swim", "cut", "put", "get", "hug", "stop", "forget", "win"}
BE_PRESENT = ("am", "are", "is", "are", "are")
BE_PAST = ("was", "were", "was", "were", "were")


def add_s(word: str) -> str:
    """The regular plural of a noun, and the third person of a verb: box -> boxes, city -> cities."""
    if re.search(r"(s|x|z|ch|sh)$", word) or word in {"go", "do", "tomato", "potato"}:
        return word + "es"
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + "s"


def english_third(base: str) -> str:
    """The third person singular of the present."""
    return "has" if base == "have" else add_s(base)


def english_past(base: str) -> str:
    """The past of a regular verb: visit -> visited, carry -> carried, hug -> hugged."""
    if base.endswith("e"):
        return base + "d"
    if re.search(r"[^aeiou]y$", base):
        return base[:-1] + "ied"
    return base + (base[-1] if base in DOUBLED else "") + "ed"


def english_ing(base: str) -> str:
    """The form in -ing: write -> writing, run -> running."""
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    return base + (base[-1] if base in DOUBLED else "") + "ing"


def comparative(adjective: str) -> str:
    """The comparative of a short adjective: big -> bigger, heavy -> heavier, large -> larger."""
    if adjective.endswith("y"):
        return adjective[:-1] + "ier"
    if adjective.endswith("e"):
        return adjective + "r"
    return adjective + (adjective[-1] if adjective in {"big", "fat", "thin", "hot"} else "") + "er"


# Spanish nouns and adjectives ------------------------------------------------------------------------------------

PLAIN_VOWELS = str.maketrans("áéíóú", "aeiou")


@cache
def spanish_plural(word: str) -> str:
    """The plural of a noun or adjective: luz -> luces, jardín -> jardines, café -> cafés."""
    if word.endswith("z"):
        return word[:-1] + "ces"
    if word[-1] in "aeiouáéó":
        return word + "s"
    if word == "joven":
        return "jóvenes"
    return word[:-2] + word[-2:].translate(PLAIN_VOWELS) + "es"


@cache
def agree(adjective: str, gender: str, plural: bool) -> str:
    """The form of an adjective, determiner or participle that agrees with a noun: rojo, f, True -> rojas."""
    if gender == "f" and adjective.endswith("o"):
        adjective = adjective[:-1] + "a"
    elif gender == "f" and adjective.endswith("dor"):
        adjective += "a"
    return spanish_plural(adjective) if plural else adjective


# Spanish verbs ---------------------------------------------------------------------------------------------------

PRESENT_ENDINGS = {"ar": "o as a amos an", "er": "o es e emos en", "ir": "o es e imos en"}
PAST_ENDINGS = {"ar": "é aste ó amos aron", "er": "í iste ió imos ieron", "ir": "í iste ió imos ieron"}
IMPERFECT_ENDINGS = {"ar": "aba abas aba ábamos aban", "er": "ía ías ía íamos ían", "ir": "ía ías ía íamos ían"}
FUTURE_ENDINGS = "é ás á emos án"
STRONG_PAST_ENDINGS = "e iste o imos ieron"
VOWEL_PAST_ENDINGS = "í íste yó ímos yeron"

# infinitive, stem of the stressed present forms, stem of the past third persons and of the gerund (- if regular)
STEM_CHANGES = """
cerrar cierr -
acostar acuest -
dormir duerm durm
elegir elig elig
empezar empiez -
encender enciend -
encontrar encuentr -
enviar enví -
jugar jueg -
morder muerd -
mostrar muestr -
perder pierd -
perseguir persigu persigu
poder pued pud
querer quier -
resolver resuelv -
sentar sient -
tener tien -
venir vien vin
volar vuel -
volver vuelv -
construir construy construy
"""

FIRST_PERSONS = {
    "conocer": "conozco", "crecer": "crezco", "conducir": "conduzco", "traer": "traigo", "tener": "tengo",
    "hacer": "hago", "poner": "pongo", "venir": "vengo", "caer": "caigo",
    "recoger": "recojo", "elegir": "elijo", "perseguir": "persigo",
}  # fmt: skip

STRONG_PASTS = {
    "tener": "tuv", "hacer": "hic", "poner": "pus", "venir": "vin", "traer": "traj",
    "conducir": "conduj", "querer": "quis", "poder": "pud",
}  # fmt: skip

FUTURE_STEMS = {
    "tener": "tendr", "hacer": "har", "poner": "pondr", "venir": "vendr",
    "querer": "querr", "poder": "podr", "oír": "oir", "sonreír": "sonreir",
}  # fmt: skip

WHOLE_TENSES = {
    ("ser", "present"): "soy eres es somos son",
    ("ser", "imperfect"): "era eras era éramos eran",
    ("estar", "present"): "estoy estás está estamos están",
    ("saber", "present"): "sé sabes sabe sabemos saben",
    ("decir", "present"): "digo dices dice decimos dicen",
    ("decir", "past"): "dije dijiste dijo dijimos dijeron",
    ("ir", "present"): "voy vas va vamos van",
    ("ir", "past"): "fui fuiste fue fuimos fueron",
    ("ir", "imperfect"): "iba ibas iba íbamos iban",
    ("dar", "present"): "doy das da damos dan",
    ("dar", "past"): "di diste dio dimos dieron",
    ("ver", "present"): "veo ves ve vemos ven",
    ("ver", "past"): "vi viste vio vimos vieron",
    ("ver", "imperfect"): "veía veías veía veíamos veían",
    ("oír", "present"): "oigo oyes oye oímos oyen",
    ("oír", "past"): "oí oíste oyó oímos oyeron",
    ("oír", "imperfect"): "oía oías oía oíamos oían",
    ("sonreír", "present"): "sonrío sonríes sonríe sonreímos sonríen",
    ("sonreír", "past"): "sonreí sonreíste sonrió sonreímos sonrieron",
}

GERUNDS = {"oír": "oyendo", "sonreír": "sonriendo", "poder": "pudiendo", "venir": "viniendo", "ir": "yendo"}

STEMS = {row.split()[0]: row.split()[1:] for row in STEM_CHANGES.strip().split("\n")}


@cache
def conjugate(infinitive: str, tense: str) -> tuple[str, ...]:
    """The five forms of a verb in "present", "past" (preterite), "imperfect" or "future"."""
    whole = WHOLE_TENSES.get((infinitive, tense))
    if whole is not None:
        return tuple(whole.split())
    return {"present": _present, "past": _past, "imperfect": _imperfect, "future": _future}[tense](infinitive)


@cache
def gerund(infinitive: str) -> str:
    """The form in -ndo: comer -> comiendo, leer -> leyendo."""
    if infinitive in GERUNDS:
        return GERUNDS[infinitive]
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "ar":
        return stem + "ando"
    if _drops_i(infinitive):
        return stem + "yendo"
    changed = STEMS.get(infinitive, ["-", "-"])[1]
    return (stem if changed == "-" else changed) + ("endo" if changed.endswith("y") else "iendo")


def reflexive(infinitive: str) -> bool:
    """Whether a dictionary form is that of a reflexive verb (sentarse)."""
    return infinitive.endswith("se")


def _drops_i(infinitive: str) -> bool:
    """Whether an unstressed i of the ending turns into y (leer, caer, traer)."""
    return infinitive.endswith(("eer", "aer"))


def _present(infinitive: str) -> tuple[str, ...]:
    stem, endings = infinitive[:-2], PRESENT_ENDINGS[infinitive[-2:]].split()
    stressed = STEMS.get(infinitive, [stem])[0]
    forms = [(stem if person == WE else stressed) + ending for person, ending in enumerate(endings)]
    forms[ME] = FIRST_PERSONS.get(infinitive, forms[ME])
    return tuple(forms)


def _past(infinitive: str) -> tuple[str, ...]:
    stem = infinitive[:-2]
    if infinitive in STRONG_PASTS:
        forms = [STRONG_PASTS[infinitive] + ending for ending in STRONG_PAST_ENDINGS.split()]
        forms[THEY] = forms[THEY].replace("jieron", "jeron")
        return tuple(form.replace("hico", "hizo") for form in forms)
    if _drops_i(infinitive):
        return tuple(stem + ending for ending in VOWEL_PAST_ENDINGS.split())
    forms = [stem + ending for ending in PAST_ENDINGS[infinitive[-2:]].split()]
    changed = STEMS.get(infinitive, ["-", "-"])[1]
    if changed.endswith("y"):
        forms[HE], forms[THEY] = changed + "ó", changed + "eron"
    elif changed != "-":
        forms[HE], forms[THEY] = changed + "ió", changed + "ieron"
    for before, after in (("cé", "qué"), ("gé", "gué"), ("zé", "cé")):
        if infinitive.endswith("ar") and forms[ME].endswith(before):
            forms[ME] = forms[ME][: -len(before)] + after
            break
    return tuple(forms)


def _imperfect(infinitive: str) -> tuple[str, ...]:
    return tuple(infinitive[:-2] + ending for ending in IMPERFECT_ENDINGS[infinitive[-2:]].split())


def _future(infinitive: str) -> tuple[str, ...]:
    return tuple(FUTURE_STEMS.get(infinitive, infinitive) + ending for ending in FUTURE_ENDINGS.split())
