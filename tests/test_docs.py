"""The pages are true: links, the tree, commands, keys and defaults, the paper's table, what a run writes."""

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from commands import call_tmt
from pages import REPOSITORY, blocks, printed_by, prose, read, section, slug, snippets, spans, tables
from pydantic import BaseModel
from pydantic_core import PydanticUndefined, to_jsonable_python
from toy import toy_mapping, write_toy_corpus
from trainings import tensorboard_events
from typer.core import TyperGroup
from typer.main import get_command

from transformer_mt.cli.main import app
from transformer_mt.config import schema
from transformer_mt.config.loading import load_config
from transformer_mt.config.presets import MODELS
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections import consistency, sources
from transformer_mt.config.sections.init_from import InitFromConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.sections.noise import NoiseConfig
from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.sections.rnn import RnnConfig
from transformer_mt.config.sections.section import LARGEST
from transformer_mt.config.yaml_text import parse_yaml
from transformer_mt.finishing import run_calibration
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.training.resuming.resume_rules import FREE_TO_CHANGE

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "runs/README.md"]
PAGES += sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").glob("*.md"))
README = "README.md"
KEYS = "docs/configuration.md"
TRAINING = "docs/training.md"
PROMISES = "docs/reliability.md"
EQUATIONS = "docs/architecture.md"
BY_HAND = "docs/worked_example.md"
SECTION_OF_HEADING = {
    "Top level": schema.RunConfig,
    "data": schema.DataConfig,
    "A source": sources.SourceConfig,
    "noise": NoiseConfig,
    "columns": sources.ColumnsConfig,
    "tokenizer": schema.TokenizerConfig,
    "model": schema.ModelConfig,
    "rnn": RnnConfig,
    "patches": PatchesConfig,
    "training": schema.TrainingConfig,
    "init_from": InitFromConfig,
    "consistency": consistency.ConsistencyConfig,
    "validation": schema.ValidationConfig,
    "decoding": schema.DecodingConfig,
    "lines": LinesConfig,
}
SECTIONS = {name: SECTION_OF_HEADING[name] for name in SECTION_OF_HEADING if name in schema.RunConfig.model_fields}
PRINT_TREE = "import sys; sys.path.insert(0, 'scripts'); import house_tree; print(house_tree.page(), end='')"
HUGE = LARGEST  # a bound that no page needs to tell for each key


# Links


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(read(page))):
        path, _, anchor = target.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        file = (REPOSITORY / page).parent / path if path else REPOSITORY / page
        headings = re.findall(r"^#+ (.*)$", prose(file.read_text("utf-8")), re.MULTILINE) if anchor else []
        if not file.exists() or (anchor and anchor not in map(slug, headings)):
            broken.append(target)
    assert not broken


# The tree


def test_the_tree_is_that_of_the_project() -> None:
    """Every module is on it with what it says of itself; `python scripts/house_tree.py` writes it."""
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_TREE], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert read("docs/tree.md") == printed.stdout


def test_every_module_says_what_it_is() -> None:
    for line in re.findall(r"^  .*$", read("docs/tree.md"), re.MULTILINE):
        name, _, said = line.strip().partition(" ")
        assert said.strip() or name.endswith((".json", ".html")), f"{name} says nothing of itself"


# Commands


def commands() -> list[tuple[str, str]]:
    """Every line of a page, or of a comment in a shipped config, that begins with `tmt `."""
    found = [(page, line) for page in PAGES for block in blocks(page, "bash") for line in block.splitlines()]
    for path in sorted((REPOSITORY / "configs").glob("*.yaml")):
        found += [(path.name, line.lstrip("# ")) for line in path.read_text("utf-8").splitlines() if line[:1] == "#"]
    return [(place, line) for place, line in found if line.startswith("tmt ")]


