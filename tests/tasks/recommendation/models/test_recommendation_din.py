"""DIN and its task, compared with loops written from the formulas, and invariances."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

from zoo.attention import (
    ActivationUnit,
    AttentionFactory,
    Constant,
    Degree,
    Dice,
    LinearAttention,
    ScaledDot,
    Softmax,
    Unnormalized,
)
from zoo.attention.factories import MechanismFactory
from zoo.maps.metrics import pointing_accuracy
from zoo.optim import OptimizerConfig
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.ctr import ClickMetrics, CTRTask, sample_candidates
from zoo.tasks.recommendation.maps.attributions import group_by_user
from zoo.tasks.recommendation.models.din import DIN, Candidates, make_candidates
from zoo.tasks.recommendation.ranking.protocol import Protocol

ITEMS, DIM = 12, 6


def attention(activation=nn.PReLU, hidden=(7, 5)):
    return AttentionFactory(partial(ActivationUnit, hidden=hidden, activation=activation), Unnormalized)


def din(activation=nn.PReLU, attend=None, **options):
    torch.manual_seed(0)
    options = {"dim": DIM, "hidden": (8, 4), "activation": activation, **options}
    net = DIN(items=ITEMS, attend=attention(activation) if attend is None else attend, **options).double()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.normal_(), module.running_var.uniform_(0.5, 2)
            if isinstance(module, Dice):
                module.alpha.uniform_(-1, 1)
        net.bias.weight.normal_()
    return net.eval()


def histories(lists, held_out=None, split="train", items=ITEMS):
    """Returns a packed batch of these users; in training each item is the target of the one before it."""
    packed = [item for one in lists for item in one]
    targets = [item for one in lists for item in [*one[1:], -1]]
    seen = [sorted(set(one)) for one in lists]
    return SequenceBatch(
        items=torch.tensor(packed),
        lengths=torch.tensor([len(one) for one in lists]),
        targets=torch.tensor(targets),
        held_out=torch.tensor([-1] * len(lists) if held_out is None else held_out),
        seen=torch.tensor([item for one in seen for item in one]),
        seen_lengths=torch.tensor([len(one) for one in seen]),
        ids=tuple(f"u{number}" for number in range(len(lists))),
        splits=(split,) * len(lists),
        catalogue=Catalogue([f"i{n}" for n in range(items)], None, torch.ones(items, dtype=torch.int64)),
    )


class Loop:
    """The formulas, computed for one pair and one candidate at a time."""

    def __init__(self, net, training):
        self.net, self.training = net, training

    def activated(self, module, rows):
        """Applies PReLU or Dice (section 5.2) to a list of rows."""
        if isinstance(module, nn.PReLU):
            slope = module.weight
            return [torch.where(row > 0, row, slope * row) for row in rows]
        mean, variance = self.statistics(module.norm, rows)
        out = []
        for row in rows:
            p = 1 / (1 + torch.exp(-(row - mean) / torch.sqrt(variance + module.norm.eps)))
            out.append(p * row + (1 - p) * module.alpha * row)
        return out

    def statistics(self, norm, rows):
        if not self.training:
            return norm.running_mean, norm.running_var
        mean = sum(rows) / len(rows)
        return mean, sum((row - mean) ** 2 for row in rows) / len(rows)

    def logits(self, examples):
        """Computes the logits of pairs (candidate, history)."""
        net, unit = self.net, self.net.attend.score
        table = net.items.weight
        pairs = [(v, e) for v, history in examples for e in history]
        rows = [torch.cat([table[v], table[e], table[v] - table[e], table[v] * table[e]]) for v, e in pairs]
        rows = [unit.first.weight @ row + unit.first.bias for row in rows]
        for module in unit.rest:
            if isinstance(module, nn.Linear):
                rows = [module.weight @ row + module.bias for row in rows]
            else:
                rows = self.activated(module, rows)
        weights = iter(rows)
        inputs = []
        for v, history in examples:
            u = sum(next(weights) * table[e] for e in history)
            inputs.append(torch.cat([u, table[v], u * table[v]]))
        first, *rest = net.mlp
        mean, variance = self.statistics(first, inputs)
        rows = [(x - mean) / torch.sqrt(variance + first.eps) * first.weight + first.bias for x in inputs]
        for module in rest:
            if isinstance(module, nn.Linear):
                rows = [module.weight @ row + module.bias for row in rows]
            elif not isinstance(module, nn.Dropout):
                rows = self.activated(module, rows)
        return torch.stack([row[0] + net.bias.weight[v, 0] for row, (v, _) in zip(rows, examples, strict=True)])


LISTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5]]
CANDIDATES = Candidates(  # two after a part of the first user's history, one of the second's, two of the third's
    items=torch.tensor([7, 0, 3, 8, 2, 2]),
    starts=torch.tensor([0, 0, 0, 5, 6, 6]),
    stops=torch.tensor([3, 3, 5, 6, 7, 9]),
)
EXAMPLES = [(7, [3, 1, 4]), (0, [3, 1, 4]), (3, LISTS[0]), (8, [9]), (2, [2]), (2, LISTS[2])]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("activation", [nn.PReLU, Dice])
def test_logits_and_gradients_are_those_of_the_formulas(activation, training):
    """In training the statistics are computed over the 3 + 3 + 5 + 1 + 1 + 3 real pairs only."""
    net = din(activation).train(training)
    expected = Loop(net, training).logits(EXAMPLES)
    found = net(histories(LISTS), CANDIDATES)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    toward = torch.randn(len(EXAMPLES), dtype=torch.float64)
    parameters = [p for p in net.parameters() if p.requires_grad]
    wanted = torch.autograd.grad(expected @ toward, parameters)
    for gradient, other in zip(torch.autograd.grad(found @ toward, parameters), wanted, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("pairs", [4, 40, 2**13])
def test_scores_of_blocks_are_those_of_each_candidate(pairs, monkeypatch):
    monkeypatch.setattr("zoo.tasks.recommendation.models.din._PAIRS", pairs)
    monkeypatch.setattr("zoo.tasks.recommendation.models.din._TABLE", 2 * pairs)
    net, lists = din(Dice), [*LISTS, [8, 7, 0]]
    everything = torch.arange(ITEMS)
    found = net.scores(histories(lists), everything[None])
    for user, history in enumerate(lists):
        expected = Loop(net, False).logits([(v, history) for v in range(ITEMS)])
        torch.testing.assert_close(found[user], expected, rtol=1e-10, atol=1e-10)
    own = torch.tensor([[3, 1], [0, 0], [11, 4], [5, 9]])
    torch.testing.assert_close(net.scores(histories(lists), own), found.gather(1, own))


def test_a_batch_is_its_users_one_by_one():
    net = din(Dice)
    items = torch.tensor([[0, 5], [3, 3], [7, 1]])
    together = net(histories(LISTS), make_candidates(histories(LISTS), items)).view(3, 2)
    alone = [net(histories([one]), make_candidates(histories([one]), items[[n]])) for n, one in enumerate(LISTS)]
    torch.testing.assert_close(together, torch.stack(alone))
    torch.testing.assert_close(together, net.scores(histories(LISTS), items))


def test_what_comes_after_a_history_is_not_seen():
    """A logit depends neither on the candidate's own position or a later one, nor on another user."""
    net = din(Dice)
    found = net(histories(LISTS), CANDIDATES)
    changed = net(histories([[3, 1, 4, 0, 0], [9], [2, 11, 11]]), CANDIDATES)
    assert torch.equal((found == changed), torch.tensor([True, True, False, True, True, False]))


