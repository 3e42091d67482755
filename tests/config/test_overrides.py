"""`key.path=value`: what it sets, what it leaves alone, and how it fails."""

import pytest

from transformer_mt.config.overrides import apply_override
from transformer_mt.errors import UserError


def refusal(mapping: dict, override: str) -> str:
    with pytest.raises(UserError) as caught:
        apply_override(mapping, override)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "result"),
    [
        ("seed=3", {"seed": 3}),
        ("name=foo", {"name": "foo"}),
        ("model.d_model=256", {"model": {"d_model": 256}}),
        ("model.tie_embeddings=none", {"model": {"tie_embeddings": "none"}}),
        ("training.lr=1e-4", {"training": {"lr": 0.0001}}),
        ("data.src_lang=no", {"data": {"src_lang": "no"}}),
        ("data.root=/some/path with spaces", {"data": {"root": "/some/path with spaces"}}),
        ("data.root=a=b", {"data": {"root": "a=b"}}),
        ("data.root=C#", {"data": {"root": "C#"}}),
        ("data.root='a #b'", {"data": {"root": "a #b"}}),
        ("data.root=null", {"data": {"root": None}}),
        ("data.train=[{src: a, tgt: b}]", {"data": {"train": [{"src": "a", "tgt": "b"}]}}),
        ("model={d_ff: 1, d_model: 2}", {"model": {"d_ff": 1, "d_model": 2}}),
        (" model . d_ff =1", {"model": {"d_ff": 1}}),
    ],
)
def test_an_override_sets_one_key(override: str, result: dict):
    assert apply_override({}, override) == result


def test_an_entry_of_a_list_is_named_by_its_number():
    mapping = {"data": {"train": [{"src": "a", "tgt": "b"}, {"tsv": "c"}], "root": "r"}}
    assert apply_override(mapping, "data.train.0.src=x") == {
        "data": {"train": [{"src": "x", "tgt": "b"}, {"tsv": "c"}], "root": "r"}
    }
    assert apply_override(mapping, "data.train.1={csv: d}")["data"]["train"][1] == {"csv": "d"}


def test_what_shares_an_anchor_does_not_change_with_it():
    shared = [{"src": "a", "tgt": "b"}]
    changed = apply_override({"data": {"train": shared, "test": shared}}, "data.train.0.src=x")
    assert changed["data"]["test"] == [{"src": "a", "tgt": "b"}]
    assert shared == [{"src": "a", "tgt": "b"}]


def test_an_empty_section_is_filled():
    assert apply_override({"model": None, "seed": 1}, "model.d_ff=8") == {"model": {"d_ff": 8}, "seed": 1}


@pytest.mark.parametrize(
    "override", ["training.max_steps", "=3", "a..b=1", ".a=1", "a.=1", "", "=", ".".join("a" * 40) + "=1"]
)
def test_a_malformed_override_is_shown_an_example(override: str):
    assert refusal({}, override) == (
        f"{override!r} is not an override; an override looks like training.max_steps=100 or data.train.0.src=train.en."
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.root=", "'data.root=' has nothing behind the =; give a value, or null to take it away."),
        ("training.init_from= ", "'training.init_from= ' has nothing behind the =; give a value, or null"),
        ("seed.x=1", "'seed.x=1': seed is a single value, so there is no seed.x."),
        ("data.root.x.y=1", "'data.root.x.y=1': data.root is a single value, so there is no data.root.x."),
        ("data.train.1.src=x", "data.train is a list without an entry '1'; its entries are numbered 0 to 0."),
        ("data.train.src=x", "data.train is a list without an entry 'src'; its entries are numbered 0 to 0."),
        ("data.train.-1.src=x", "data.train is a list without an entry '-1'; its entries are numbered 0 to 0."),
        ("data.train.²=x", "data.train is a list without an entry '²'; its entries are numbered 0 to 0."),
        ("data.test.0.src=x", "data.test is a list without an entry '0'; it is empty."),
        ("data.dev.0.src=x", "data.dev has no entry 0; set the whole list, as in data.dev=[...]."),
        ("model.d_ff=[1", "the value of 'model.d_ff=[1', line 1, column 3: "),
        ("data.root=*x", "the value of 'data.root=*x', line 1, column 1: found undefined alias 'x'; put a value that"),
        ("data.root=/set #2", "'data.root=/set #2': '#' begins a comment in YAML; put the value in quotes"),
        ("name=#2", "'name=#2': '#' begins a comment in YAML; put the value in quotes"),
        ("model={a: 1, a: 2}", "the key 'a' is there twice"),
        ("extends=base.yaml", "'extends=base.yaml': extends belongs into the file; name the other file with --config"),
    ],
)
def test_an_override_that_leads_nowhere(override: str, message: str):
    mapping = {"seed": 1, "data": {"root": ".", "train": [{"src": "a", "tgt": "b"}], "test": []}}
    assert message in refusal(mapping, override)
