"""What Argos Translate, as LibreTranslate runs it, makes of a package. Run by the Python of an environment that has it:

    PYTHON foreign_argos.py FILE < QUESTIONS > ANSWERS

The questions are JSON: `texts`, and `pieces`, lists of tokens. The answers are JSON too. Sentences are not looked for,
because the models for that would have to be fetched. Nothing of ours is imported.
"""

import json
import sys


def main() -> None:
    from argostranslate import package, sbd, translate  # pyright: ignore[reportMissingImports]

    sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
    questions = json.load(sys.stdin)
    package.install_from_path(sys.argv[1])
    (installed,) = package.get_installed_packages()
    json.dump(
        {
            "languages": [installed.from_code, installed.from_name, installed.to_code, installed.to_name],
            "readme": installed.get_readme(),
            "pieces": [installed.tokenizer.encode(text) for text in questions["texts"]],
            "decoded": [installed.tokenizer.decode(pieces) for pieces in questions["pieces"]],
            "translated": [translate.translate(text, "en", "es") for text in questions["texts"]],
            "ours": sorted(name for name in sys.modules if name.startswith("transformer_mt")),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
