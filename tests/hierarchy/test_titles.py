"""One test for each rule that leads from a URL to a title; what Commons makes of the rest is in
test_captures.py."""

import pytest

from hgld.hierarchy.scrape.titles import title_of_url

WIKI = "http://commons.wikimedia.org/wiki/"


def title(path: str) -> str | None:
    return title_of_url(WIKI + path)


def test_underscores_are_blanks() -> None:
    assert title("Category:Eiffel_Tower") == "Category:Eiffel Tower"


def test_percent_signs_are_decoded() -> None:
    assert title("Category:%C3%89glise_Saint-%C3%89tienne") == "Category:Église Saint-Étienne"
    assert title("Category:D%27Amico_%E2%80%94_A%26B") == "Category:D'Amico — A&B"
    assert title("Category:What%3F") == "Category:What?"


def test_percent_signs_are_decoded_once_and_not_twice() -> None:
    assert title("Category:100%2525") == "Category:100%25"


def test_a_plus_sign_is_a_plus_sign() -> None:
    assert title("Category:C++_tower") == "Category:C++ tower"
    assert title("Category:C%2B%2B_tower") == "Category:C++ tower"


def test_accents_are_composed() -> None:
    assert title("Category:E%CC%81glise") == "Category:\u00c9glise"
    assert title("Category:E\u0301glise") == "Category:\u00c9glise"


def test_latin_1_bytes_are_read_as_mediawiki_reads_them() -> None:
    assert title("Category:%C9glise") == "Category:Église"


def test_outer_blanks_are_no_part_of_it() -> None:
    assert title("_Category:Eiffel_Tower_") == "Category:Eiffel Tower"
    assert title_of_url(f"  {WIKI}Category:A \n") == "Category:A"


def test_a_query_is_no_part_of_it_but_other_question_marks_are() -> None:
    assert title("Category:Caf%C3%A9?uselang=de&from=A#History") == "Category:Café#History"
    assert title("Category:Quo_vadis%3Fuselang=de?uselang=de") == "Category:Quo vadis?uselang=de"
    assert title("Category:Quo_vadis?") == "Category:Quo vadis?"


def test_no_break_and_double_blanks_are_left_to_commons() -> None:
    assert title("Category:Eiffel%C2%A0Tower") == "Category:Eiffel\u00a0Tower"
    assert title("Category:Eiffel__Tower") == "Category:Eiffel  Tower"


def test_html_entities_are_left_to_commons() -> None:
    assert title("Category:A_&amp;_B") == "Category:A &amp; B"


def test_a_section_is_left_to_commons() -> None:
    assert title("Category:Eiffel_Tower#History") == "Category:Eiffel Tower#History"


def test_a_lower_case_namespace_and_first_letter_are_left_to_commons() -> None:
    assert title("category:eiffel_Tower") == "category:eiffel Tower"


def test_a_title_of_255_bytes_and_one_of_300_are_left_to_commons() -> None:
    for size in (255, 300):
        assert title("Category:" + "%C3%89" * (size // 2)) == "Category:" + "É" * (size // 2)


def test_apostrophes_commas_and_slashes_stay() -> None:
    assert title("Category:Isa_Khan_Niyazi's_tomb") == "Category:Isa Khan Niyazi's tomb"
    assert title("Category:Tweed_Heads,_New_South_Wales") == (
        "Category:Tweed Heads, New South Wales"
    )
    assert title("Category:A/B") == "Category:A/B"


@pytest.mark.parametrize(
    "start", ["https://commons.wikimedia.org", "http://commons.m.wikimedia.org"]
)
def test_https_and_the_mobile_site_are_the_same_page(start: str) -> None:
    assert title_of_url(f"{start}/wiki/Category:A_B") == "Category:A B"


@pytest.mark.parametrize("path", ["A%7CB", "A|B", "A%0AB", "A%1FB", "A%00", "A%7F"])
def test_a_title_that_would_break_a_batch_apart_is_none(path: str) -> None:
    assert title(f"Category:{path}") is None


@pytest.mark.parametrize(
    "url", ["", "unknown", WIKI, WIKI + "_", "http://example.org/wiki/Category:A"]
)
def test_what_is_no_page_has_no_title(url: str) -> None:
    assert title_of_url(url) is None
