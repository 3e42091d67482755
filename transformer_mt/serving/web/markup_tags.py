"""XML that the treatment of HTML would change."""

import re

from transformer_mt.markup.tokens import RAW, VOID
from transformer_mt.serving.refusal import Refusal

_END = re.compile(rf"</\s*({'|'.join(sorted(VOID | RAW))})\s*>", re.IGNORECASE)


def refuse_what_html_changes(texts: list[str]) -> None:
    """Raise Refusal for elements around text that HTML takes for empty, or for no text. Their end tags would be lost,
    or their text left as it is.
    """
    for text in texts:
        if found := _END.search(text):
            raise Refusal(
                400, f"An element <{found[1]}> around text is not supported, because HTML has one of that name. "
                "Rename it."
            )  # fmt: skip
