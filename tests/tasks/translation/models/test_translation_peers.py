"""The networks of JoeyNMT and OpenNMT-py with the same weights: the same logits, gradients and texts.

`benchmarks/peers.sh` installs them; without them these tests are skipped.
"""

from __future__ import annotations

import importlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Additive, AttentionFactory, General, ScaledDot, Softmax
from zoo.decoding import BeamSearch, Constraints
from zoo.nn import InputFeeding, Luong
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.tasks.translation import RecurrentEncoder, RecurrentTranslator, TransformerTranslator

WORDS = 23
SOURCE = Source.pad([[5, 6, 7, 8, 9, 22], [9, 8, 7, 6], [4, 5], [11]])  # JoeyNMT wants the longest first
TARGET = Targets.pad([[4, 5, 6, 20], [7, 21], [8, 9, 4, 5, 6, 7, 19], []])
LONGEST = 9


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[4] / "benchmarks")
    return importlib.import_module("nmt_peers")


def recurrent(peers: Any, score: Any, decoder: Any, compared: int | None) -> Any:
    """JoeyNMT's decoder is additive attention with input feeding, OpenNMT-py's is Luong's."""
    net = RecurrentTranslator(
        source_words=WORDS,
        target_words=WORDS,
        attend=AttentionFactory(score=score, normalizer=Softmax),
        encoder=partial(RecurrentEncoder, dim=6, hidden=4),
        decoder=partial(decoder, dim=6, hidden=8, compared=compared, cell="gru"),
    )
    return prepared(peers, net)


def transformer(peers: Any) -> Any:
    attend = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    net = TransformerTranslator(
        source_words=WORDS,
        target_words=WORDS,
        attend=attend,
        encoder_attend=attend,
        decoder_attend=attend,
        dim=8,
        layers=2,
        heads=2,
        hidden=12,
        shared="none",
        dropout=0.0,
    )
    for norm in (part for part in net.modules() if isinstance(part, nn.LayerNorm)):
        norm.eps = peers.EPSILON
    return prepared(peers, net)


def prepared(peers: Any, net: nn.Module) -> Any:
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return peers.comparable(net).double().eval()


def check_logits_and_gradients(ours: Any, theirs: Any) -> None:
    """Of all real steps; the gradients of the tables of words, whose paths lead through everything else."""
    is_real, found = TARGET.is_real, {}
    for name, net in {"ours": ours, "theirs": theirs}.items():
        logits = (net.whole(SOURCE, TARGET.read) if net is ours else net(SOURCE, TARGET))[is_real]
        loss = F.cross_entropy(logits, TARGET.tokens[is_real])
        tables = [each for each in net.parameters() if each.dim() == 2 and len(each) == WORDS]
        found[name] = logits, torch.autograd.grad(loss, tables)
    (logits, gradients), (wanted, others) = found.values()
    assert logits.std() > 0.3
    torch.testing.assert_close(logits, wanted, rtol=0.0, atol=1e-10)
    assert len(gradients) == len(others) == 3  # of the source, of the target, of the output layer
    padding = torch.tensor([PAD])  # whose vectors peers do not read
    for one in gradients:
        same = [other for other in others if other.shape == one.shape]
        assert min((one - other).index_fill(0, padding, 0.0).abs().max() for other in same) < 1e-10


def in_double(theirs: Any, ours: Any) -> Any:
    """JoeyNMT computes its table of positions in single precision."""
    for part in theirs.double().eval().modules():
        if isinstance(getattr(part, "pe", None), Tensor):
            part.pe.copy_(ours.position(torch.zeros_like(part.pe)))
    return theirs


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_joeynmt_computes_our_logits_and_writes_our_texts(kind: str, peers: Any) -> None:
    pytest.importorskip("joeynmt")
    ours = transformer(peers) if kind == "transformer" else recurrent(peers, Additive, InputFeeding, 8)
    theirs = in_double(peers.Joey(ours), ours)
    check_logits_and_gradients(ours, theirs)
    for width in (1, 4):
        search = BeamSearch(width=width, constraints=Constraints(never=(PAD, BEGIN, END)))
        found = search(ours, SOURCE, torch.full((len(SOURCE),), BEGIN), end=END, longest=LONGEST)
        assert [list(best.tokens) for [best] in found] == theirs.texts(SOURCE, LONGEST, width)


@pytest.mark.parametrize("attention", ["general", "mlp"])
def test_opennmt_computes_our_logits(attention: str, peers: Any) -> None:
    if find_spec("onmt") is None:  # its import fails without libraries in whose place `nmt_peers` puts empty ones
        pytest.skip("OpenNMT-py is not installed")
    score, compared = (General, None) if attention == "general" else (Additive, 8)
    ours = recurrent(peers, score, Luong, compared)
    check_logits_and_gradients(ours, in_double(peers.OpenNMT(ours, attention), ours))
