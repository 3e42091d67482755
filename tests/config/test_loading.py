"""Which file is taken, what it inherits, what overrides do to it, and that what is dumped loads back."""

from pathlib import Path
from typing import cast

import pytest
from base_config import BASE

from transformer_mt.config.loading import dump_config, find_config, load_config, parse_run_config, shipped_configs
from transformer_mt.config.yaml_text import parse_yaml
from transformer_mt.errors import UserError

BUILTIN = "[{builtin: en-es, split: test}]"
OF_BUILTIN = f"""\
data: {{src_lang: en, tgt_lang: es, train: {BUILTIN}, validation: {BUILTIN}, test: {BUILTIN}}}
training: {{max_steps: 9}}
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: str, text: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return path


def refusal(file: str, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(file, overrides)
    return str(caught.value)


def test_the_builtin_corpus_is_not_inherited_beside_data_of_ones_own():
    """The score of an English-German model on it would be a number like any other."""
    write("base.yaml", OF_BUILTIN)
    own = "train: [{tsv: a.tsv}]"
    write("mine.yaml", f"extends: base.yaml\ndata: {{{own}}}\n")
    assert refusal("mine.yaml").endswith("data.validation: missing; a list is needed")
    write("mine.yaml", f"extends: base.yaml\ndata: {{{own}, validation: [{{tsv: v.tsv}}]}}\n")
    assert load_config("mine.yaml").config.data.test == []
    write("other.yaml", f"extends: mine.yaml\ndata: {{{own}}}\n")
    assert load_config("other.yaml").config.data.validation == load_config("mine.yaml").config.data.validation
    write("same.yaml", "extends: base.yaml\ndata: {tgt_lang: es}\n")
    assert len(load_config("same.yaml").config.data.test) == 1


def test_nor_is_it_beside_overrides_of_ones_own():
    write("base.yaml", OF_BUILTIN)
    own, validation = "data.train=[{tsv: a.tsv}]", "data.validation=[{tsv: v.tsv}]"
    assert refusal("base.yaml", own) == (
        "data.train was given, and data.validation is still the built-in corpus. Give data.validation too: "
        "data.validation='[{src: FILE, tgt: FILE}]'."
    )
    assert load_config("base.yaml", [validation, own]).config.data.test == []
    asked_for = load_config("base.yaml", [own, validation, f"data.test={BUILTIN}"]).config.data
    assert len(asked_for.test) == 1
    assert len(load_config("base.yaml", [own, f"data.validation={BUILTIN}"]).config.data.validation) == 1
    for harmless in ("data.train.0.split=test", "data.tgt_lang=de", f"data.train={BUILTIN}"):
        assert len(load_config("base.yaml", [harmless]).config.data.test) == 1
    write("own.yaml", "extends: base.yaml\ndata: {train: [{tsv: a.tsv}], validation: [{tsv: v.tsv}]}\n")
    assert load_config("own.yaml", ["data.train=[{tsv: b.tsv}]"]).config.data.validation != []
    assert "data" in refusal("base.yaml", "data=3", own)
    for no_map in ("data=3", "data=null", "data=[1]"):
        assert "a map of keys is needed" in refusal("base.yaml", own, no_map)


# Finding


def test_the_working_folder_comes_before_configs():
    write("a.yaml", BASE)
    write("configs/a.yaml", BASE)
    loaded = load_config("a.yaml")
    assert (loaded.path, loaded.note) == (Path("a.yaml"), "")


def test_configs_is_looked_in_and_said():
    write("configs/a.yaml", BASE)
    loaded = load_config("a.yaml")
    assert loaded.path == Path("configs/a.yaml")
    assert loaded.note == "a.yaml: there is none in the working folder; taking configs/a.yaml"


def test_an_absolute_path_is_taken_as_it_is(tmp_path: Path):
    path = tmp_path / "sub" / "a.yaml"
    write(str(path), BASE)
    loaded = load_config(str(path))
    assert (loaded.path, loaded.note) == (path, "")


def test_beside_comes_first():
    write("sub/a.yaml", BASE)
    write("a.yaml", BASE)
    assert find_config("a.yaml", beside=Path("sub")) == Path("sub/a.yaml")
    assert find_config("a.yaml") == Path("a.yaml")


def test_a_missing_file_is_told_where_it_was_looked_for(tmp_path: Path):
    write("configs/numbers.yaml", BASE)
    message = refusal("nubmers.yaml")
    places = f"{tmp_path}, {tmp_path / 'configs'}, {shipped_configs()}"
    assert message.startswith(f"there is no file 'nubmers.yaml'; looked in {places}. Did you mean numbers.yaml")


def test_an_ending_left_out_is_suggested():
    write("mine.yaml", BASE)
    assert "Did you mean mine.yaml?" in refusal("mine")
    assert "Did you mean mine.yaml?" in refusal("mine.yml")


def test_a_folder_is_no_file():
    write("configs/a.yaml", BASE)
    assert refusal("configs").startswith("'configs' is a folder, and a YAML file is needed.")
    Path("runs/toy").mkdir(parents=True)
    Path("runs/toy/config.yaml").write_text("seed: 1\n")
    assert refusal("runs/toy").endswith("a YAML file is needed. Did you mean runs/toy/config.yaml?")


@pytest.mark.parametrize("file", ["", "a\0b.yaml", "x" * 5000, "\udcff.yaml", "~nobody_by_this_name/a.yaml"])
def test_odd_file_names_are_simply_not_there(file: str):
    assert refusal(file).startswith(("there is no file", "'' is a folder"))


# Reading


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.yaml is empty; a configuration has at least the sections data and training."),
        (b"# nothing yet\n", "a.yaml is empty; a configuration has at least the sections data and training."),
        (b"- a\n", "a.yaml holds a list; a configuration is a map of keys such as data: and training:."),
        (b"just text\n", "a.yaml holds a single value; a configuration is a map of keys such as data: and training:."),
        (b"a: 1\nname: caf\xe9\n", "a.yaml, line 2: byte 0xe9 is not UTF-8; save it as UTF-8."),
        (BASE.encode("utf-16"), "a.yaml is UTF-16; save it as UTF-8."),
        (b"a" * (1 << 21), "a.yaml is larger than 1024 KiB, which no configuration is; is it the right file?"),
        (b"seed: 1\nseed: 2\n", "a.yaml, line 2, column 1: the key 'seed' is there twice, first in line 1."),
    ],
)
def test_what_is_no_configuration(content: bytes, message: str):
    Path("a.yaml").write_bytes(content)
    assert refusal("a.yaml") == message


def test_a_byte_order_mark_and_windows_line_ends_are_accepted():
    Path("a.yaml").write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert load_config("a.yaml").config.seed == 5


def test_a_file_that_may_not_be_read(folder_without_rights: Path):
    path = folder_without_rights / "a.yaml"
    path.write_text(BASE, encoding="utf-8")
    path.chmod(0)
    assert refusal(str(path)) == f"{path} cannot be read: Permission denied."


def test_problems_name_the_file_its_bases_and_the_overrides():
    write("base.yaml", BASE)
    write("a.yaml", "extends: base.yaml\nmodel: {n_heads: 8}\n")
    assert refusal("a.yaml") == ("a.yaml (extends base.yaml): model.n_heads: unknown key, did you mean num_heads?")
    assert refusal("a.yaml", "sede=1") == (
        "a.yaml (extends base.yaml, with sede=1): 2 problems\n"
        "  model.n_heads: unknown key, did you mean num_heads?\n"
        "  sede: unknown key, did you mean seed?"
    )


# Names


def test_the_name_is_that_of_the_file_where_it_has_none():
    write("my_run.yaml", BASE.replace("name: base_name\n", ""))
    assert load_config("my_run.yaml").config.name == "my_run"
    assert load_config("my_run.yaml", ["name=other"]).config.name == "other"


def test_a_name_is_not_inherited():
    write("base.yaml", BASE)
    write("child.yaml", "extends: base.yaml\n")
    assert load_config("base.yaml").config.name == "base_name"
    assert load_config("child.yaml").config.name == "child"


def test_a_file_name_that_is_no_run_name_is_an_error():
    write("my run.yaml", BASE.replace("name: base_name\n", ""))
    assert "name: 'my run' is not allowed; must be letters (a to z), digits" in refusal("my run.yaml")


# Inheriting


def test_maps_merge_lists_replace_and_null_overrides():
    write("base.yaml", BASE)
    write(
        "child.yaml",
        "extends: base.yaml\nseed: 6\ndata: {train: [{csv: c.csv}]}\nmodel: {d_ff: 256}\n"
        "training: {max_minutes: null}\n",
    )
    config = load_config("child.yaml").config
    assert config.seed == 6
    assert [source.kind for source in config.data.train] == ["csv"]
    assert config.data.tgt_lang == "no"
    assert (config.model.d_model, config.model.d_ff, config.model.num_heads) == (64, 256, 4)
    assert (config.training.max_steps, config.training.max_minutes) == (10, None)


def test_a_chain_of_files_is_looked_for_beside_each_and_then_where_config_looks():
    write("configs/base.yaml", BASE)
    write("sub/middle.yaml", "extends: base.yaml\nseed: 7\nmodel: {d_ff: 96}\n")
    write("sub/deep/top.yaml", "extends: ../middle.yaml\nmodel: {d_model: 32}\n")
    config = load_config("sub/deep/top.yaml").config
    assert (config.seed, config.model.d_model, config.model.d_ff, config.model.num_heads) == (7, 32, 96, 4)


def test_a_circle_is_shown():
    write("a.yaml", "extends: b.yaml\n")
    write("b.yaml", "extends: sub/../a.yaml\n")
    Path("sub").mkdir()
    assert refusal("a.yaml") == ("extends goes in a circle: a.yaml -> b.yaml -> sub/../a.yaml. Take one extends: out.")
    write("c.yaml", "extends: c.yaml\n")
    assert refusal("c.yaml") == "extends goes in a circle: c.yaml -> c.yaml. Take one extends: out."


@pytest.mark.parametrize("value", ["null", "[a.yaml, b.yaml]", "3", "''", "{a: b}", ""])
def test_extends_names_one_file(value: str):
    write("a.yaml", f"extends: {value}\n")
    assert refusal("a.yaml") == "a.yaml: extends must be the name of one YAML file, such as extends: base.yaml."


def test_a_base_that_is_missing_or_broken_is_named():
    write("a.yaml", "extends: bsae.yaml\n")
    write("base.yaml", "seed: [\n")
    assert refusal("a.yaml").startswith("a.yaml: extends: there is no file 'bsae.yaml'; looked in")
    assert "Did you mean base.yaml?" in refusal("a.yaml")
    write("a.yaml", "extends: base.yaml\n")
    assert refusal("a.yaml").startswith("base.yaml, line 2, column 1: ")


def test_a_section_set_to_null_by_a_child_is_told():
    write("base.yaml", BASE)
    write("a.yaml", "extends: base.yaml\nmodel:\n")
    assert refusal("a.yaml") == "a.yaml (extends base.yaml): model: null is not allowed, a map of keys is needed"
    assert load_config("a.yaml", ["model.d_ff=8"]).config.model.d_ff == 8


# Overrides


def test_overrides_come_last_and_in_order():
    write("base.yaml", BASE)
    write("a.yaml", "extends: base.yaml\nmodel: {d_ff: 256}\n")
    overrides = [
        "model.d_ff=512",
        "model.d_ff=1024",
        "data.train.0.src=x.en",
        "training.lr=1e-4",
        "training.schedule=constant",
    ]
    config = load_config("a.yaml", overrides).config
    assert config.model.d_ff == 1024
    assert (config.data.train[0].src, config.data.train[0].tgt, config.data.train[1].tsv) == ("x.en", "a.no", "b.tsv")
    assert config.training.lr == 0.0001


# Dumping


def test_a_dump_is_the_whole_config_readable():
    text = dump_config(parse_run_config(cast("dict", parse_yaml(BASE, "base")), "base"))
    assert text.startswith(
        "name: base_name\nseed: 5\ndata:\n  src_lang: en\n  tgt_lang: 'no'\n  root: .\n  train:\n"
        "    - {src: a.en, tgt: a.no}\n    - {tsv: b.tsv}\n  validation:\n    - {src: v.en, tgt: v.no}\n  test: []\n"
    )
    assert "adam_betas: [0.9, 0.98]\n" in text
    assert "max_epochs: null\n" in text


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["data.root='/größe/日本語 😀/a: b #c'"],
        ["name='1e-4'", "data.src_lang=no", "data.tgt_lang='012'"],
        ["data.columns={src: 1, tgt: español}", "training.adam_eps=1e-12", "training.clip_norm=null"],
        ["data.test=[{builtin: en-es, split: test}, {hub: a/b, config: en-es, split: 'test[:10%]'}]"],
    ],
)
def test_a_dump_loads_to_an_equal_config(overrides: list[str]):
    write("a.yaml", BASE)
    config = load_config("a.yaml", overrides).config
    write("dumped.yaml", dump_config(config))
    assert load_config("dumped.yaml").config == config