def parse_command(line: str) -> tuple[str, dict[str, Any]]:
    """The verb and its parameters, parsed as the program parses them but not run."""
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if word in ("|", "<", ">", "&&")), len(words))
    command: Any = get_command(app)
    name, *arguments = words[:end]
    while isinstance(command, TyperGroup):
        name, *arguments = arguments
        assert name in command.commands, f"tmt has no verb {name}"
        command = command.commands[name]
    return name, command.make_context(name, arguments).params


@cache
def own_yaml() -> list[tuple[str, str]]:
    return [(yaml.safe_load(text)["name"], text) for page in PAGES for text in blocks(page, "yaml")]


@pytest.fixture
def own_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the YAML blocks of all pages in it, each under its name."""
    for name, text in own_yaml():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("place", "line"), commands())
def test_commands_parse_and_their_configs_load(place: str, line: str, own_configs: Path) -> None:
    verb, params = parse_command(line)
    assert verb in line.split()
    if verb in ("train", "show") and (file := params.get("config") or params.get("file")):
        assert isinstance(load_config(file, params["overrides"] or ()).config, RunConfig)


def test_no_page_averages_more_checkpoints_than_its_config_keeps(own_configs: Path) -> None:
    averages = [parse_command(line)[1] for _, line in commands() if line.startswith("tmt average ")]
    assert averages
    for params in averages:
        config = load_config(f"{Path(params['run']).name}.yaml").config
        assert params["last"] <= config.training.keep_checkpoints, params


@pytest.mark.parametrize("line", ["tmt train --confg base.yaml", "tmt evaluate --beam 3", "tmt config show"])
def test_wrong_commands_do_not_parse(line: str) -> None:
    with pytest.raises(Exception, match=r"No such option|Missing|has no --beam"):
        parse_command(line)


def test_configs_in_the_pages_load(own_configs: Path) -> None:
    files = sorted(own_configs.glob("*.yaml"))
    assert len(files) == len(own_yaml())
    assert {"mine.yaml", "example.yaml", "streamed.yaml"} <= {file.name for file in files}
    for file in files:
        assert load_config(str(file)).config.name == file.stem


# Keys


def type_text(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A JSON schema's node as the tables write types."""
    if "$ref" in node:
        return type_text(definitions[node["$ref"].split("/")[-1]], definitions)
    if "anyOf" in node:
        return " or ".join(type_text(choice, definitions) for choice in node["anyOf"])
    if "const" in node or "enum" in node:
        return " or ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if node["type"] == "array":
        item, least, most = type_text(node["items"], definitions), node.get("minItems"), node.get("maxItems")
        if least is not None and least == most:
            return f"list of {least}, each {item}"
        return f"list of {item}" + (f", {least} or more" if least else "")
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {node[key]:g}" for key, sign in signs.items() if key in node and node[key] < HUGE]
    names = {"integer": "int", "number": "number", "string": "text", "boolean": "true or false", "object": "map"}
    return f"{names.get(node['type'], node['type'])} {', '.join(bounds)}".strip()


@pytest.mark.parametrize("heading", SECTION_OF_HEADING)
def test_every_key_is_documented_with_its_type_and_default(heading: str) -> None:
    model: type[BaseModel] = SECTION_OF_HEADING[heading]
    (table,) = tables(section(KEYS, heading))
    rows = {key.strip("`"): cells for key, *cells in table[1:]}
    assert list(rows) == list(model.model_fields)
    whole = model.model_json_schema()
    for key, (type_cell, default_cell, _) in rows.items():
        assert type_cell == type_text(whole["properties"][key], whole.get("$defs", {})), key
        default = model.model_fields[key].get_default(call_default_factory=True)
        if default is PydanticUndefined:
            assert "`" not in default_cell, key
        else:
            wanted = {} if isinstance(default, BaseModel) else to_jsonable_python(default)
            assert parse_yaml(default_cell.strip("`"), key) == wanted, key


def test_there_is_a_table_for_every_section() -> None:
    headings = re.findall(r"^## (.*)$", read(KEYS), re.MULTILINE)
    others = ["By example", "What it will cost", "Presets"]
    assert [heading for heading in headings if heading not in others] == list(SECTION_OF_HEADING)


