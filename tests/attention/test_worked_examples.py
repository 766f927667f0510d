"""The worked examples of reference documents 000 to 003, with the slips of their own arithmetic named.

Those of document 004 are in `test_worked_numbers`.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from zoo.attention import Attention, DenseSupport, Dot, General, ScaledDot, Softmax, record


def attention(score: Dot, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and context of one sequence with one head."""
    attend = Attention(score, Softmax())
    with record(attend) as maps:
        context, _ = attend(query[None, None], key[None, None], value[None, None], DenseSupport())
    return maps[""].weights[0, 0], context[0, 0]


def scores_of(score: Dot, query: Tensor, key: Tensor) -> Tensor:
    return score(query[None, None], score.prepare(key[None, None]), DenseSupport())[0, 0]


def jacobian(weights: Tensor) -> Tensor:
    """d weights / d scores of a softmax."""
    return torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)


def matrix(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def assert_rounded(actual: Tensor, expected: list[list[float]], decimals: int = 4) -> None:
    torch.testing.assert_close(actual, matrix(expected), rtol=0.0, atol=0.5000001 * 10**-decimals)


def test_saturated_scaled_dot_product() -> None:
    """Document 000, question 3."""
    query = matrix(
        [
            [3.75, 9.51, 7.32, 5.99, 1.56, 1.56, 0.58, 8.66],
            [6.01, 7.08, 0.21, 9.70, 8.32, 2.12, 1.82, 1.83],
            [3.04, 5.25, 4.32, 2.91, 6.12, 1.39, 2.92, 3.66],
            [4.56, 7.85, 2.00, 5.14, 5.92, 0.46, 6.08, 1.71],
            [0.65, 9.49, 9.66, 8.08, 3.05, 0.98, 6.84, 4.40],
        ]
    )
    key = matrix(
        [
            [1.22, 4.95, 0.34, 9.09, 2.59, 6.63, 3.12, 5.20],
            [5.47, 1.85, 9.70, 7.75, 9.39, 8.95, 5.98, 9.22],
            [0.88, 1.96, 0.45, 3.25, 3.89, 2.71, 8.29, 3.57],
            [2.81, 5.43, 1.41, 8.02, 0.75, 9.87, 7.72, 1.99],
            [0.06, 8.15, 7.07, 7.29, 7.71, 0.74, 3.58, 1.16],
        ]
    )
    value = matrix(
        [
            [8.63, 6.23, 3.31, 0.64, 3.11, 3.25, 7.30, 6.38],
            [8.87, 4.72, 1.20, 7.13, 7.61, 5.61, 7.71, 4.94],
            [5.23, 4.28, 0.25, 1.08, 0.31, 6.36, 3.14, 5.09],
            [9.08, 2.49, 4.10, 7.56, 2.29, 0.77, 2.90, 1.61],
            [9.30, 8.08, 6.33, 8.71, 8.04, 1.87, 8.93, 5.39],
        ]
    )
    products = scores_of(Dot(), query, key)
    assert_rounded(
        products,
        [
            [169.8122, 267.4565, 90.7215, 158.8160, 198.4550],
            [181.4214, 248.0397, 110.5160, 178.2791, 204.6147],
            [110.8259, 211.9119, 89.2134, 114.6144, 157.6392],
            [138.0675, 210.5311, 117.7871, 158.8026, 185.5953],
            [183.1178, 296.3157, 136.7113, 205.3003, 258.4138],
        ],
    )
    # Slip: each of the 25 products stated beside its sum is wrong, (3,1) alone too large, (5,5) by most.
    stated = matrix(
        [
            [161.72, 251.88, 88.76, 150.96, 173.56],
            [175.03, 245.96, 102.71, 175.05, 198.26],
            [112.37, 187.05, 81.20, 112.68, 142.84],
            [135.95, 199.68, 109.68, 143.96, 163.84],
            [175.68, 258.42, 124.77, 193.72, 215.96],
        ]
    )
    slips = stated - products
    assert (slips.abs() > 1.5).all()
    assert (slips > 0).nonzero().tolist() == [[2, 0]]
    assert slips.argmin() == 24
    assert math.isclose(slips.min().item(), -42.4538, abs_tol=1e-4)
    weights, output = attention(ScaledDot(), query, key, value)
    assert_rounded(weights, [[0, 1, 0, 0, 0]] * 3 + [[0, 0.9999, 0, 0, 0.0001], [0, 1, 0, 0, 0]])
    row = [8.8700, 4.7200, 1.2000, 7.1300, 7.6100, 5.6100, 7.7100, 4.9400]
    fourth = [8.8701, 4.7205, 1.2008, 7.1302, 7.6101, 5.6094, 7.7102, 4.9401]
    assert_rounded(output, [row, row, row, fourth, row])
    # Why the result survives the slips: the second key leads every row by at least 8.8 after scaling.
    leads = scores_of(ScaledDot(), query, key).topk(2).values
    assert_rounded((leads[:, :1] - leads[:, 1:]).T, [[24.3957, 15.3531, 19.1883, 8.8161, 13.4003]])
    assert_rounded(
        scores_of(ScaledDot(), query, key),
        [
            [60.0377, 94.5602, 32.0749, 56.1499, 70.1644],
            [64.1422, 87.6953, 39.0733, 63.0312, 72.3422],
            [39.1829, 74.9222, 31.5417, 40.5223, 55.7339],
            [48.8142, 74.4340, 41.6440, 56.1452, 65.6178],
            [64.7419, 104.7634, 48.3347, 72.5846, 91.3631],
        ],
    )
    # Slips: six entries of the collected matrix are not those beside the sums, nor the right ones; of the scaled
    # matrix, which follows the sums, (3,4) 39.95 and (5,2) 91.46 do not.
    for row, column, collected in (
        (1, 5, 173.50),
        (2, 3, 162.71),
        (2, 5, 148.26),
        (3, 4, 112.60),
        (5, 2, 258.12),
        (5, 5, 215.90),
    ):
        assert abs(collected - stated[row - 1, column - 1]) > 0.05
        assert abs(collected - products[row - 1, column - 1]) > 1.5
    assert_rounded(stated[2:3, 3:4] / math.sqrt(8), [[39.84]], decimals=2)
    assert_rounded(stated[4:5, 1:2] / math.sqrt(8), [[91.37]], decimals=2)
    # Slip: in the sum of (5,3) the seventh factor of the key is 7.72, which is the fourth key's.
    assert (key[2, 6].item(), key[3, 6].item()) == (8.29, 7.72)
    largest = jacobian(weights).abs().amax((-1, -2))
    expected = torch.tensor([2.5415e-11, 2.1499e-07, 4.6412e-09, 1.4829e-04, 1.5146e-06], dtype=torch.float64)
    torch.testing.assert_close(largest, expected, rtol=1e-4, atol=0.0)
    second = weights.topk(2).values[:, 1]
    expected = torch.tensor([2.5414e-11, 2.1491e-07, 4.6412e-09, 1.4830e-04, 1.5146e-06], dtype=torch.float64)
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=0.0)
    torch.testing.assert_close((stated / math.sqrt(8)).softmax(-1), weights, rtol=0.0, atol=5e-4)