@pytest.mark.parametrize("normalizer", [Softmax, Unnormalized])
def test_other_scores_of_the_core_stand_in(normalizer):
    net = din(attend=AttentionFactory(ScaledDot, normalizer))
    found = net.scores(histories([[3, 1]]), torch.tensor([[7]]))
    v, history = net.items.weight[7], net.items.weight[[3, 1]]
    scores = history @ v / math.sqrt(DIM)
    u = (scores.softmax(0) if normalizer is Softmax else scores) @ history
    inputs = torch.cat([u, v, u * v])[None]
    torch.testing.assert_close(found, net.mlp(inputs) + net.bias.weight[7])
    torch.testing.assert_close(
        net(histories([[3, 1]]), make_candidates(histories([[3, 1]]), torch.tensor([[7]]))), found[0]
    )
    shared = net.scores(histories([[3, 1], [5]]), torch.tensor([[2, 7]]))  # what all users are asked about
    torch.testing.assert_close(shared[:1, 1:], found)


def test_a_mechanism_without_pairs_is_refused():
    with pytest.raises(ValueError, match="DIN attends over EdgeSupport"):
        DIN(items=3, attend=MechanismFactory(LinearAttention), dim=4)


def test_weights_by_degree_are_of_graphs():
    with pytest.raises(ValueError, match=r"edges of one graph, .*; DIN attends from one sequence to another"):
        DIN(items=3, attend=AttentionFactory(Constant, Degree), dim=4)