def test_every_preset_is_documented_with_its_size() -> None:
    (table,) = tables(section(KEYS, "Presets"))
    assert [name.strip("`") for name, *_ in table[1:]] == list(MODELS)
    for name, _, parameters in table[1:]:
        found = re.fullmatch(r"([\d.]+) M at (?:a vocabulary of )?([\d,]+)(?: and ([\d,]+) positions)?", parameters)
        assert found, parameters
        max_len = {"max_len": int(found[3].replace(",", ""))} if found[3] else {}
        config = schema.ModelConfig(**{**MODELS[name.strip("`")], **max_len})
        vocab_size = int(found[2].replace(",", ""))
        with torch.device("meta"):
            model = ARCHITECTURES[config.architecture](config, vocab_size, vocab_size)
        assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 1) == float(found[1]), name


@pytest.mark.parametrize("page", PAGES)
def test_keys_named_in_passing_exist(page: str) -> None:
    keys = re.compile(rf"({'|'.join(SECTIONS)})\.(\w+)\b(?!/)")
    found = [match.groups() for span in spans(read(page)) if (match := keys.match(span))]
    unknown = [f"{name}.{key}" for name, key in found if key not in SECTIONS[name].model_fields and key != "n_heads"]
    assert not unknown


def test_what_a_resumed_run_may_change_is_listed() -> None:
    listed = {span for span in spans(section(TRAINING, "Resuming")) if span.split(".")[0] in [*SECTIONS, "name"]}
    assert listed == {key + "*" * key.endswith(".") for key in FREE_TO_CHANGE}


# The paper


