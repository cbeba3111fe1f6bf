"""VehicleID: ``train_test_split/train_list.txt`` and three test lists, ``IMAGE VEHICLE`` a line.

Photos are ``image/IMAGE.jpg``. The test lists of 800, 1,600 and 2,400 vehicles are the small, the
medium and the large test set; ``source.vehicle_id_test`` chooses one. Each photo of it searches all
others (Brown et al. 2020, 5.2). The only level is the vehicle.
"""

from pathlib import Path

from hgld.artifacts import ColumnType
from hgld.config import SourceOptions
from hgld.sources.listing import Listing, read_lists, require_apart

LEVELS = ("vehicle",)
VEHICLES = {"small": 800, "medium": 1600, "large": 2400}
COLUMNS: dict[str, ColumnType] = {"image": "text", "vehicle_id": "int"}


def read(source: Path, options: SourceOptions) -> Listing:
    """Read the vehicles and photos of the training list and of one test list.

    Raises:
        InvalidData: a list is missing or has another form, or a vehicle is in both.
    """
    test = f"train_test_split/test_list_{VEHICLES[options.vehicle_id_test]}.txt"
    splits = {"train_test_split/train_list.txt": "train", test: "evaluation"}
    lines = read_lists(source, splits, COLUMNS, "the photos of a split")
    found = lines.assign(
        path="image/" + lines["image"] + ".jpg",
        landmark_id=lines["vehicle_id"],
        vehicle="vehicle " + lines["vehicle_id"].astype("str"),
    )
    require_apart(found, "vehicle")
    return Listing.of_lines(found.drop(columns=list(COLUMNS)), LEVELS)
