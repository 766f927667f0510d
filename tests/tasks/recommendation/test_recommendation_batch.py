"""The batch and the catalogue."""

import torch

from zoo.tasks.recommendation.batch import UNKNOWN, Catalogue, SequenceBatch


def batch(**changes: object) -> SequenceBatch:
    content: dict[str, object] = {
        "items": torch.tensor([4, 2, 0, 1, 1, 3]),
        "lengths": torch.tensor([3, 1, 2]),
        "targets": torch.tensor([2, 0, -1, -1, 3, -1]),
        "held_out": torch.tensor([1, 0, -1]),
        "seen": torch.tensor([0, 2, 4, 1, 1, 3]),
        "seen_lengths": torch.tensor([3, 1, 2]),
        "ids": ("x", "y", "z"),
        "splits": ("val", "val", "val"),
        "catalogue": Catalogue(list("abcde"), None, torch.ones(5, dtype=torch.int64)),
    }
    return SequenceBatch(**(content | changes))  # type: ignore[arg-type]


def test_where_users_begin_and_end() -> None:
    found = batch()
    assert len(found) == 3
    assert found.starts.tolist() == [0, 3, 4]
    assert found.ends.tolist() == [3, 4, 6]
    assert found.last.tolist() == [2, 3, 5]
    assert found.users.tolist() == [0, 0, 0, 1, 2, 2]
    assert found.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert found.seen_users.tolist() == [0, 0, 0, 1, 2, 2]


def test_what_a_batch_knows_serves_training_after_inference_mode() -> None:
    found, rows = batch(), torch.ones(6, requires_grad=True)
    with torch.inference_mode():
        assert found.users.tolist() == [0, 0, 0, 1, 2, 2]
    torch.zeros(3).index_add(0, found.users, rows).sum().backward()
    assert rows.grad is not None


def test_all_tensors_move() -> None:
    found = batch(times=torch.arange(6), gold=torch.full((6,), -1)).to("meta")
    tensors = [each for each in vars(found).values() if isinstance(each, torch.Tensor)]
    assert len(tensors) == 8
    assert all(each.device.type == "meta" for each in tensors)
    assert found.ids == ("x", "y", "z")
    assert batch().to("meta").times is None


def test_the_catalogue_shows_titles_where_they_are_known() -> None:
    counts = torch.zeros(3, dtype=torch.int64)
    named = Catalogue(["1", "2", UNKNOWN], ["Heat (1995)", "", ""], counts)
    assert [named.title_of(item) for item in range(3)] == ["Heat (1995)", "2", UNKNOWN]
    assert (len(named), named.unknown) == (3, 2)
    plain = Catalogue(["1", "2", "3"], None, counts)
    assert (plain.title_of(1), plain.unknown) == ("2", None)