@pytest.mark.parametrize("wrong", [{"items": 0}, {"dim": 0}, {"hidden": ()}, {"hidden": (4, 0)}])
def test_sizes_below_one_are_refused(wrong):
    with pytest.raises(ValueError, match=r"a whole number of at least 1|one number or more"):
        DIN(**{"items": 3, "attend": attention(), "dim": 4, **wrong})


# The task.


def ranker(items=ITEMS, protocol=None, net=None, **options):
    torch.manual_seed(0)
    made = CTRTask(
        net=partial(DIN, attend=attention(Dice), dim=DIM, hidden=(8, 4)) if net is None else net,
        optimization=OptimizerConfig(optimizer=partial(torch.optim.Adam, lr=0.01)),
        items=items,
        length=8,
        protocol=Protocol(ks=(1, 10)) if protocol is None else protocol,
        **options,
    )
    made.logged = {}
    made.log = lambda name, value, **_: made.logged.update({name: value})
    made.log_dict = lambda found, **_: made.logged.update(found)
    return made


USERS = [[3, 1, 4, 1, 5], [9, 0], [2, 6, 5, 8], [7, 7]]


@pytest.mark.parametrize("targets", [None, 1, 2, 9])
def test_what_is_learned_of_a_batch(targets):
    batch = histories(USERS)
    candidates = sample_candidates(batch, targets=targets, negatives=3)
    items, starts, stops = (x.view(-1, 4).tolist() for x in (candidates.items, candidates.starts, candidates.stops))
    learned = []
    for chosen, begins, ends in zip(items, starts, stops, strict=True):
        assert len(set(begins)) == len(set(ends)) == 1
        user = batch.starts.tolist().index(begins[0])
        place = ends[0] - begins[0]
        assert chosen[0] == USERS[user][place]  # the item right behind its history
        assert not set(chosen[1:]) & set(USERS[user])
        learned.append((user, place))
    assert len(set(learned)) == len(learned)
    most = math.inf if targets is None else targets
    counts = [sum(user == one for user, _ in learned) for one in range(4)]
    assert counts == [min(len(one) - 1, most) for one in USERS]


def test_choices_are_drawn_evenly():
    torch.manual_seed(0)
    batch = histories([[0, 1, 2, 3, 4], [5, 6]])
    found = torch.cat([sample_candidates(batch, targets=2, negatives=1).stops[::2] for _ in range(400)])
    counts = torch.bincount(found, minlength=8)
    assert counts[[0, 5, 7]].tolist() == [0, 0, 0]  # nothing is learned of a first item, or behind a last one
    assert counts[6] == 400
    assert (counts[1:5] - 200).abs().max() < 40  # 4 standard deviations