STATES = [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5], [0.3, 0.4, 0.5, 0.6]]
DECODER = [[0.4, 0.5, 0.6, 0.7]]


def test_dot_score() -> None:
    """Document 001, first example."""
    states, decoder = matrix(STATES), matrix(DECODER)
    assert_rounded(scores_of(Dot(), decoder, states), [[0.6, 0.82, 1.04]])
    weights, context = attention(Dot(), decoder, states, states)
    assert_rounded(weights, [[0.2632, 0.3280, 0.4087]])
    assert_rounded(context, [[0.2145, 0.3145, 0.4145, 0.5145]])
    # Slip: the second weight is stated as 0.32, and so the stated weights sum to 0.99.
    assert round(weights[0, 1].item(), 2) == 0.33
    assert round(0.26 + 0.32 + 0.41, 2) == 0.99


def test_general_score_is_a_dot_on_projected_keys() -> None:
    """Document 001, second example: e_i = s W h_i."""
    states, decoder = matrix(STATES), matrix(DECODER)
    general = matrix([[0.1 * (i + j + 1) for j in range(4)] for i in range(4)])
    projected = states @ general.T
    assert_rounded(projected[1:], [[0.4000, 0.5400, 0.6800, 0.8200], [0.5000, 0.6800, 0.8600, 1.0400]])
    assert_rounded(scores_of(Dot(), decoder, projected), [[1.0400, 1.4120, 1.7840]])
    weights, context = attention(Dot(), decoder, projected, states)
    assert_rounded(weights, [[0.2195, 0.3185, 0.4620]])
    assert_rounded(context, [[0.2242, 0.3242, 0.4242, 0.5242]])
    score = General(dim=4, heads=1).double()
    with torch.no_grad():
        score.weight.copy_(general)
    key = score.prepare(states[None, None]).tensor
    torch.testing.assert_close(key[0, 0], projected)
    assert_rounded(key[0, 0, :1], [[0.3000, 0.4000, 0.5000, 0.6000]])
    assert_rounded(scores_of(score, decoder, states), [[1.0400, 1.4120, 1.7840]])
    for one, other in zip(attention(score, decoder, states, states), (weights, context), strict=True):
        torch.testing.assert_close(one, other)
    assert_rounded(torch.cat([context, decoder], -1), [[0.2242, 0.3242, 0.4242, 0.5242, 0.4, 0.5, 0.6, 0.7]])
    # Slip: W h_2 and W h_3 go on in the steps of W h_1, so that the scores are those of the dot plus 0.44 each,
    # 1.04, 1.26 and 1.48, and the weights those of the dot.
    continued = matrix([[0.3, 0.4, 0.5, 0.6], [0.4, 0.5, 0.6, 0.7], [0.5, 0.6, 0.7, 0.8]])
    assert_rounded(scores_of(Dot(), decoder, continued), [[1.04, 1.26, 1.48]])
    torch.testing.assert_close(
        attention(Dot(), decoder, continued, states)[0], attention(Dot(), decoder, states, states)[0]
    )
    # From them follow the stated weights and context.
    for actual, stated, error in (
        (weights, [[0.26, 0.33, 0.41]], 0.052),
        (context, [[0.215, 0.315, 0.415, 0.515]], 0.0093),
    ):
        assert (actual - matrix(stated)).abs().max().item() == pytest.approx(error, abs=5e-4)


