from hgld.hierarchy.scrape.answers import WikiClass
from hgld.hierarchy.scrape.endings import REASONS, Accounts
from hgld.hierarchy.scrape.route import Ending


def accounts(*endings: Ending) -> Accounts:
    found = Accounts()
    for ending in endings:
        found.add(ending)
    return found


def test_what_became_of_the_landmarks_is_told_a_line_a_reason() -> None:
    found = accounts(
        Ending(), Ending(over_topic=True), Ending(hops=2), Ending(reason="no_item"),
        Ending(reason="no_page", hops=1), Ending(reason="no_item"),
    )  # fmt: skip
    classes = {"Q1": WikiClass("Q1", "church"), "Q2": WikiClass("Q2", "Q2")}
    assert found.describe(classes, "hgld scrape ... --retry misses asks again") == (
        "3 of 6 landmarks have labels, the others:\n"
        "        2 no_item                the page has no Wikidata item\n"
        "        1 no_page                the page does not exist\n"
        "found through their category's topic: 1 of the labelled\n"
        "found through a soft redirect: 1 of the labelled\n"
        "1 class has no English label: Q2\n"
        "misses.csv lists them; hgld scrape ... --retry misses asks again"
    )


def test_where_all_have_labels_one_line_is_enough() -> None:
    assert accounts(Ending()).describe({}) == "1 of 1 landmark has labels"


def test_every_line_fits_80_columns_beside_the_head_of_a_note() -> None:
    found = accounts(Ending(over_topic=True, hops=1), *(Ending(reason=r) for r in REASONS))
    found.statuses.update(dict.fromkeys(found.statuses, 203_093))
    classes = {f"Q{i}": WikiClass(f"Q{i}", f"Q{i}") for i in range(100_000_000, 100_000_009)}
    lines = found.describe(classes, "hgld scrape ... --retry misses asks again").splitlines()
    assert len(lines) == 1 + len(REASONS) + 4
    assert [line for line in lines if len(line) > 64] == []
