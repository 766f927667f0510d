"""The tokens of a model that starts from a checkpoint, in every domain with texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo.config import compose
from zoo.config.instantiate import build

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
CASES = {
    "documents": ("model=han", "data=text_table", f"data.table={SAMPLES}/documents/reviews.csv"),
    "translation": ("model=nmt", "data=text_pairs", f"data.table={SAMPLES}/translation/phrases.tsv"),
    "speech": ("model=las", "data=audio_manifest", f"data.table={SAMPLES}/speech/recordings.csv"),
    "captioning": ("model=captioner", "data=captions", f"data.table={SAMPLES}/captioning/captions.csv"),
    "answering": ("model=esim", "data=hypotheses", f"data.table={SAMPLES}/answering/hypotheses.jsonl"),
}


def state_of(case: tuple[str, ...], origin: dict[str, Any] | None, policy: str, cache: Path) -> dict[str, Any]:
    """The state of data that training from a checkpoint reads."""
    overrides = [*case, f"data.vocabulary={policy}", f"paths.cache={cache}", "data.min_count=1"]
    data = build(compose.compose(overrides)["data"], "data")
    if origin is not None:
        data.inherit_from_checkpoint(origin)
    return data.state()


@pytest.mark.parametrize("domain", CASES)
@pytest.mark.filterwarnings("ignore")
def test_tokens_of_the_checkpoint_and_of_the_new_texts(domain: str, tmp_path: Path) -> None:
    own = state_of(CASES[domain], None, "unite", tmp_path)
    vocabularies = [name for name in own if name.endswith("tokens")]
    assert vocabularies
    origin = {**own, **{name: [*own[name][:-1], "seen-before"] for name in vocabularies}}
    states = {policy: state_of(CASES[domain], origin, policy, tmp_path) for policy in ("unite", "keep", "new")}
    for name in vocabularies:
        assert states["unite"][name] == [*origin[name], own[name][-1]]
        assert states["keep"][name] == origin[name]
        assert states["new"][name] == own[name]


@pytest.mark.parametrize("domain", CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_continued_run_has_the_tokens_of_its_checkpoint(domain: str, tmp_path: Path) -> None:
    """Its data is read anew, with the state of the run itself as the origin."""
    own = state_of(CASES[domain], None, "unite", tmp_path)
    origin = {**own, **{name: [*own[name][:-1], "seen-before"] for name in own if name.endswith("tokens")}}
    for policy in ("unite", "keep", "new"):
        state = state_of(CASES[domain], origin, policy, tmp_path)
        assert state_of(CASES[domain], state, policy, tmp_path) == state
