"""Tags as a browser or a parser of XML reads them, in hostile text too."""

import time

import pytest

from transformer_mt.markup.marked import take_out


@pytest.mark.parametrize(
    "unit",
    ['<a "="', "<a '='", """<a "='"'=""", "<!--", "<a '", "<", "&", "<a href=", "<script>", "<?", "<![CDATA[", "</a ",
     "<code>", "<b><p>", "</p><b>", "<code></p>", "<pre><b>", "<b/></b>", "<a b=c/>"],
)  # fmt: skip
def test_a_hostile_text_takes_no_time(unit: str) -> None:
    """Tags in the quotes of each other were read from each `<` to the end of the text: for minutes here."""
    begun = time.process_time()
    take_out(unit * 60_000)
    assert time.process_time() - begun < 15, "1 to 3 s"
