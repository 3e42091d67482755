"""Any byte of a run's tokenizers or checkpoints cut or changed: an error that names the file, or the same answer."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from attempts import attempt
from damage import DAMAGES, Damage, restore, snapshot
from hypothesis import given, settings
from safetensors.torch import load_file, save_file
from toy import toy_config, write_toy_corpus

from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.decoding.load_model import build_model, load_run
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.storage.checkpoint_files import full_name
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import MANIFEST, RunFolder
from transformer_mt.storage.weights import load_weights, unique_weights
from transformer_mt.training.averaging import average_checkpoints
from transformer_mt.training.resuming.checkpoints import read_checkpoint, set_damaged_aside, settings_so_far
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.updates import Updater

LINES = ["one two three.", "ten nine.", "¿zzz?"]
TOKENIZERS = ["tokenizers/src.json", "tokenizers/tgt.json"]
SAVED = ["model.safetensors", "optimizer.safetensors", "state.json", "settings.yaml"]
Answer = dict[str, object]


class Trained:
    """A run of three steps with a checkpoint of each and their average; what each use of it gives, and its files."""

    def __init__(self, folder: Path) -> None:
        write_toy_corpus(folder / "data", 40)
        self.config = toy_config(
            folder / "data",
            data={"cache_dir": str(folder / "cache")},
            training={"max_steps": 3, "checkpoint_every_steps": 1, "keep_checkpoints": 3},
            validation={"every_steps": 2},
        )
        self.run = RunFolder(folder / "run with a space")
        start_or_resume(self.config, self.run, resume=False)
        average_checkpoints(self.run, 2)
        self.files = {p: c for part in ("tokenizers", "checkpoints") for p, c in snapshot(self.run.path / part).items()}
        best = json.loads((self.run.step(3) / "state.json").read_text())["best_step"]
        # Each use, and the files on which its answer depends.
        self.uses: dict[str, tuple[Callable[[], Answer], set[Path]]] = {
            "best": (
                lambda: self.translate(None),
                self.paths(
                    *TOKENIZERS,
                    "checkpoints/step_3/state.json",
                    *(f"checkpoints/step_{best}/{name}" for name in ("model.safetensors", "settings.yaml")),
                ),
            ),
            "step_1": (
                lambda: self.translate("step_1"),
                self.paths(
                    *TOKENIZERS, *(f"checkpoints/step_1/{name}" for name in ("model.safetensors", "settings.yaml"))
                ),
            ),
            "average": (
                lambda: self.translate("average"),
                self.paths(
                    *TOKENIZERS,
                    *(f"checkpoints/average/{name}" for name in ("model.safetensors", "settings.yaml", "steps.json")),
                ),
            ),
            "resume": (self.resume, self.paths(*TOKENIZERS, *(f"checkpoints/step_3/{name}" for name in SAVED))),
            "averaging": (
                self.average,
                self.paths(
                    *(f"checkpoints/step_{s}/{name}" for s in (2, 3) for name in ("model.safetensors", "settings.yaml"))
                ),
            ),
        }
        self.answers = {name: use() for name, (use, _) in self.uses.items()}

    def paths(self, *names: str) -> set[Path]:
        found = {self.run.path / name for name in names}
        assert found <= self.files.keys()
        return found

    def translate(self, checkpoint: str | None) -> Answer:
        """Texts and their log-probabilities, which every weight has a part in."""
        translator = Translator.load(self.run.path, checkpoint)
        found = translator.translate_lines(LINES)
        return {line.source: [(h.text, h.tokens, h.log_prob) for h in line.hypotheses] for line in found}

    def resume(self) -> Answer:
        copy = self.copy()
        if said := set_damaged_aside(copy):  # a resume goes on from an older one then; here that is a refusal
            raise UserError(" ".join(said))
        settings = settings_so_far(copy).model_dump()
        model = build_model(self.config, *load_tokenizers(copy.tokenizers, self.config.tokenizer))
        updater = Updater(model, self.config.training, 0, "fp32", torch.device("cpu"))
        updater.restore(*read_checkpoint(copy, model))
        state = TrainingState.read(copy.step(copy.steps()[-1]) / "state.json")
        weights = {name: tensor.tolist() for name, tensor in unique_weights(model).items()}
        moments = [{key: value.tolist() for key, value in entry.items()} for entry in updater.optimizer.state.values()]
        return {**weights, "moments": moments, "state": asdict(state), "settings": settings}

    def average(self) -> Answer:
        copy = self.copy()
        steps = average_checkpoints(copy, 2)
        return {"steps": steps, "weights": (copy.average / "model.safetensors").read_bytes()}

    def copy(self) -> RunFolder:
        """For uses that write, so that the run stays as it is."""
        copy = RunFolder(self.run.path.with_name("copy"))
        shutil.rmtree(copy.path, ignore_errors=True)
        shutil.copytree(self.run.path, copy.path)
        return copy


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("damaged"))


def assert_damage_is_seen(trained: Trained, damage: Damage, *, all_uses: bool) -> None:
    """By each use whose answer depends on the file. With `all_uses` the others are tried too, and see nothing wrong."""
    path = list(trained.files)[damage.file % len(trained.files)]
    path.write_bytes(damage.of(trained.files[path]))
    try:
        for name, (use, needed) in trained.uses.items():
            if not (all_uses or path in needed or path.name == MANIFEST):
                continue
            place = (
                path if name not in ("averaging", "resume") else Path(str(path).replace(trained.run.path.name, "copy"))
            )
            answer, refusal = attempt(use)
            if refusal is None:
                assert answer == trained.answers[name], name
                assert path not in needed, f"{name} did not see what happened to {path}"
            else:
                # A manifest that names another file or hash can only say that the two do not agree.
                assert str(place.parent if path.name == MANIFEST else place) in refusal, name
                assert refusal.count(". ") >= 1, "what is wrong, and what to do"
                assert path in needed or path.name == MANIFEST, f"{name} has no need of {path}"
    finally:
        restore(trained.files)


@settings(max_examples=40)
@given(DAMAGES)
def test_any_damage_to_a_run_is_named_or_changes_nothing(trained: Trained, damage: Damage) -> None:
    assert_damage_is_seen(trained, damage, all_uses=False)


@pytest.mark.slow
@settings(max_examples=2000)
@given(DAMAGES)
def test_any_damage_to_a_run_many_times(trained: Trained, damage: Damage) -> None:
    assert_damage_is_seen(trained, damage, all_uses=True)


@pytest.mark.parametrize(
    "name", [*TOKENIZERS, f"tokenizers/{MANIFEST}", *(f"checkpoints/step_3/{name}" for name in SAVED)]
)
def test_a_missing_file_is_named_by_all_who_need_it(trained: Trained, name: str) -> None:
    path = trained.run.path / name
    path.unlink()
    try:
        for use_name, (use, needed) in trained.uses.items():
            if path in needed or (path.name == MANIFEST and use_name != "averaging"):
                with pytest.raises(UserError, match=rf"{path.parent.name}/{path.name} is missing\. \S"):
                    use()
    finally:
        restore(trained.files)


def test_a_manifest_without_a_file_that_is_needed_is_refused(trained: Trained) -> None:
    """Nobody knows with which settings such weights were trained."""
    path = trained.run.step(3) / "settings.yaml"
    path.unlink()
    write_manifest(path.parent, [name for name in SAVED if name != path.name])
    try:
        for use in ("resume", "averaging"):
            with pytest.raises(UserError, match=r"manifest\.json does not name settings\.yaml"):
                trained.uses[use][0]()
    finally:
        restore(trained.files)


def test_a_seed_that_became_another_is_named(trained: Trained) -> None:
    path = trained.run.step(3) / "settings.yaml"
    path.write_bytes(trained.files[path].replace(b"seed: 3", b"seed: 2"))
    assert path.read_bytes() != trained.files[path]
    try:
        with pytest.raises(UserError, match=r"settings\.yaml is damaged.* It is now .*damaged_step_3"):
            trained.resume()
    finally:
        restore(trained.files)


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("num_heads: 2", "num_heads: 4", "model.num_heads is 4, and the weights were trained with 2"),
        ("lowercase: false", "lowercase: true", "tokenizer.lowercase is True, and the weights were trained with False"),
    ],
)
def test_a_config_that_no_longer_describes_the_weights_is_refused(
    trained: Trained, was: str, now: str, told: str
) -> None:
    """Their shapes fit, so it would translate, and wrongly."""
    before = trained.run.config.read_text(encoding="utf-8")
    assert before.count(was) == 1
    trained.run.config.write_text(before.replace(was, now), encoding="utf-8")
    try:
        for checkpoint in (None, "step_1", "average"):
            with pytest.raises(UserError, match=told):
                trained.translate(checkpoint)
    finally:
        trained.run.config.write_text(before, encoding="utf-8")


def test_an_average_is_of_whole_checkpoints_of_one_model_each_once(trained: Trained) -> None:
    copy = trained.copy()
    shutil.copytree(copy.step(3), copy.checkpoints / "step_03")  # somebody's own
    assert average_checkpoints(copy, 3) == [1, 2, 3]
    path = copy.step(2) / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"Move .*step_2.? away, and average those that are whole"):
        average_checkpoints(copy, 2)
    tensors = load_file(trained.run.step(2) / "model.safetensors")
    save_file({name: tensor[:1].clone() for name, tensor in tensors.items()}, path)
    write_manifest(copy.step(2), [path.name, "settings.yaml"])
    with pytest.raises(UserError, match=f"step_2/{path.name} holds other weights than"):
        average_checkpoints(copy, 3)


@pytest.mark.parametrize("name", ["model.safetensors", "settings.yaml", "steps.json"])
def test_a_damaged_average_is_made_again_as_it_is_said(trained: Trained, name: str) -> None:
    """Of as many checkpoints as there are, which `tmt average` alone would not do."""
    copy = trained.copy()
    path = copy.average / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"Make it again with `tmt average .* --last 3`\.$") as caught:
        full_name(copy, load_run(copy, "average")[-1].name)
    assert copy.quoted in str(caught.value)
    average_checkpoints(copy, 3)
    assert full_name(copy, load_run(copy, "average")[-1].name) == "average3_to_3"


def test_weights_of_another_model_are_refused_with_a_way_out(trained: Trained) -> None:
    path = trained.run.step(3) / "model.safetensors"
    for changes, said in (
        ({"num_decoder_layers": 2}, r"other weights than .* \(decoder\.layers\.1\.\S+, for one, is not in both\)"),
        ({"d_ff": 48}, r"has the shape \(32, 16\), the config asks for \(48, 16\)"),
    ):
        config = trained.config.model_copy(update={"model": trained.config.model.model_copy(update=changes)})
        model = build_model(config, *load_tokenizers(trained.run.tokenizers, config.tokenizer))
        with pytest.raises(UserError, match=said + r"\. The config was changed .*: put back what was there\.$"):
            load_weights(model, path)
