from hashlib import sha256

import numpy as np

from hgld.sources.open_set import hold_out


def test_a_key_is_held_out_where_its_hash_lies_below_the_share() -> None:
    keys = [str(i) for i in range(50)]
    expected = [int(sha256(f"7:{key}".encode()).hexdigest()[:16], 16) < 2**62 for key in keys]
    assert hold_out(keys, 0.25, seed=7).tolist() == expected


def test_the_share_is_met_on_average() -> None:
    keys = [str(i) for i in range(20_000)]
    assert abs(hold_out(keys, 0.2, seed=0).mean() - 0.2) < 0.01


def test_more_keys_change_no_earlier_draw() -> None:
    few, many = [str(i) for i in range(10)], [str(i) for i in range(100)]
    assert np.array_equal(hold_out(few, 0.4, 3), hold_out(many, 0.4, 3)[:10])


def test_a_larger_share_keeps_what_a_smaller_one_held_out() -> None:
    keys = [str(i) for i in range(500)]
    assert not (hold_out(keys, 0.1, 0) & ~hold_out(keys, 0.3, 0)).any()