@cache
def definitions(path: Path) -> dict[str, str]:
    """The source of every function, class and constant of a file, of methods as `Class.method`, spaces made equal."""
    text = path.read_text("utf-8")
    nodes: dict[str, ast.AST] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes[node.name] = node
        if isinstance(node, ast.ClassDef):
            nodes |= {f"{node.name}.{part.name}": part for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            nodes |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return {name: " ".join((ast.get_source_segment(text, node) or "").split()) for name, node in nodes.items()}


def mapped(page: str) -> list[tuple[Path, list[str], str]]:
    """File, names in it, and what is said of them, of every row of a table with files and names."""
    found = []
    for table in tables(read(page)):
        if table[0][1:3] == ["file", "names"]:
            for _, link, names, *rest in table[1:]:
                path = re.fullmatch(r"\[(.+)\]\((.+)\)", link)
                assert path, link
                file = (REPOSITORY / page).parent / path[2]
                assert file.resolve() == REPOSITORY / "transformer_mt" / path[1]
                found.append((file, spans(names), " ".join(rest)))
    return found


@pytest.mark.parametrize(("page", "least"), [(README, 8), (EQUATIONS, 60)])
def test_what_equations_map_to_exists(page: str, least: int) -> None:
    rows = mapped(page)
    assert len(rows) > least
    assert [(path.name, name) for path, names, _ in rows for name in names if name not in definitions(path)] == []


def test_every_quoted_line_stands_in_the_function_named_first() -> None:
    for path, names, said in mapped(EQUATIONS):
        line = re.match(r"`([^`]+)`: .+\.$", said)
        assert line, said
        assert line[1] in definitions(path)[names[0]], f"{path.name}: {names[0]}"


def test_every_public_name_of_the_model_is_on_the_page_of_equations() -> None:
    there = {part for span in spans(read(EQUATIONS)) for part in span.split(".")}
    files = sorted((REPOSITORY / "transformer_mt/model").rglob("*.py"))
    names = {name for file in files for name in definitions(file) if "." not in name and not name.startswith("_")}
    assert len(names) > 40
    assert sorted(names - there) == []


def test_python_on_the_page_of_equations_prints_what_it_shows() -> None:
    names: dict[str, Any] = {}
    blocks_and_output = snippets(read(EQUATIONS))
    assert len(blocks_and_output) > 2
    for code, shown in blocks_and_output:
        assert printed_by(code, names) == shown


# Promises


def test_every_promise_names_tests_that_exist() -> None:
    rows = [row for table in tables(read(PROMISES)) if table[0] == ["promise", "test"] for row in table[1:]]
    named = [(promise, name) for promise, tests in rows for name in spans(tests) or [""]]
    assert len(named) > 30
    missing = []
    for promise, name in named:
        file, _, function = name.partition("::")
        if not (REPOSITORY / file).is_file() or function not in definitions(REPOSITORY / file):
            missing.append((promise, name))
    assert missing == []


# A run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/quickstart: a toy run, averaged and evaluated. Its quickstart.yaml is found before ours."""
    folder = tmp_path_factory.mktemp("docs")
    write_toy_corpus(folder / "data")
    (folder / "quickstart.yaml").write_text(yaml.safe_dump({**toy_mapping(folder / "data"), "name": "quickstart"}))
    for arguments in (
        ("train", "--config", "quickstart.yaml", "training.max_steps=15"),
        ("train", "--config", "quickstart.yaml", "--resume", "auto"),  # to 20, which is a change
        ("average", "runs/quickstart", "--last", "2"),
        ("evaluate", "--run", "runs/quickstart", "--split", "validation"),
        ("align", "--train", "--run", "runs/quickstart"),
        ("calibrate", "--run", "runs/quickstart"),
        ("explain", "one two.", "--run", "runs/quickstart"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_calibration, "FEWEST_SENTENCES", 10)  # the toy's validation split is small
            result = call_tmt(folder, *arguments)
        assert result.returncode == 0, result.stderr
    return folder


def test_every_file_of_a_run_is_documented(folder: Path) -> None:
    (table,) = tables(read("runs/README.md"))
    wildcards = {
        "step_N": r"step_\d+",
        "NAME_CHECKPOINT": r"\w+",
        "CHECKPOINT": r"\w+",
        "PRECISION_KEY": r"\w+",
        "beamK": r"beam\d+",
        r"\*": ".*",
    }
    patterns = [re.escape(row[0].strip("`")) for row in table[1:]]
    for name, pattern in wildcards.items():
        patterns = [text.replace(name, pattern) for text in patterns]
    run = folder / "runs/quickstart"
    files = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()]
    assert [file for file in files if not any(re.fullmatch(pattern, file) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, file) for file in files)] == []


def test_every_metric_is_documented(folder: Path) -> None:
    train, validation, _ = tables(section(TRAINING, "What is recorded"))
    lines = [json.loads(line) for line in (folder / "runs/quickstart/metrics.jsonl").read_text("utf-8").splitlines()]
    for kind, table in (("train", train), ("validation", validation)):
        keys = {key for line in lines if line["kind"] == kind for key in line}
        assert keys - {"kind", "step"} == {row[0].strip("`") for row in table[1:]}


def test_every_tag_of_tensorboard_is_documented(folder: Path) -> None:
    found = tensorboard_events(folder / "runs/quickstart").Tags()
    tags = {tag.removesuffix("/text_summary") for kind in ("scalars", "images", "tensors") for tag in found[kind]}
    *_, table = tables(section(TRAINING, "What is recorded"))
    assert tags == {tag for row in table[1:] for tag in spans(row[0])}


def python_blocks() -> list[tuple[str, str]]:
    """Every block of Python that is to run beside a run; two pages are run as a whole, by tests of their own."""
    return [(page, code) for page in PAGES if page not in (EQUATIONS, BY_HAND) for code in blocks(page, "python")]


@pytest.mark.parametrize(("page", "code"), python_blocks())
def test_python_in_the_pages_runs(page: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run_calibration, "FEWEST_SENTENCES", 10)  # the toy's validation split is small
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert all(hasattr(importlib.import_module(str(node.module)), name.name) for name in node.names)
    exec(compile(code, page, "exec"), {})
