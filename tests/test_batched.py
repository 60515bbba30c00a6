"""Lists of items, of which the last may be shorter."""

from headway.batched import batched


def test_batches_hold_all_items_in_their_order() -> None:
    assert list(batched(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batched(range(4), 2)) == [[0, 1], [2, 3]]
    assert list(batched([], 3)) == []


def test_no_more_is_read_than_is_asked_for() -> None:
    stream = iter(range(10))
    assert next(batched(stream, 3)) == [0, 1, 2]
    assert next(stream) == 3
