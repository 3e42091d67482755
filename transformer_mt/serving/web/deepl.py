"""DeepL's API, as far as a server of one's own models can have it."""

import re
from itertools import chain
from typing import Any

from starlette.routing import Route

from transformer_mt.config.language_names import name_of
from transformer_mt.markup.tokens import RAW, VOID, Kind, tokens_of
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.service import Service
from transformer_mt.serving.web.endpoints import DEEPL, Server, route
from transformer_mt.serving.web.libretranslate import translate_from
from transformer_mt.serving.web.parameters import Parameters

NO_LIMIT = 10**12  # how DeepL writes that there is none
# What changes a translation there, and has no meaning here. A request that wants it is refused by its name.
REFUSED = {
    "glossary_id": "Glossaries are given to tmt serve with --glossary",
    "style_id": "There are no style rules",
    "style_rule_list_id": "There are no style rules",
    "custom_instructions": "There are no instructions",
    "ignore_tags": 'Mark what stays as it is with translate="no"',
    "splitting_tags": "Where text is split at tags is settled by their names",
    "non_splitting_tags": "Where text is split at tags is settled by their names",
}
PLAIN_FORMALITIES = ("default", "prefer_more", "prefer_less")


def routes(server: Server) -> list[Route]:
    """The routes of the API."""
    return [
        route(server, "/v2/translate", ["GET", "POST"], DEEPL, translate),
        route(server, "/v2/languages", ["GET", "POST"], DEEPL, languages, busy=False),
        route(server, "/v2/usage", ["GET", "POST"], DEEPL, usage, busy=False),
    ]


async def translate(server: Server, parameters: Parameters) -> dict[str, Any]:
    """The texts `text`, a list of up to all lines that the server takes, to `target_lang`."""
    texts, _ = parameters.texts("text")
    service = server.service
    num_chars = service.limits.check(texts)
    tgt = _ours(service, "target_lang", parameters.word("target_lang"))
    source = parameters.word("source_lang", "")
    _refuse_what_is_not_here(parameters)
    tags = parameters.word("tag_handling", "")
    if tags not in ("", "html", "xml"):
        raise Refusal(400, "Value for 'tag_handling' not supported. Give html or xml.")
    if tags == "xml":
        _refuse_what_html_changes(texts)
    split = parameters.word("split_sentences", "1")
    if split not in ("0", "1", "nonewlines"):
        raise Refusal(400, "Value for 'split_sentences' not supported. Give 0, 1 or nonewlines.")
    billed = [len(text) for text in texts]
    if split == "nonewlines":
        texts = [_without_line_ends(text) for text in texts]
    server.metrics.num_chars += num_chars
    if source:
        sources = [_ours(service, "source_lang", source)] * len(texts)
    else:
        sources = [code for code, _ in await service.sources_of(texts, tgt, tags)]
    found = await translate_from(service, texts, sources, tgt, tags, split=split != "0")
    server.metrics.num_billed += sum(billed)
    return {
        "translations": [
            {"detected_source_language": src.upper(), "text": one[0], "billed_characters": num}
            for src, num, one in zip(sources, billed, found, strict=True)
        ]
    }


async def languages(server: Server, parameters: Parameters) -> list[dict[str, Any]]:
    """The languages of one `type`, source or target."""
    kind = parameters.word("type", "source")
    if kind not in ("source", "target"):
        raise Refusal(400, "Value for 'type' not supported. Give source or target.")
    if kind == "source":
        return [{"language": code.upper(), "name": name_of(code)} for code in server.service.targets]
    targets = dict.fromkeys(tgt for _, tgt in server.service.by_pair)
    return [{"language": code.upper(), "name": name_of(code), "supports_formality": False} for code in targets]


async def usage(server: Server, parameters: Parameters) -> dict[str, int]:
    """The characters that this API has translated since the server began. There is no limit on them."""
    billed = server.metrics.num_billed
    return {"character_count": billed, "character_limit": NO_LIMIT, "billed_characters": billed}


def _ours(service: Service, name: str, code: str) -> str:
    found = service.our(code)
    if found is None:
        raise Refusal(400, f"Value for '{name}' not supported. This server has {', '.join(service.languages).upper()}.")
    return found


def _without_line_ends(text: str) -> str:
    """The text with a blank for each stretch of white space that has a line end."""
    # A pattern with the line end in it would look for one from every blank of a stretch that has none.
    return re.sub(r"\s+", lambda space: " " if "\n" in space[0] else space[0], text)


def _refuse_what_is_not_here(parameters: Parameters) -> None:
    """Raise Refusal, by its name, for what would change the translation and is not here."""
    for name, why in REFUSED.items():
        if name in parameters:
            raise Refusal(400, f"'{name}' is not supported. {why}; leave it out.")
    formality = parameters.word("formality", "default")
    if formality not in PLAIN_FORMALITIES:
        raise Refusal(400, "'formality' is not supported for given 'target_lang'. Give default, or prefer_more.")


def _refuse_what_html_changes(texts: list[str]) -> None:
    """Raise Refusal for elements of XML around text that HTML takes for empty, or for no text. Their end tags would be
    lost, or their text left as it is.
    """
    for token in chain.from_iterable(tokens_of(text, xml=True) for text in texts):
        if token.kind is Kind.END and token.name in VOID | RAW:
            raise Refusal(
                400, f"An element <{token.name}> around text is not supported, because HTML has one of that name. "
                "Rename it."
            )  # fmt: skip
