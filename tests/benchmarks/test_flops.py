"""The operations that a share of the matmul rate is taken of."""

from harness.flops import count_operations
from harness.shape import Shape

SMALL = Shape(width=3, layers=2, heads=2, kv_heads=1, head=2, ff=5, vocab=7)


def test_operations_by_hand():
    # Projections 3x4, 3x2, 3x2, 4x3, 3x5, 3x5, 5x3: 81 multiplications a token and layer, 48 a unit of rank.
    # 3 + 2 * 2 = 7 tokens. Pairs: 1 + 2 + 3 in the context; 3 + 1 and 3 + 2 for each of two continuations: 24,
    # where a full square would give 9 + 2 * 2 * 5 and continuations that repeat the context 2 * 15.
    # In the last of two layers keys and values (12, and 10 a unit of rank) for all 7; the rest for the context's last
    # token, with its 3 pairs, and the 4 of continuations, with their 18.
    found = count_operations(SMALL.config(), context=3, group=2, completion=2, rank=1)
    assert found.linear == 2 * (7 * 81 + 7 * 12 + 5 * 69) == 1992
    assert found.adapter == 2 * (7 * 48 + 7 * 10 + 5 * 38) == 1192
    assert found.attention == 2 * (24 + 3 + 18) * (2 + 2) * 2 == 720  # multiply and add, pairs, heads * head, twice
    assert found.head == 2 * 4 * 7 * 3
    assert found.forward == 1992 + 1192 + 720 + 168
    # Backward: one product for each frozen one, two for each of the adapter's and of attention's.
    assert found.gradient == found.forward + 1992 + 2 * 1192 + 2 * 720 + 168


def test_without_an_adapter_only_the_rest_is_left():
    found = count_operations(SMALL.config(), context=3, group=2, completion=2, rank=0)
    assert found.adapter == 0
    assert found.forward == 1992 + 720 + 168
