"""Every command that stands in the documentation is one that this version takes."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.cli import main as command_line
from zoo.cli.arguments import make_parser
from zoo.config import compose, instantiate
from zoo.tasks.command_options import CommandOption
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.translation import planted_translation
from zoo.training import baselines

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "data" / "README.md") if path.exists()]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


def commands(page: Path) -> list[list[str]]:
    """The words of each command in ```bash blocks, in indented blocks, and in the first lines of configurations."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"^```(?:bash|sh|console)\n(.*?)^```", text, re.M | re.S)
        for line in block.split("\n")
    ]
    lines += re.findall(r"^    ((?:python train\.py|zoo) .*)$", text, re.M)
    joined = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        words = shlex.split(line, comments=True)
        start = 0
        for end in [*(i for i, word in enumerate(words) if word in ("&&", ";", "|", "||", "&")), len(words)]:
            part = words[start:end]
            while part and (re.fullmatch(r"\w+=.*", part[0]) or part[0] in ("$", "time", "for", "do", "done")):
                part = part[1:]  # variables of the environment, prompts
            if part:
                found.append(part)
            start = end + 1
    return found


def all_commands(*first: str) -> list[Any]:
    return [
        pytest.param(words[len(first) :], id=f"{page.name}: {' '.join(words)}")
        for page in PAGES
        for words in commands(page)
        if words[: len(first)] == list(first)
    ]


TRAINING = all_commands("python", "train.py") + all_commands("zoo", "train") + all_commands("zoo", "check")
EXPERIMENTS = [
    pytest.param(shlex.split(found[1]), id=f"{name}.yaml")
    for name, sentence in compose.describe_choices("experiment").items()
    if (found := re.search(r"python train\.py ([^\s.,;)]+(?:=[^\s,;)]+)?)", sentence))
]


@pytest.fixture(scope="module")
def own_options() -> list[CommandOption]:
    """What any model or its data adds to the commands; a model has one of each name."""
    found: dict[str, CommandOption] = {}
    for model in compose.describe_choices("model"):
        composed = compose.compose([f"model={model}"])
        parts = [instantiate.resolve_class(composed[part]["_target_"], part) for part in ("model", "data")]
        options = [*parts[0].predict_options, *parts[1].input_options, *filter(None, [parts[1].written])]
        found |= {option.name: option for option in options}
    return list(found.values())


def test_there_are_some() -> None:
    assert len(TRAINING) >= 3
    assert EXPERIMENTS


@pytest.mark.parametrize("arguments", TRAINING + EXPERIMENTS)
def test_a_training_command_names_options_that_exist(arguments: list[str]) -> None:
    flags, overrides = command_line.split_flags(arguments)
    assert set(flags) <= {"-m", "--multirun", "--help", "-h", "--cfg", "job", "--resolve"}
    named = {override.partition("=")[0] for override in overrides}
    if named & {"init", "resume"} and not named & {"model", "experiment"}:
        overrides = ["model=gat", *overrides]  # the checkpoint's, which is not here
    if not overrides:
        assert flags
        return
    if {"-m", "--multirun"} & set(flags):
        compose.check_overrides(overrides)
    else:  # which checks them too
        assert compose.compose(overrides)["names"]["model"]


@pytest.mark.parametrize(
    "arguments", [each for each in all_commands("zoo") if each.values[0][0] not in ("train", "check", "baseline")]
)
def test_a_zoo_command_is_parsed(arguments: list[str], own_options: list[CommandOption]) -> None:
    options = make_parser(own_options).parse_args(arguments)
    if getattr(options, "group", None):
        assert compose.describe_choices(options.group)


@pytest.mark.parametrize("arguments", all_commands("zoo", "baseline"))
def test_a_baseline_is_composed_with_a_model_that_fits(arguments: list[str]) -> None:
    assert baselines.compose_with_model(arguments)["names"]["model"]


@pytest.mark.parametrize("arguments", all_commands("python"))
def test_a_script_is_there(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        assert arguments[1] in ("pip", "pytest", "venv")
    else:
        assert (ROOT / arguments[0]).is_file()


@pytest.mark.parametrize("arguments", all_commands("pip", "install"))
def test_extras_exist(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in arguments:
        for extra in re.findall(r"\[(.*)\]", word):
            assert set(extra.split(",")) <= set(project["optional-dependencies"])


DOMAIN_PAGES = [page for page in PAGES if "\n## In Python\n" in page.read_text(encoding="utf-8")]


def test_domains_have_python() -> None:
    assert len(DOMAIN_PAGES) == 8


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOMAIN_PAGES], ids=lambda page: page.name)
def test_python_runs_as_it_stands(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line is a value; a comment that begins with torch.Size is its value."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        *lines, last = block.splitlines()
        names: dict[str, Any] = {}
        exec("\n".join(lines), names)
        value = eval(last, names)
        assert value is not None
        if said := re.search(r"# (torch\.Size\(.*?\))", last):
            assert str(value) == said[1]
    assert not any(tmp_path.iterdir())


def test_python_of_the_guide_to_attention_runs_in_its_order() -> None:
    """The page continues its code from block to block, with a trained model that the reader has."""
    data = planted_translation(pairs=40, held_out=8, max_epochs=1, batch_size=2)
    batch = next(iter(data.loader("test")))
    module = zoo.create("nmt", **data.sizes()).eval()
    names: dict[str, Any] = {"model": module, "decoder": module.net, "batch": batch, "source": batch.source}
    names |= {"begin": begins(batch.source), "end": END}
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/attention.md").read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(block, names)
        assert names["maps"]


def test_python_of_contributing_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_all_python_of_the_documentation_runs() -> None:
    """A page with Python is one of those that the tests above run."""
    tested = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "attention.md", *DOMAIN_PAGES}
    assert {page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")} == tested


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```bash\nzoo list   # all\n```\n", [["zoo", "list"]]),
        (
            "```bash\nZOO_DATA=x python train.py model=gat \\\n  seed=1\n```\n",
            [["python", "train.py", "model=gat", "seed=1"]],
        ),
        (
            "```bash\npip install -e . && python train.py 'a=[b, c]'\n```",
            [["pip", "install", "-e", "."], ["python", "train.py", "a=[b, c]"]],
        ),
        ("```python\nimport zoo\n```\n\n    python train.py model=gat\n", [["python", "train.py", "model=gat"]]),
    ],
)
def test_how_commands_are_found(tmp_path: Path, text: str, found: list[list[str]]) -> None:
    (tmp_path / "page.md").write_text(text)
    assert commands(tmp_path / "page.md") == found
