"""BLEU of a model that reads pictures, on lines that another program printed, beside the text of the same lines.

    python scripts/printed.py RUN [--sizes 16 20 28 40 60 100] [--sentences 200] [--chromium]

RUN is the folder of a run trained by pictures.yaml or one like it. Lines of the built-in test split are printed in the
run's font at each size in pixels, with margins, and read as `tmt translate --image` reads them: by Pillow, which puts
small letters on whole pixels, or with --chromium by that browser, which needs selenium and a driver for it.
"""

import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from measuring import command
from measuring.comparing import as_table

from transformer_mt import Translator
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.pictures.fonts import Font
from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.pictures.read_picture import read_picture
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.errors import UserError
from transformer_mt.evaluation.metrics import score_texts

AT_ONCE = 20  # lines on a page of the browser, which has to show them all


def by_pillow(texts: Sequence[str], size: int, font: Font, folder: Path) -> list[Path]:
    """A file of each text."""
    from PIL import Image, ImageDraw

    drawing, paths = font.at_size(size), [folder / f"{number}.png" for number in range(len(texts))]
    ascent, descent = drawing.getmetrics()
    for path, text in zip(paths, texts, strict=True):
        image = Image.new("L", (round(drawing.getlength(text)) + size, ascent + descent + size), "white")
        ImageDraw.Draw(image).text((size // 2, size // 2 + ascent), text, "black", drawing, anchor="ls")
        image.save(path)
    return paths


def by_chromium(texts: Sequence[str], size: int, font: Font, folder: Path) -> list[Path]:
    """A file of each text."""
    try:  # neither the package nor its tests depend on it
        from selenium import webdriver  # pyright: ignore[reportMissingImports]
        from selenium.common.exceptions import WebDriverException  # pyright: ignore[reportMissingImports]
        from selenium.webdriver.common.by import By  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("--chromium needs selenium: pip install selenium.") from None

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", f"--window-size=3000,{3 * size * AT_ONCE + 200}"):
        options.add_argument(argument)
    style = f"@font-face {{ font-family: printed; src: url('{font.path.resolve().as_uri()}') }}"
    style += f"span {{ display: inline-block; white-space: nowrap; padding: {size // 2}px; font: {size}px printed }}"
    page, paths = folder / "page.html", [folder / f"{number}.png" for number in range(len(texts))]
    try:
        browser = webdriver.Chrome(options=options)
    except WebDriverException as error:
        reason = (error.msg or "").splitlines()[0].rstrip(".")
        raise UserError(f"Chromium does not start: {reason}. Install it with its driver.") from None
    with browser:
        for start in range(0, len(texts), AT_ONCE):
            lines = "".join(f"<div><span>{escape(text)}</span></div>" for text in texts[start : start + AT_ONCE])
            page.write_text(f"<meta charset='utf-8'><style>{style}</style><body>{lines}", encoding="utf-8")
            browser.get(page.as_uri())
            found = browser.find_elements(By.TAG_NAME, "span")
            for path, line in zip(paths[start : start + AT_ONCE], found, strict=True):
                line.screenshot(str(path))
    return paths


def main() -> None:
    parser = command.Parser(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sizes", type=command.count(), nargs="+", default=[16, 20, 28, 40, 60, 100])
    parser.add_argument("--sentences", type=command.count(), default=200)
    parser.add_argument("--chromium", action="store_true")
    args = parser.parse_args()
    translator = Translator.load(args.run)
    drawing = translator.src_tokenizer
    if not isinstance(drawing, Pictures):
        parser.error(f"{args.run} reads words. Give a run that was trained with data.source_as: picture.")
    source = SourceConfig(builtin="en-es", split="test")
    pairs = list(load_corpus([source], translator.config.data))[: args.sentences]
    texts, references = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    rows = [["text", f"{score_texts(translator.translate(texts), references, '13a').bleu:.1f}"]]
    for size in args.sizes:
        with tempfile.TemporaryDirectory() as folder:
            paths = (by_chromium if args.chromium else by_pillow)(texts, size, drawing.font, Path(folder))
            lines = [SourceLine(path.name, patches=read_picture(path, drawing)) for path in paths]
        rows.append([f"{size} pixels", f"{score_texts(translator.translate(lines), references, '13a').bleu:.1f}"])
    print(as_table(("printed at", "BLEU"), rows))


if __name__ == "__main__":
    command.run(main)
