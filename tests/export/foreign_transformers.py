"""What the real `transformers` makes of exported folders. Run by the Python of an environment that has it:

    PYTHON foreign_transformers.py < QUESTIONS > ANSWERS

The questions are JSON, by folder: `src`, `tgt_in` (rows of ids, padded with 0), `texts`, `ids`, and `generate`, the
settings of each search. The answers are JSON too. FOLDER.safetensors has the logits, and `again` those of the model
after `transformers` has saved it. Nothing of ours is imported.
"""

import json
import os
import sys
import warnings

import torch
import transformers  # pyright: ignore[reportMissingImports]
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # pyright: ignore[reportMissingImports]


def answer(folder: str, questions: dict) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    src, tgt_in = torch.tensor(questions["src"]), torch.tensor(questions["tgt_in"])
    model.save_pretrained(f"{folder}_again")  # leaves out the positions of Marian, which are worked out again
    again = AutoModelForSeq2SeqLM.from_pretrained(f"{folder}_again").eval()
    logits = {
        name: each(input_ids=src, attention_mask=(src != 0).long(), decoder_input_ids=tgt_in).logits
        for name, each in (("logits", model), ("again", again))
    }
    save_file(logits, f"{folder}.safetensors")
    answers = {
        "version": transformers.__version__,
        "classes": [type(model).__name__, type(tokenizer).__name__],
        "ours": sorted(name for name in sys.modules if name.startswith("transformer_mt")),
        "ids": tokenizer(questions["texts"])["input_ids"],
        "decoded": tokenizer.batch_decode(questions["ids"], skip_special_tokens=True),
        "generated": [],
        "lengths": [],  # without special tokens
    }
    for settings in questions["generate"]:
        batch = tokenizer(questions["texts"], return_tensors="pt", padding=True)
        found = model.generate(**batch, **settings)
        answers["lengths"].append((found > 3).sum(dim=1).tolist())
        answers["generated"].append(tokenizer.batch_decode(found, skip_special_tokens=True))
    return answers


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with torch.no_grad():
        json.dump({folder: answer(folder, asked) for folder, asked in json.load(sys.stdin).items()}, sys.stdout)


if __name__ == "__main__":
    main()
