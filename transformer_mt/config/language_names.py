"""Languages by their codes: their names in English."""

_NAMES = """
af Afrikaans, am Amharic, ar Arabic, as Assamese, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bo Tibetan,
br Breton, bs Bosnian, ca Catalan, ceb Cebuano, cs Czech, cy Welsh, da Danish, de German, dv Divehi, el Greek,
en English, eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, ff Fula, fi Finnish, fil Filipino, fo Faroese,
fr French, fy Western Frisian, ga Irish, gd Scottish Gaelic, gl Galician, gn Guarani, gu Gujarati, ha Hausa, he Hebrew,
hi Hindi, hr Croatian, ht Haitian Creole, hu Hungarian, hy Armenian, id Indonesian, ig Igbo, is Icelandic, it Italian,
ja Japanese, jv Javanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, ku Kurdish, ky Kyrgyz, la Latin,
lb Luxembourgish, lg Ganda, ln Lingala, lo Lao, lt Lithuanian, lv Latvian, mg Malagasy, mi Maori, mk Macedonian,
ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, nb Norwegian Bokmål, ne Nepali, nl Dutch,
nn Norwegian Nynorsk, no Norwegian, ny Chichewa, oc Occitan, om Oromo, or Odia, pa Punjabi, pl Polish, ps Pashto,
pt Portuguese, qu Quechua, rm Romansh, ro Romanian, ru Russian, rw Kinyarwanda, sa Sanskrit, sd Sindhi, si Sinhala,
sk Slovak, sl Slovenian, sm Samoan, sn Shona, so Somali, sq Albanian, sr Serbian, ss Swati, st Southern Sotho,
su Sundanese, sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik, th Thai, ti Tigrinya, tk Turkmen, tl Tagalog,
tn Tswana, to Tongan, tr Turkish, ts Tsonga, tt Tatar, ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese,
wo Wolof, xh Xhosa, yi Yiddish, yo Yoruba, zh Chinese, zu Zulu
"""
NAMES = {
    code: name for code, _, name in (entry.strip().partition(" ") for entry in _NAMES.replace("\n", " ").split(","))
}


def normal(code: str) -> str:
    """A code in the one form that codes are compared in: `pt_BR` is `pt-br`."""
    return code.strip().replace("_", "-").lower()


def base(code: str) -> str:
    """The language of a code, without a region or script: `pt` of `pt-BR`."""
    return normal(code).partition("-")[0]


def name_of(code: str) -> str:
    """The English name of a language; a code that is not known is its own."""
    return NAMES.get(base(code), code)
