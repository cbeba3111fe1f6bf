import pandas as pd
import pytest

from hgld.artifacts import table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import Decided
from hgld.review.entries import Entry, list_entries
from hgld.review.identities import NAME, Identities
from hgld.review.taxonomy import Taxonomy, TaxonomyEdit, list_renames, present_names
from hgld.review.undo import undo_decisions

NO_EDITS = table_of("cluster_edits", [])


def taxonomy(*names: str) -> pd.DataFrame:
    rows = [{"supercategory": name, "kind": "natural", "definition": ""} for name in names]
    return table_of("taxonomy", rows)


class Log:
    """Tables of a labels folder that edits and undos change."""

    def __init__(self, *names: str, decided: str = "lake", entry: str = "aaaa page") -> None:
        row = {"key": "Q1", "key_type": "qid", "decision": "keep", "kind": "natural", "who": "ann"}
        row |= {"when": "2026-01-01", "supercategory": decided, "entry": entry}
        self.row = row | dict.fromkeys(("why", "supersedes", "evidence", "undoes"), "")
        roots = {"class_id": "Q7", "label": "tarn", "kind": "natural", "supercategory": decided}
        self.tables = {
            "taxonomy": taxonomy(*names),
            "class_roots": table_of("class_roots", [{**roots, "note": ""}]),
        }
        self.decisions = table_of("decisions", [self.row])
        self.edits = table_of("taxonomy_edits", [])

    def entries(self) -> list[Entry]:
        return list_entries(self.decisions, NO_EDITS, self.edits)

    def edit(self, *edits: TaxonomyEdit) -> str:
        """The id of the entry."""
        changed = Taxonomy(self.tables, self.decisions)
        changed.make(edits)
        return self._write(changed, "taxonomy")

    def take_back(self, ident: str) -> list[str]:
        """What stays."""
        changed = Taxonomy(self.tables, self.decisions)
        (entry,) = (one for one in self.entries() if one.id == ident)
        stays = changed.undo(entry, self.entries())
        self._write(changed, "undo")
        return stays

    def _write(self, changed: Taxonomy, source: str) -> str:
        ident = f"e{len(self.edits)}"
        rows = changed.new_rows("ann", "2026-01-01", f"{ident} {source}")
        rows["taxonomy_edits"]["follows"] = self.entries()[-1].id
        for name in self.tables:
            self.tables[name] = table_of(name, [*changed.state[name].values()])
        self.decisions = pd.concat([self.decisions, rows["decisions"]], ignore_index=True)
        self.edits = pd.concat([self.edits, rows["taxonomy_edits"]], ignore_index=True)
        return ident

    def names(self) -> list[str]:
        """The present name in each decision."""
        names = Identities(self.entries()).names(dict.fromkeys(self.tables["taxonomy"][NAME], ""))
        rows = Decided(self.decisions).rows()
        return [names.get(row.id, (row.supercategory, ""))[0] for row in rows]


def test_a_decision_has_the_name_of_its_supercategory_though_another_one_has_the_old_name() -> None:
    log = Log("lake", "pond", "canal")
    log.edit(TaxonomyEdit("merge", "lake", "pond"))
    log.edit(TaxonomyEdit("rename", "canal", "lake"))
    assert log.names() == ["pond", "pond"]


def test_a_decision_whose_supercategory_is_gone_is_not_one_of_its_namesake() -> None:
    log = Log("lake", "pond")
    log.edit(TaxonomyEdit("split", "lake", "tarn", keys=("Q1",)))
    log.tables["class_roots"] = table_of("class_roots", [])
    log.edit(TaxonomyEdit("remove", "lake"))
    log.edit(TaxonomyEdit("rename", "pond", "lake"))
    assert log.names() == ["lake (removed)", "tarn"]
    names = Identities(log.entries()).names({"lake": "natural", "tarn": "natural"})
    with pytest.raises(InvalidData, match=r"decide 'Q1' as 'lake \(removed\)', not in taxonomy"):
        undo_decisions(
            log.decisions, table_of("clusters", []), ["Q1"], who="ann", when="2026-01-02", why="",
            names=names,
        )  # fmt: skip


def test_a_supercategory_that_is_added_again_is_the_one_that_was_removed() -> None:
    log = Log("lake", "pond")
    log.edit(TaxonomyEdit("split", "lake", "tarn", keys=("Q1",)))
    log.tables["class_roots"] = table_of("class_roots", [])
    log.edit(TaxonomyEdit("remove", "lake"))
    assert log.names() == ["lake", "tarn"]
    log.edit(TaxonomyEdit("add", "lake", kind="natural"))
    assert log.names() == ["lake", "tarn"]


def test_a_merge_that_was_taken_back_maps_no_name_of_a_sheet() -> None:
    log = Log("lake", "pond", "canal", decided="pond")
    merge = log.edit(TaxonomyEdit("merge", "lake", "canal"))
    assert present_names(log.tables["taxonomy"], log.edits)["lake"] == ("canal", "natural")
    log.take_back(merge)
    log.edit(TaxonomyEdit("remove", "lake"))
    assert "lake" not in present_names(log.tables["taxonomy"], log.edits)
    assert list_renames(log.edits)["lake"][0] == ""


def test_a_sitting_that_goes_on_after_an_edit_means_the_names_after_it() -> None:
    log = Log("lake", "pond")
    log.edit(TaxonomyEdit("rename", "lake", "mere"), TaxonomyEdit("rename", "pond", "lake"))
    again = {**log.row, "key": "Q2"}
    log.decisions = pd.concat([log.decisions, table_of("decisions", [again])], ignore_index=True)
    assert log.names() == ["mere", "mere", "lake"]


def test_a_class_root_follows_the_undo_of_a_merge_after_other_edits_of_the_target() -> None:
    log = Log("lake", "pond")
    merge = log.edit(TaxonomyEdit("merge", "lake", "pond"))
    log.edit(TaxonomyEdit("rename", "pond", "mere"))
    log.edit(TaxonomyEdit("describe", "mere", kind="human-made"))
    assert log.take_back(merge) == []
    (root,) = log.tables["class_roots"].to_dict("records")
    assert (root[NAME], root["kind"]) == ("lake", "natural")
