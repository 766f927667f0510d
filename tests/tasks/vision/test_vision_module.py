"""The module: loss, metrics, tables, predictions, and fine-tuning."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics.classification import MulticlassCalibrationError

from zoo.attention import sites
from zoo.checkpoints import finetune
from zoo.config import compose
from zoo.config.instantiate import build
from zoo.errors import ConfigError
from zoo.tasks.calibration import CalibrationError
from zoo.tasks.vision.batch import ImageBatch
from zoo.tasks.vision.datasets import planted_glimpse
from zoo.tasks.vision.task import ImageClassifier
from zoo.training.preflight import try_batch
from zoo.training.setup import make_command_trainer

NAMES = ("apple", "bread", "cup", "dish", "egg", "fork", "glass")
SMALL = ("model.net.dim=16", "model.net.layers=2", "model.net.heads=2", "model.net.hidden=16", "model.net.patch=8")


def classifier(*overrides: str, classes: int = len(NAMES), side: int = 16) -> ImageClassifier:
    composed = compose.compose(list(overrides))
    torch.manual_seed(0)
    module = build(composed["model"], "model", channels=3, height=side, width=side, classes=classes)
    assert isinstance(module, ImageClassifier)
    return module


def vit(*overrides: str, classes: int = len(NAMES), side: int = 16) -> ImageClassifier:
    module = classifier("model=vit", *SMALL, *overrides, classes=classes, side=side)
    torch.nn.init.normal_(module.net.head.weight)
    return module


def pictures(count: int = 12, side: int = 16, names: tuple[str, ...] = NAMES) -> ImageBatch:
    generator = torch.Generator().manual_seed(1)
    return ImageBatch(
        pixels=torch.randn(count, 3, side, side, generator=generator),
        labels=torch.arange(count) % len(names),
        ids=tuple(f"picture {number}" for number in range(count)),
        splits=("test",) * count,
        label_names=names,
    )


def loss_of(module: ImageClassifier, batch: ImageBatch) -> Tensor:
    module.log = lambda *_, **__: None  # type: ignore[method-assign]
    return module.training_step(batch, 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_with_smoothed_labels(smoothing: float) -> None:
    module, batch = vit(f"model.smoothing={smoothing}"), pictures()
    logits = module(batch).double().tolist()
    expected = 0.0
    for row, label in zip(logits, batch.labels.tolist(), strict=True):
        total = math.log(sum(math.exp(each) for each in row))
        for number, each in enumerate(row):
            target = smoothing / len(NAMES) + (1 - smoothing) * (number == label)
            expected -= target * (each - total) / len(logits)
    assert loss_of(module, batch).item() == pytest.approx(expected, rel=1e-5)


MIXING = [("model.mixup=0.8",), ("model.cutmix=1.0",), ("model.mixup=0.8", "model.cutmix=1.0")]


@pytest.mark.parametrize("options", MIXING)
def test_training_pictures_are_mixed_and_others_are_not(options: tuple[str, ...]) -> None:
    plain, mixed, batch = vit(), vit(*options), pictures()
    torch.manual_seed(3)
    mixed_loss = loss_of(mixed, batch)
    assert mixed_loss.isfinite()
    assert not torch.isclose(mixed_loss, loss_of(plain, batch))
    torch.testing.assert_close(mixed(batch), plain(batch))
    one = dataclasses.replace(pictures(1), gold=None)
    torch.testing.assert_close(loss_of(mixed, one), loss_of(plain, one))  # a single picture cannot be mixed


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("model.smoothing=1.0", "model.smoothing=1.0"),
        ("model.mixup=-1.0", "model.mixup=-1.0"),
        ("model.explain=spatial_gate", "model.explain=spatial_gate"),
        ("model.size=huge", "huge"),
    ],
)
def test_options_that_do_not_fit_are_refused(option: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        vit(option)


def test_a_net_of_no_known_interface_is_refused() -> None:
    with pytest.raises(ConfigError, match="Flat is no ImageClassifierNet"):
        ImageClassifier(net=Flat, optimization=None, channels=1, height=4, width=4, classes=2)  # type: ignore[arg-type]


class Flat(torch.nn.Linear):
    def __init__(self, *, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__(channels * height * width, classes)


def test_metrics_are_those_of_the_predictions() -> None:
    module = vit()
    batch = pictures(60)
    parts = [_part(batch, slice(0, 25)), _part(batch, slice(25, 60))]
    (found,) = make_command_trainer().test(module, dataloaders=_Batches(parts), verbose=False)
    with torch.no_grad():
        logits = module(batch)
    ranked = logits.argsort(dim=-1, descending=True)
    assert found["test/accuracy"] == pytest.approx((ranked[:, 0] == batch.labels).float().mean().item())
    in_five = (ranked[:, :5] == batch.labels[:, None]).any(1).float().mean().item()
    assert found["test/top5_accuracy"] == pytest.approx(in_five)
    expected = torch.nn.functional.cross_entropy(logits, batch.labels).item()
    assert found["test/loss"] == pytest.approx(expected, rel=1e-5)
    rows = module.tables()["confusion"]
    assert [row["label / prediction"] for row in rows] == list(NAMES)
    for number, row in enumerate(rows):
        of_label = ranked[batch.labels == number, 0]
        assert [row[name] for name in NAMES] == torch.bincount(of_label, minlength=len(NAMES)).tolist()


def test_tables_are_of_the_last_evaluation_alone() -> None:
    module, batch = vit(), pictures(14)
    for count in (14, 7):
        make_command_trainer().test(module, dataloaders=_Batches([_part(batch, slice(0, count))]), verbose=False)
        rows = module.tables()["confusion"]
        assert sum(row[name] for row in rows for name in NAMES) == count


def test_calibration_error_is_torchmetrics() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(400, 5, generator=generator), torch.randint(0, 5, (400,), generator=generator)
    own, peer = CalibrationError(), MulticlassCalibrationError(5, n_bins=15, norm="l1")
    for part in (slice(0, 150), slice(150, 400)):
        own.update(logits[part], labels[part])
        peer.update(logits[part].softmax(-1), labels[part])
    torch.testing.assert_close(own.compute(), peer.compute())
    certain = CalibrationError()
    certain.update(torch.tensor([[100.0, 0.0], [0.0, 100.0]]), torch.tensor([0, 0]))
    assert certain.compute().item() == pytest.approx(0.5)


def test_predictions_have_a_label_its_probability_and_the_next_best() -> None:
    module, batch = vit(), pictures(3)
    unknown = dataclasses.replace(batch, labels=torch.tensor([0, -1, 2]))
    module.eval()
    columns = module.predict_step(unknown)
    assert columns["id"] == list(batch.ids)
    assert columns["label"] == ["apple", "", "cup"]
    assert columns["loss"][1] is None
    best = module(batch).softmax(-1).max(-1)
    assert columns["prediction"] == [NAMES[number] for number in best.indices.tolist()]
    assert columns["probability"] == pytest.approx(best.values.tolist())
    first, *others = columns["top5"][0].split("; ")
    assert first.rpartition(" ")[0] == columns["prediction"][0]
    assert len(others) == 4


def test_pointing_counts_pictures_whose_heaviest_place_is_gold() -> None:
    data = planted_glimpse(train=8, val=8, test=40, max_epochs=1, batch_size=8, mean=[0.5] * 3, std=[0.3] * 3)
    module = vit(side=data.sizes()["height"], classes=10)
    (found,) = make_command_trainer().test(module, dataloaders=data.loader("test"), verbose=False)
    right = 0
    for batch in data.loader("test"):
        for heat, gold in zip(module.heat(batch), batch.gold, strict=True):
            share = torch.nn.functional.adaptive_avg_pool2d(gold[None].float(), tuple(heat.shape))[0]
            right += bool(share.flatten()[heat.flatten().argmax()] >= share.max() / 2)
    assert found["truth/pointing_accuracy"] == pytest.approx(right / 40)


def test_a_model_without_weights_is_trained_and_says_that_it_has_no_map(cli: Any) -> None:
    options = ["data.train=16", "data.val=8", "data.test=8", "data.max_epochs=1", "trainer=cpu", "run_dir=run"]
    done = cli("train", "model=vit", "attention=linformer", "attention.site.slots=4", *SMALL, *options)
    assert done.code == 0, done.err
    assert "truth/" not in done.out
    refused = cli("maps", "run/checkpoints/best.ckpt", "--out", "maps")
    assert (refused.code, "this model has no heat map" in refused.err) == (2, True)
    linformer = ["attention=linformer", "attention.site.slots=4"]
    refused = cli("train", "model=vit", *linformer, "model.explain=rollout", *SMALL, *options[:-1])
    assert (refused.code, "model.explain=rollout" in refused.err) == (2, True)


def test_a_batch_passes_the_preflight() -> None:
    composed = compose.compose(["model=vit", *SMALL, "trainer=cpu"])
    data = planted_glimpse(train=8, val=8, test=8, max_epochs=1, batch_size=8, mean=[0.5] * 3, std=[0.3] * 3)
    report: list[str] = []
    assert try_batch(composed, vit(side=data.sizes()["height"], classes=10), data, report) == []
    assert "outputs    do not depend on other pictures of the batch" in report


def test_the_preflight_says_what_gates_cost() -> None:
    batch = pictures(2)
    lines = classifier("model=se_resnet", "model.net.depth=8").costs(batch)
    assert [line.partition(":")[0] for line in lines] == [f"layer{n}.0.gate" for n in (1, 2, 3)] + ["all gates"]
    assert vit().costs(batch) == []


def test_other_classes_are_matched_by_name() -> None:
    old, new = vit(), vit(classes=3)
    names = ["cup", "knife", "apple"]
    content = {"state_dict": old.state_dict(), "zoo": {"data": {"labels": list(NAMES)}}}
    report = finetune.load_matching_weights(new, {"labels": names}, content, "old.ckpt")
    (matched,) = report.vocabularies
    assert (matched.kept, matched.new) == (("cup", "apple"), ("knife",))
    torch.testing.assert_close(new.net.head.weight[[0, 2]], old.net.head.weight[[2, 0]])
    batch = pictures()
    torch.testing.assert_close(new(batch)[:, [0, 2]], old(batch)[:, [2, 0]])


def test_classes_without_a_name_in_common_get_a_new_head() -> None:
    old, new = vit(), vit(classes=2)
    torch.nn.init.normal_(old.net.tokens.class_token)
    content = {"state_dict": old.state_dict(), "zoo": {"data": {"labels": list(NAMES)}}}
    report = finetune.load_matching_weights(new, {"labels": ["knife", "spoon"]}, content, "old.ckpt")
    assert report.vocabularies[0].kept == ()
    assert report.initialized == ("net.head.weight", "net.head.bias")
    torch.testing.assert_close(new.net.features(pictures().pixels), old.net.features(pictures().pixels))


@pytest.mark.parametrize("position", ["Learned", "Learned2D"])
def test_positions_are_interpolated_for_another_resolution(position: str) -> None:
    option = f"model.net.position._target_=zoo.attention.{position}"
    old, new = vit(option), vit(option, side=32)
    content = {"state_dict": old.state_dict(), "zoo": {"data": {"labels": list(NAMES)}}}
    finetune.load_matching_weights(new, {"labels": list(NAMES)}, content, "old.ckpt")
    batch = pictures(side=32)
    torch.testing.assert_close(new(batch), old(batch))  # which interpolates as it goes
    same = vit(option)
    finetune.load_matching_weights(same, {"labels": list(NAMES)}, content, "old.ckpt")
    torch.testing.assert_close(same(pictures()), old(pictures()))


def test_rates_fall_from_the_head_to_the_input() -> None:
    module = vit("optimization.layer_decay=0.5", "optimizer=adamw", "optimization.no_weight_decay=['*.bias']")
    module.optimization.scheduler = None
    optimizer = module.configure_optimizers()
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    decays = {names[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    base = rates["net.head.weight"]
    stages = module.layer_groups()
    for number, stage in enumerate(reversed(stages)):
        for name in [each for each in rates if each.startswith(f"{stage}.")]:
            assert rates[name] == pytest.approx(base * 0.5**number)
    assert len(rates) == len(names)
    assert all((decay == 0) == name.endswith(".bias") for name, decay in decays.items())


def test_a_frozen_batch_norm_keeps_its_statistics() -> None:
    module = classifier("model=se_resnet", "model.net.depth=8", "optimization.freeze=[net.bn1,net.layer1]")
    module.optimization.apply_freezing(module, epoch=0)
    module.train()
    frozen, thawed = module.net.bn1, module.net.layer2[0].bn1
    before = frozen.running_mean.clone(), thawed.running_mean.clone()
    loss_of(module, pictures()).backward()
    assert torch.equal(frozen.running_mean, before[0])
    assert not torch.equal(thawed.running_mean, before[1])


def test_gold_of_a_batch_belongs_to_the_class_token_of_the_last_layer() -> None:
    data = planted_glimpse(train=8, val=8, test=8, max_epochs=1, batch_size=8, mean=[0.5] * 3, std=[0.3] * 3)
    batch = next(iter(data.loader("test")))
    module = vit(side=data.sizes()["height"], classes=10)
    ((site, gold),) = module.gold_attention(batch).items()
    assert site == list(sites(module))[-1]
    assert gold[:, 0].any(1).all()
    assert not gold[:, 1:].any()


class _Batches(list[Any]):
    """Batches as a loader gives them."""


def _part(batch: ImageBatch, rows: slice) -> ImageBatch:
    return dataclasses.replace(
        batch,
        pixels=batch.pixels[rows],
        labels=batch.labels[rows],
        ids=batch.ids[rows],
        splits=batch.splits[rows],
    )