def test_scaled_self_attention() -> None:
    """Document 001, Q1."""
    x = matrix([[1.0, 0.3, 0.4], [1.5, 0.5, 1.0], [0.3, 1.0, 0.8]])
    query = x @ matrix([[0.0, 0.7, 1.0], [1.0, 2.0, 0.3], [0.5, 1.0, 1.0]])
    key = x @ matrix([[1.8, 1.0, 1.0], [1.0, 0.5, 0.7], [0.2, 1.5, 0.9]])
    value = x @ matrix([[1.0, 1.3, 0.4], [2.0, 1.0, 2.0], [1.0, 1.5, 0.2]])
    assert_rounded(query, [[0.5, 1.7, 1.49], [1.0, 3.05, 2.65], [1.4, 3.01, 1.4]])
    assert_rounded(key, [[2.18, 1.75, 1.57], [3.4, 3.25, 2.75], [1.7, 2.0, 1.72]])
    assert_rounded(value, [[2.0, 2.2, 1.08], [3.5, 3.95, 1.8], [3.1, 2.59, 2.28]])
    assert_rounded(
        scores_of(Dot(), query, key),
        [[6.4043, 11.3225, 6.8128], [11.6780, 20.6000, 12.3580], [10.5175, 18.3925, 10.8080]],
    )
    scaled = scores_of(ScaledDot(), query, key)
    assert_rounded(scaled, [[3.6975, 6.5370, 3.9334], [6.7423, 11.8934, 7.1349], [6.0723, 10.6189, 6.2400]])
    weights, output = attention(ScaledDot(), query, key, value)
    assert_rounded(weights, [[0.0516, 0.8830, 0.0653], [0.0057, 0.9858, 0.0085], [0.0104, 0.9774, 0.0123]])
    assert_rounded(output, [[3.3964, 3.7708, 1.7942], [3.4881, 3.9285, 1.7999], [3.4796, 3.9152, 1.7984]])
    # Slips: scaled scores (1,1) 3.69 and (2,3) 7.14, weight (2,1) 0, output (2,2) 4.0.
    for actual, stated, decimals in (
        (scaled[0, 0], 3.69, 2),
        (scaled[1, 2], 7.14, 2),
        (weights[1, 0], 0.0, 2),
        (output[1, 1], 4.0, 1),
    ):
        assert round(actual.item(), decimals) != stated