def test_the_loss_is_the_mean_over_all_candidates():
    module, batch = ranker(targets=2, negatives=3), histories(USERS)
    torch.manual_seed(7)
    loss = module.training_step(batch, 0)
    torch.manual_seed(7)
    candidates = sample_candidates(batch, targets=2, negatives=3)
    logits = module.net(batch, candidates).tolist()
    total = 0.0
    for place, logit in enumerate(logits):
        p = 1 / (1 + math.exp(-logit))
        total -= math.log(p if place % 4 == 0 else 1 - p)
    assert len(logits) == 4 * (2 + 1 + 2 + 1)
    assert loss.item() == pytest.approx(total / len(logits), rel=1e-5)


def test_a_batch_that_teaches_nothing_has_no_gradient():
    module, batch = ranker(), histories([[3], [5]])
    module.training_step(batch, 0).backward()
    assert not module.net.items.weight.grad.any()


@pytest.mark.parametrize("scale", [0.3, 5.0])
def test_click_metrics_against_all_pairs(scale):
    """The cases have ties, and a batch whose logits are all between 0 and 1."""
    torch.manual_seed(0)
    metrics, positives, negatives, users = ClickMetrics(), [], [], []
    for _ in range(3):
        chosen, others = (torch.rand(7) * 9).round() / 9 * scale, (torch.rand(7, 4) * 9).round() / 9 * scale
        real = torch.rand(7, 4) > 0.2
        real[0] = False
        metrics.update(chosen, others, real)
        positives += chosen.tolist()
        negatives += others[real].tolist()
        users += [(own.item(), row[kept].tolist()) for own, row, kept in zip(chosen, others, real, strict=True)]

    def wins(own, rest):
        return sum(1.0 if own > other else 0.5 if own == other else 0.0 for other in rest)

    found = {name: metric.compute().item() for name, metric in metrics.to_dict().items()}
    auc = sum(wins(own, negatives) for own in positives) / len(positives) / len(negatives)
    assert found["auc"] == pytest.approx(auc, abs=1e-6)
    own = [wins(one, rest) / len(rest) for one, rest in users if rest]
    assert found["gauc"] == pytest.approx(sum(own) / len(own), abs=1e-6)
    losses = [math.log(1 + math.exp(-x)) for x in positives] + [math.log(1 + math.exp(x)) for x in negatives]
    assert found["log_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_validation_judges_held_out_items_and_ranks_nothing(monkeypatch):
    module = ranker().eval()
    batch = histories(USERS, held_out=[8, 2, -1, 0], split="val")
    monkeypatch.setattr(Protocol, "rank", None)
    with torch.no_grad():
        module.validation_step(batch, 0)
        module.on_validation_epoch_end()
    assert set(module.logged) == {"val/auc", "val/gauc", "val/log_loss"}
    assert module.primary in module.logged
    assert module.val_clicks.gauc.count == 3  # one has nothing held out
    first = module.logged["val/gauc"].compute()
    module.val_clicks.gauc.reset()
    with torch.no_grad():
        module.validation_step(batch, 1)
    assert module.logged["val/gauc"].compute() == first  # the negatives are those of every epoch


@pytest.mark.parametrize("negatives", [None, 3])
def test_ranks_are_those_of_the_scores(negatives):
    protocol = Protocol(ks=(1, 10), negatives=negatives)
    module = ranker(protocol=protocol).eval()
    batch = histories(USERS, held_out=[8, 2, 0, 11], split="test")
    with torch.no_grad():
        module.test_step(batch, 0)
        scores = module.net.scores(batch, torch.arange(ITEMS)[None])
    ranks = []
    for user, held_out in enumerate([8, 2, 0, 11]):
        rivals = [i for i in range(ITEMS) if i not in USERS[user]] if negatives is None else None
        rivals = protocol.candidates(batch)[user].tolist() if rivals is None else rivals
        ranks.append(sum(bool(scores[user, i] >= scores[user, held_out]) for i in rivals if i != held_out))
    found = module.test_ranks.compute()
    assert found["hr@1"].item() == pytest.approx(sum(rank == 0 for rank in ranks) / 4)
    assert ("coverage@10" in found) == (negatives is None)  # lists are of all items: a sampled protocol makes none
    assert {"test/auc", "test/gauc", "test/log_loss"} <= set(module.logged)


def test_probabilities_are_of_logits():
    module, batch = ranker().eval(), histories(USERS)
    with torch.no_grad():
        found = module.predict_step(batch)
        logits = module.score_own(batch, torch.tensor([[int(name[1:])] for name in found["prediction"]]))
    torch.testing.assert_close(torch.tensor(found["probability"]), logits[:, 0].sigmoid())


def test_a_map_is_of_the_held_out_item_or_of_the_best():
    module = ranker().double().eval()
    batch = histories(USERS, held_out=[8, -1, 0, -1], split="test")
    found = module.explain(batch)
    assert found.weights.shape == (4, 1, 1, 5)
    with torch.no_grad():
        scores = module.net.scores(batch, torch.arange(ITEMS)[None])
    table, unit = module.net.items.weight, module.net.attend.score
    for user, held_out in enumerate([8, None, 0, None]):
        unseen = [i for i in range(ITEMS) if i not in USERS[user]]
        item = max(unseen, key=lambda i: scores[user, i].item()) if held_out is None else held_out
        v = table[item]
        activations = []
        for e in table[USERS[user]]:
            hidden = unit.first(torch.cat([v, e, v - e, v * e])[None])
            activations.append(unit.rest(hidden).abs().item())
        expected = [a / sum(activations) for a in activations] + [0.0] * (5 - len(activations))
        assert found.weights[user, 0, 0].tolist() == pytest.approx(expected)


def test_a_trained_net_finds_the_partner_in_the_history():
    """Item i + 6 follows a history that holds item i, which must get the weight of this candidate."""
    module = ranker(items=12, negatives=2, net=partial(DIN, attend=attention(Dice, (16,)), dim=16, hidden=(32,)))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.03)

    def session():
        past = torch.randperm(6)[:3].tolist()
        return past, past[int(torch.randint(3, ()))] + 6

    for _ in range(100):
        made = [session() for _ in range(32)]
        batch = histories([[*past, chosen] for past, chosen in made], items=12)
        batch.targets[torch.arange(len(batch.targets)) % 4 != 2] = -1
        optimizer.zero_grad()
        module.training_step(batch, 0).backward()
        optimizer.step()
    module.eval()
    made = [session() for _ in range(200)]
    batch = histories([past for past, _ in made], [chosen for _, chosen in made], "test", 12)
    gold = (batch.items + 6 == batch.held_out[batch.users]).double()
    belongs = group_by_user(gold, batch, "gold").weights > 0
    assert pointing_accuracy(module.explain(batch).weights, belongs) > 0.7  # by chance 1/3
    with torch.no_grad():
        module.validation_step(batch, 0)
    assert module.logged["val/auc"].compute() > 0.75  # two others of the history have partners too


def test_others_of_the_batch_do_not_matter():
    module, batch = ranker().eval(), histories(USERS)
    (invariance,) = module.invariants(batch)
    with torch.no_grad():
        before, after = module(batch), module(invariance.batch)
    torch.testing.assert_close(invariance.kept(before), invariance.kept(after))
    assert not torch.equal(before, after)


@pytest.mark.parametrize("wrong", [{"targets": 0}, {"negatives": 0}])
def test_counts_below_one_are_refused(wrong):
    with pytest.raises(ValueError, match="is to be a whole number of at least 1"):
        ranker(**wrong)
