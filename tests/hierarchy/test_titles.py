import pytest

from hgld.hierarchy.titles import title_of_url

WIKI = "http://commons.wikimedia.org/wiki/"


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("Category:Eiffel_Tower", "Category:Eiffel Tower"),
        ("Category:%C3%89glise_Saint-%C3%89tienne", "Category:Église Saint-Étienne"),
        ("Category:C++_tower", "Category:C++ tower"),
        ("Category:E%CC%81glise", "Category:Église"),  # a combining accent
        ("Category:%C9glise", "Category:Église"),  # Latin-1 bytes
        ("Category:100%2525", "Category:100%25"),  # decoded once, not twice
        ("Category:Tweed_Heads,_New_South_Wales", "Category:Tweed Heads, New South Wales"),
        ("Category:Isa_Khan_Niyazi's_tomb", "Category:Isa Khan Niyazi's tomb"),
        ("Category:D%27Amico_%E2%80%94_A%26B", "Category:D'Amico — A&B"),
        ("category:eiffel_Tower", "category:eiffel Tower"),  # Commons mends the case
        ("Category:A/B", "Category:A/B"),
        ("Category:What%3F", "Category:What?"),
    ],
)
def test_a_title_is_decoded_once_and_otherwise_left_alone(path: str, title: str) -> None:
    assert title_of_url(WIKI + path) == title


@pytest.mark.parametrize(
    "start", ["https://commons.wikimedia.org", "http://commons.m.wikimedia.org"]
)
def test_https_and_the_mobile_site_are_the_same_page(start: str) -> None:
    assert title_of_url(f" {start}/wiki/Category:A_B ") == "Category:A B"


@pytest.mark.parametrize(
    "url",
    ["", "unknown", WIKI, WIKI + "_", "http://example.org/wiki/Category:A", WIKI + "Category:A%7CB",
     WIKI + "Category:A%0AB", WIKI + "Category:A%1FB"],
)  # fmt: skip
def test_what_is_no_page_has_no_title(url: str) -> None:
    assert title_of_url(url) is None
