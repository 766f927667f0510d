"""Makes the README's table: one row per domain, with figures from runs that the domain's page shows in full."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from measured import read_runs, spread, with_runs


def domains() -> Iterator[str]:
    """Makes the rows: planted data with and without attention, published data, and speed compared with a peer."""
    columns = ["domain", "`model=`", "planted data: test (uniform attention)", "its map", "published data, test"]
    yield f"| {' | '.join([*columns, 'training step, peer / ours'])} |"
    yield "|---|---|---|---|---|---|"
    rows = _graphs(), _vision(), _recommendation(), _documents(), _translation(), _speech(), _captioning(), _answering()
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
    yield "Ratios of speed hold for the processor of their run: it stands beside the full tables."


def _graphs() -> list[str]:
    (speed,) = read_runs("benchmark-graph")
    ratio = speed["training_ms"]["pyg"] / speed["training_ms"]["ours, sparse features"]
    return [
        "[graphs](docs/graphs.md)",
        "`gat`, `gatv2`",
        f"accuracy {_planted('gat-planted_graph', 'test/accuracy')}",
        f"edge AUC {_mean('gat-planted_graph', 'truth/edge_auc'):.3f}",
        f"Cora: {spread([100 * run['test/accuracy'] for run in read_runs('gat_cora')], 1)} % (paper 83.0 ± 0.7)",
        f"{ratio:.1f} (PyG)",
    ]


def _vision() -> list[str]:
    (speed,) = read_runs("benchmark-vision")
    times = speed["workloads"]["vit_small_pictures"]["training_ms"]
    fastest = min((name for name in times if name != "ours"), key=lambda name: times[name])
    return [
        "[vision](docs/vision.md)",
        "`vit`, `cct`, `swin`, `se_resnet`, `eca_resnet`, `cbam_resnet`, `resnet`, `torchvision_cnn`",
        f"accuracy {_planted('vit-planted_glimpse', 'test/accuracy')}",
        f"pointing {_mean('vit-planted_glimpse', 'truth/pointing_accuracy'):.3f}",
        f"Fashion-MNIST: SE-ResNet-20 {100 * _mean('se_resnet20_fashion_mnist', 'test/accuracy'):.1f} %",
        f"{times[fastest] / times['ours']:.2f} (ViT, {fastest})",
    ]


def _recommendation() -> list[str]:
    (speed,) = read_runs("benchmark-recommendation")
    ratio = next(iter(speed["padded"].values()))["ratio"]["padded"]
    return [
        "[recommendation](docs/recommendation.md)",
        "`sasrec`, `din`",
        f"HR@1 {_planted('sasrec-planted_sessions', 'test/hr@1')}",
        f"pointing {_mean('sasrec-planted_sessions', 'truth/pointing_accuracy'):.3f}",
        f"MovieLens-1M: HR@10 among 100 {_mean('sasrec_ml1m', 'test/hr@10'):.4f} (paper .8245)",
        f"{ratio:.1f} (padded batches)",
    ]


def _documents() -> list[str]:
    (speed,) = read_runs("benchmark-documents")
    fastest = min(speed["ratio"].values())
    return [
        "[documents](docs/documents.md)",
        "`han`, `han_transformer`, `flat_attention`, `long_document`",
        f"accuracy {_planted('han-planted_reviews', 'test/accuracy')}",
        f"sentence pointing {_mean('han-planted_reviews', 'truth/sentence_pointing'):.3f}",
        f"IMDB: {spread([100 * run['test/accuracy'] for run in read_runs('han_imdb')], 1)} %",
        f"{fastest:.1f} (HAN, flattened and packed)",
    ]


def _translation() -> list[str]:
    (speed,) = read_runs("benchmark-translation")
    control = {"nmt-planted_translation-uniform": "test/bleu"}
    without = "".join(f" ({_mean(each, metric):.1f})" for each, metric in with_runs(control))
    directions = {"nmt_multi30k": "en-de", "nmt_multi30k-de-en-small": "de-en"}
    found = [f"{name} {_mean(each, 'test/bleu'):.1f}" for each, name in with_runs(directions)]
    return [
        "[translation](docs/translation.md)",
        "`nmt`, `transformer_nmt`",
        f"BLEU {_mean('nmt-planted_translation', 'test/bleu'):.1f}{without}",
        f"pointing {_mean('nmt-planted_translation', 'truth/pointing'):.3f}",
        f"Multi30k: BLEU {', '.join(found)}" if found else "not measured",
        f"{speed['groups']['bahdanau']['ratio']['JoeyNMT']:.1f} (recurrent, JoeyNMT)",
    ]


def _speech() -> list[str]:
    found = [run for each, _ in with_runs({"benchmark-speech": ""}) for run in read_runs(each)]
    return [
        "[speech](docs/speech.md)",
        "`las`",
        _if_measured("character error", "las-planted_tones", "test/cer"),
        _if_measured("within 2 frames", "las-planted_tones", "truth/within_2_frames"),
        _if_measured("strings of FSDD: word error", "las_fsdd_strings", "test/wer"),
        f"{found[0]['ratio']['SpeechBrain']:.1f} (SpeechBrain)" if found else "not measured",
    ]


def _captioning() -> list[str]:
    speeds = [
        run["training"]["several lengths"]["ratio"]
        for each, _ in with_runs({"benchmark-captioning": ""})
        for run in read_runs(each)
    ]
    return [
        "[captioning](docs/captioning.md)",
        "`captioner`, `captioner_transformer`, `captioner_backbone`",
        _if_measured("exact match", "captioner-planted_scenes", "test/exact_match"),
        _if_measured("pointing", "captioner-planted_scenes", "truth/pointing"),
        _if_measured("Flickr8k: BLEU-4", "captioner_flickr8k", "test/bleu", digits=1),
        f"{speeds[0]['tutorial']:.1f} (the form of tutorials)" if speeds else "not measured",
    ]


def _answering() -> list[str]:
    metrics = {
        "coattention-planted_questions": "accuracy",
        "bidaf-planted_passages": "f1",
        "esim-planted_inference": "accuracy",
    }
    found = [(_model_of(each), each, metric) for each, metric in metrics.items() if dict(with_runs({each: ""}))]
    sick = {"esim_sick": "SICK: accuracy", "esim_sick-vectors": "with word vectors"}
    (speed,) = read_runs("benchmark-answering")
    return [
        "[question answering](docs/answering.md)",
        "`coattention`, `bidaf`, `esim`",
        ", ".join(_if_measured(f"`{model}` {metric}", each, f"test/{metric}") for model, each, metric in found)
        or "not measured",
        "pointing " + ", ".join(_if_measured(f"`{model}`", each, "truth/pointing") for model, each, _ in found),
        ", ".join(_if_measured(name, each, "test/accuracy") for each, name in with_runs(sick)) or "not measured",
        f"{min(speed['ratio'].values()):.1f} (BiDAF, a tensor of pairs)",
    ]


def _model_of(experiment: str) -> str:
    return experiment.split("-")[0]


def _if_measured(name: str, experiment: str, metric: str, digits: int = 3) -> str:
    """Shows the mean of a metric, and that of the control without attention beside it."""
    found = [f"{_mean(each, metric):.{digits}f}" for each, _ in with_runs({experiment: ""})]
    without = [f"({_mean(each, metric):.{digits}f})" for each, _ in with_runs({f"{experiment}-uniform": ""})]
    return " ".join([name, *found, *without]) if found else "not measured"


def _planted(experiment: str, metric: str) -> str:
    return f"{_mean(experiment, metric):.3f} ({_mean(f'{experiment}-uniform', metric):.3f})"


def _mean(experiment: str, metric: str) -> float:
    return statistics.mean(run[metric] for run in read_runs(experiment))
