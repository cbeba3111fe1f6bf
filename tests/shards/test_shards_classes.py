import json
from collections.abc import Sequence

import pandas as pd
import pytest

from hgld.errors import InvalidData
from hgld.shards.classes import number_classes


@pytest.mark.parametrize(("odd", "like"), [(0, 3), (1, 2), (2, 2)])
def test_the_one_path_with_other_levels_is_blamed(odd: int, like: int) -> None:
    paths: Sequence[dict[str, str]] = [{"group": "a", "landmark": str(i)} for i in range(3)]
    paths[odd].pop("group")
    hierarchy = pd.DataFrame(
        {"split": "train", "landmark_id": range(3), "path": [json.dumps(path) for path in paths]}
    )
    expected = f"row {odd + 2}: levels landmark; expected group, landmark as in row {like}$"
    with pytest.raises(InvalidData, match=expected):
        number_classes(hierarchy)