def test_scaled_dot_product_of_one_query() -> None:
    """Document 002, question 3; no slips."""
    query, key = matrix([[1, 0, 2, 1]]), matrix([[1, 1, 0, 1], [0, 1, 1, 2]])
    assert scores_of(Dot(), query, key).tolist() == [[2.0, 4.0]]
    weights, output = attention(ScaledDot(), query, key, matrix([[2, 3, 1, 0], [4, 2, 1, 1]]))
    assert_rounded(weights, [[0.2689, 0.7311]])
    assert_rounded(output, [[3.462, 2.269, 1.000, 0.731]], decimals=3)


def test_self_attention_without_scaling() -> None:
    """Document 003, Q3."""
    x = matrix([[1, -1, 0, 2], [0, -1, 2, 1], [-2, 2, -1, 0]])
    query = x @ matrix([[0.0, 1.0], [1.0, 0.0], [-0.5, 0.0], [1.0, 1.0]])
    key = x @ matrix([[1.0, -0.5], [0.0, 1.0], [0.5, -0.5], [1.0, 0.5]])
    value = x @ matrix([[1.0, 0.5], [-0.5, 0.0], [-1.0, 2.0], [0.5, -1.0]])
    assert_rounded(query, [[1.0, 3.0], [-1.0, 1.0], [2.5, -2.0]])
    assert_rounded(key, [[3.0, -0.5], [2.0, -1.5], [-2.5, 3.5]])
    assert_rounded(value, [[2.5, -1.5], [-1.0, 3.0], [-2.0, -3.0]])
    assert_rounded(scores_of(Dot(), query, key), [[1.5, -2.5, 8.0], [-3.5, -3.5, 6.0], [8.5, 8.0, -13.25]])
    weights, output = attention(Dot(), query, key, value)
    assert_rounded(weights, [[0.0015, 0.0000, 0.9985], [0.0001, 0.0001, 0.9999], [0.6225, 0.3775, 0.0000]])
    assert_rounded(output, [[-1.9932, -2.9976], [-1.9996, -2.9994], [1.1786, 0.1989]])
    weights_scaled, output_scaled = attention(ScaledDot(), query, key, value)
    assert_rounded(weights_scaled, [[0.0100, 0.0006, 0.9894], [0.0012, 0.0012, 0.9976], [0.5875, 0.4125, 0.0000]])
    assert_rounded(output_scaled, [[-1.9545, -2.9815], [-1.9934, -2.9910], [1.0562, 0.3563]])
    # Q3d, right in both forms: outputs 1 and 2 look at input 3, output 3 at input 1, none at its own position.
    for each in (weights, weights_scaled):
        assert each.argmax(-1).tolist() == [2, 2, 0]
    # Slip: the stated third row (1.17, 0.21) is computed from weights rounded to two decimals.
    rounded = (weights * 100).round() / 100
    assert_rounded((rounded @ value)[2:], [[1.17, 0.21]], decimals=2)
    assert [round(number, 2) for number in output[2].tolist()] != [1.17, 0.21]
