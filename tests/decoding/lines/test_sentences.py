"""Where sentences end, by examples that were parted by hand, in several scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.decoding.lines.sentences import split_sentences

PARTED = {  # `|` stands between sentences, with the white space around it where there is some
    "full stops": "One came. |Two left! |Did three? |Four",
    "spaces and line ends": "One came.  \t|Two left\n\n|no mark here\n|Three.",
    "titles and initials": "Mr. Smith met J. R. R. Tolkien at St. Mary's. |Dr. No was there.",
    "what may end a sentence": "Was it etc. and so on? |Yes, etc. |He works for Acme Inc. |No. |It is.",
    "numbers": "It costs 3.50 or 1,000.00 euros. |See No. 5 and Fig. 3. |In 2010. |He left",
    "entries of a list": "1. Wash it. |2. Dry it.",
    "lower case goes on": "It is approx. five. |Wait... what? |He said e.g. this. |Yahoo! is a name.",
    "no capitals at all": "hello. |how are you? |fine.",
    "quotes and brackets": '"Stop!" he said. |"Go." |(He left.) |Then “it ended.” |‘Oh?’ |Yes.[1] |End',
    "addresses": "See http://a.example/b?c=1.2 for it. |Write to x.y@z.example! |Done",
    "German": "Am 3. Mai kam Hr. Meier z. B. um 8.30 Uhr. |Im 19. Jahrhundert nicht. |„Gut.“ |»Ja?« |Ende",
    "French": "« Bonjour ! » dit-il. |Ça va ? |« Oui. » |M. Dupont part… |Et Mme. Roux ?",
    "Spanish": "¿Qué hora es? |¡Las tres! |El Sr. López vive en la pág. 3 del libro. |¿Y la Dra. Gil?",
    "Finnish": "Se on 5. toukokuuta. |Hän tuli.",
    "Russian": "Это А. С. Пушкин. |Он жил на ул. Мира! |Да?",
    "Greek": "Τι κάνεις; |Καλά. |Και εσύ;",
    "Chinese": "他走了。|“你好！”他说。|我们走吧！|好吗？|（是。）|他说……走了。|３．１４是数。",
    "Chinese with ASCII marks": "你好!|我们走.|你走吗?|用Python3.8吧。|ok",
    "Japanese": "「行く。」と言った。|それから寝た．|終わり｡|はい",
    "Hindi": "यह घर है। |वह कौन है? |हाँ।|अच्छा॥ |ठीक",
    "Arabic": "ما هذا؟ |هذا بيت. |نعم!",
    "Urdu": "یہ گھر ہے۔ |کیا؟ |ہاں",
    "Armenian": "Ի՞նչ է սա։ |Սա տուն է։ |Այո",
    "Amharic": "ሰላም ነው። |እንዴት ነህ፧ |ደህና",
    "Burmese": "ဒါက အိမ်ပါ။ |ဟုတ်တယ်။",
    "Thai": "สวัสดีครับ |วันนี้อากาศดีมากๆ เลย |ไป ABC กัน |ลาก่อน",
}


@pytest.mark.parametrize("name", PARTED)
def test_sentences_that_were_parted_by_hand(name: str) -> None:
    parted = PARTED[name]
    text = parted.replace("|", "")
    assert [text[start:end] for start, end in split_sentences(text)] == [part.strip() for part in parted.split("|")]


@given(st.text(st.sampled_from([*"aB5 .!?\"')(»«“”。！…「」ก\n\u0301\u00a0"])) | st.text())
def test_sentences_hold_all_of_a_text_but_white_space(text: str) -> None:
    end = 0
    for span in split_sentences(text):
        assert not text[end : span[0]].strip()
        assert text[slice(*span)] == text[slice(*span)].strip() != ""
        end = span[1]
    assert not text[end:].strip()


@pytest.mark.parametrize("mark", ['。"', "1. ", ". - ", "\n", ".\u00a0»", "a.", "…"])
def test_the_time_is_proportional_to_the_length(mark: str) -> None:
    """With the square of the length, this would take minutes."""
    assert split_sentences(mark * 40_000)[-1:] or mark == "\n"
