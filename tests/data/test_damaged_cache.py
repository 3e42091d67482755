"""Whatever happens to a byte of the cache, the data that comes out is the data that went in."""

import json
from pathlib import Path

import pytest
import xxhash
from damage import DAMAGES, Damage, restore, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import toy_config, write_toy_corpus

from transformer_mt.config.schema import RunConfig
from transformer_mt.data import cache
from transformer_mt.data.corpus import TABLE
from transformer_mt.data.preparation import PreparedData, prepare_data


class Cached:
    """Toy data prepared once, what came out of it, and the files of its cache."""

    def __init__(self, folder: Path) -> None:
        write_toy_corpus(folder / "data", 40)
        for language in ("en", "es"):  # text that is more than letters
            with (folder / "data" / f"train.{language}").open("a", encoding="utf-8") as file:
                file.write(f"¿Dónde? \u2028 किताब {language}\n")
        self.config: RunConfig = toy_config(
            folder / "data",
            data={"cache_dir": str(folder / "cache")},
            tokenizer={"kind": "bpe", "vocab_size": 300, "min_frequency": 1},
            model={"max_len": 200},
            training={"max_tokens": 800},
        )
        self.answer = everything(prepare_data(self.config))
        self.files = snapshot(folder / "cache")


def everything(data: PreparedData) -> list[object]:
    """All that training takes from the data."""
    found: list[object] = [tokenizer.backend.to_str() for tokenizer in (data.src_tokenizer, data.tgt_tokenizer)]
    for split in (data.train, data.validation):
        found.append(split.corpus.dataset[:])
        found += [[ids[row].tolist() for row in range(len(ids))] for ids in (split.ids.src, split.ids.tgt)]
        found.append((split.corpus.num_read, split.corpus.num_blank, split.unknown_shares()))
    return found


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Cached:
    return Cached(tmp_path_factory.mktemp("cached"))


def assert_damage_is_seen(cached: Cached, damage: Damage) -> None:
    """The answer is the same, and the entry is whole again; only meta.json may differ where the difference says nothing
    (white space)."""
    path = list(cached.files)[damage.file % len(cached.files)]
    path.write_bytes(damage.of(cached.files[path]))
    try:
        assert everything(prepare_data(cached.config)) == cached.answer
        now = path.read_bytes()
        assert now == cached.files[path] or (
            path.name == "meta.json" and json.loads(now) == json.loads(cached.files[path])
        )
    finally:
        restore(cached.files)


@settings(max_examples=40)
@given(DAMAGES)
def test_any_damage_to_the_cache_is_seen_and_made_good(cached: Cached, damage: Damage) -> None:
    assert_damage_is_seen(cached, damage)


@pytest.mark.slow
@settings(max_examples=3000)
@given(DAMAGES)
def test_any_damage_to_the_cache_many_times(cached: Cached, damage: Damage) -> None:
    assert_damage_is_seen(cached, damage)


@pytest.mark.parametrize("name", [TABLE, "src.ids", "tgt.ids", "src.lengths"])
def test_one_letter_or_id_that_became_another_is_warned_of(
    name: str, cached: Cached, caplog: pytest.LogCaptureFixture
) -> None:
    """The size, the number of rows and every count stay as they were: only the hash tells."""
    paths = [path for path in cached.files if path.name == name]
    path = max(paths, key=lambda path: len(cached.files[path]))
    content = cached.files[path]
    place = content.index(b"uno") if name == TABLE else len(content) - 20
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert everything(prepare_data(cached.config)) == cached.answer
    assert path.read_bytes() == content
    assert f"The cache entry {path.parent} is damaged ({name} was changed between the bytes 0 and " in caplog.text


@settings(max_examples=50)
@given(content=st.binary(max_size=400), shard=st.integers(1, 90), block=st.integers(1, 90))
def test_there_is_a_hash_of_each_shard(
    content: bytes, shard: int, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "shards"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "SHARD_BYTES", shard)
        patch.setattr(cache, "BLOCK_BYTES", block)
        parts = [content[start : start + shard] for start in range(0, len(content), shard)]
        assert list(cache.shard_hashes(path)) == [xxhash.xxh3_128_hexdigest(part) for part in parts]
