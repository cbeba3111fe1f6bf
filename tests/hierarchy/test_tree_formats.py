"""Formats of a hierarchy: round trips, foreign trees, and faults with their rows."""

import json
from pathlib import Path

import networkx as nx
import pandas as pd
import pytest

from hgld.artifacts import declared_table
from hgld.errors import InvalidData
from hgld.hierarchy.class_tree import cut_tree, paths_of_tree, taxonomy_of_tree, tree_of_paths
from hgld.hierarchy.tree_formats import FORMATS, read_names, read_tree, write_tree
from hgld.shards.classes import number_classes
from tests.in_process import Printed, hgld
from tests.listening import heard

LEVELS = ("section", "aisle", "shelf", "class")
PATHS = {
    ("train", 0): ("food", "bakery", "bread", "rye (dark)"),
    ("train", 3): ("food", "bakery", "bread", "O'Brien's, plain"),
    ("train", 5): ("food", "drinks", "tea", "Šípkový čaj"),
    ("index", 2): ("tools", "electric", "drill", "cordless_drill"),
    ("index", 4): ("food", "bakery", "bread", "rye (dark)"),  # a class of both splits
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    rows = [
        {"split": split, "landmark_id": number,
         "path": json.dumps(dict(zip(LEVELS, path, strict=True)), ensure_ascii=False)}
        for (split, number), path in PATHS.items()
    ]  # fmt: skip
    (tmp_path / "work").mkdir()
    declared_table("hierarchy").write(pd.DataFrame(rows), tmp_path / "work" / "hierarchy.csv")
    return tmp_path / "work"


def parents_of_leaves(graph: nx.DiGraph) -> dict[str, str]:
    paths = (list(json.loads(text).values()) for text in paths_of_tree(graph)["path"])
    return {leaf: parent for *_, parent, leaf in paths}


def tree(*words: object, code: int = 0) -> Printed:
    return hgld("labels", "tree", *words, code=code)


@pytest.mark.parametrize(
    ("form", "name"),
    [("edges", "e.csv"), ("tree", "t.json"), ("node-link", "n.json"), ("paths", "p.csv")],
)
def test_a_hierarchy_comes_back_byte_for_byte(work: Path, form: str, name: str) -> None:
    tree(work, "--to", form, "--out", work / name)
    tree(work / name, "--to", "paths", "--out", work / "again.csv")
    assert (work / "again.csv").read_bytes() == (work / "hierarchy.csv").read_bytes()
    tree(work / "again.csv", "--to", form, "--out", work / f"2{name}")
    assert (work / f"2{name}").read_bytes() == (work / name).read_bytes()


def test_edges_keep_their_levels_in_any_order_of_the_rows(work: Path) -> None:
    tree(work, "--to", "edges", "--out", work / "e.csv")
    rows = pd.read_csv(work / "e.csv", dtype=str, keep_default_na=False)
    rows.sort_values("name").to_csv(work / "e.csv", index=False)
    tree(work / "e.csv", "--to", "paths", "--out", work / "again.csv")
    assert (work / "again.csv").read_bytes() == (work / "hierarchy.csv").read_bytes()
    rows.loc[rows["name"] == "bakery", "level"] = "shelf"
    rows.to_csv(work / "e.csv", index=False)
    said = tree(work / "e.csv", code=3).err
    assert "depth 2 has the levels 'aisle' and 'shelf'; keep one" in said


def test_two_landmarks_of_one_split_that_are_one_class_are_refused(work: Path) -> None:
    rows = declared_table("hierarchy").read(work / "hierarchy.csv")
    twice = pd.concat([rows, rows.assign(landmark_id=rows["landmark_id"] + 9)])
    with pytest.raises(InvalidData, match="is the class of several rows of index; give each"):
        tree_of_paths(twice.sort_values(["split", "landmark_id"]))


def test_a_sheet_names_the_values_as_scrape_reads_them(work: Path) -> None:
    tree(work, "--to", "sheet", "--out", work / "s.csv")
    rows = pd.read_csv(work / "s.csv", keep_default_na=False)
    assert dict(zip(rows["instance_of"], rows["supercategory"], strict=True)) == {
        "O'Brien's, plain": "bread", "cordless drill": "drill", "rye (dark)": "bread",
        "Šípkový čaj": "tea",
    }  # fmt: skip


def test_newick_keeps_all_names_and_the_tree(work: Path) -> None:
    write_tree(read_tree(work), "newick", work / "h.nwk")
    text = (work / "h.nwk").read_text()
    assert "'rye (dark)'" in text and "'O''Brien''s, plain'" in text and text.endswith(")tools);\n")
    again = paths_of_tree(read_tree(work / "h.nwk"))["path"].map(json.loads)
    assert {tuple(path.values()) for path in again} == set(PATHS.values())


def test_newick_of_other_programs_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.nwk").write_text("[made by hand]\n((pug:0.1,Great_Dane:2)dog:1,cat)animal:0;")
    found = paths_of_tree(read_tree(tmp_path / "x.nwk").subgraph(["2", "0", "1", "4"]))
    names = {tuple(json.loads(path).values()) for path in found["path"]}
    assert names == {("animal", "dog", "pug"), ("animal", "dog", "Great Dane")}


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.nwk", "(pug,cat)animal;"), ("x.txt", "animal pug\nanimal cat\n"),
     ("x.json", '{"name": "animal", "children": [{"name": "pug"}, {"name": "cat"}]}')],
)  # fmt: skip
def test_a_byte_order_mark_is_no_part_of_a_name(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    names = dict(read_tree(tmp_path / name).nodes(data="name"))
    assert sorted(names.values()) == ["animal", "cat", "pug"]


def test_a_class_with_a_colon_in_its_name_is_no_id_of_a_landmark(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("parent,child\nratio,4:3\nratio,16:9\n")
    found = paths_of_tree(read_tree(tmp_path / "e.csv"))
    assert found["split"].tolist() == ["train", "train"] and found["landmark_id"].tolist() == [0, 1]


def test_a_class_named_as_a_landmark_among_others_is_numbered_with_them(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("parent,child\ntop,red\ntop,train:1\n")
    assert paths_of_tree(read_tree(tmp_path / "e.csv"))["landmark_id"].tolist() == [0, 1]
    (tmp_path / "e.csv").write_text("parent,child\ntop,train:8\ntop,index:1\n")
    found = paths_of_tree(read_tree(tmp_path / "e.csv"))
    assert found[["split", "landmark_id"]].to_numpy().tolist() == [["index", 1], ["train", 8]]


def test_newick_quotes_what_other_programs_read_as_a_quote_or_an_escape(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text('parent,child\ntop,"""x"""\ntop,a\\b\n')
    write_tree(read_tree(tmp_path / "e.csv"), "newick", tmp_path / "x.nwk")
    assert (tmp_path / "x.nwk").read_text() == """(('"x"','a\\b')top);\n"""


def test_only_the_first_of_several_newick_trees_is_read_and_that_is_reported(
    tmp_path: Path,
) -> None:
    (tmp_path / "x.nwk").write_text("(pug,cat)animal;\n(pug,(cat))animal; [end]\n")
    with heard() as said:
        assert len(read_tree(tmp_path / "x.nwk")) == 3
    assert said == ["there are several Newick trees; only the first one is read"]


def test_node_link_is_that_of_networkx(work: Path) -> None:
    write_tree(read_tree(work), "node-link", work / "n.json")
    document = json.loads((work / "n.json").read_text())
    graph = nx.node_link_graph(document, edges="edges")
    assert nx.is_forest(graph) and graph.is_directed() and len(graph) == 12
    (leaf,) = [facts for _, facts in graph.nodes(data=True) if facts["name"] == "cordless_drill"]
    assert leaf == {"name": "cordless_drill", "split": "index", "landmark_id": 2}


def test_features_number_the_classes_as_the_shards_do(work: Path) -> None:
    write_tree(read_tree(work), "features", work / "f.json")
    features = json.loads((work / "f.json").read_text())
    assert list(features) == list(LEVELS)
    table = number_classes(declared_table("hierarchy").read(work / "hierarchy.csv")).table
    for level, name in enumerate(LEVELS, 1):
        assert features[name]["_type"] == "ClassLabel"
        assert features[name]["names"] == table[table["level"] == level]["name"].tolist()
    datasets = pytest.importorskip("datasets")
    loaded = datasets.Features.from_dict(features)
    assert [loaded[name].names for name in LEVELS] == [features[name]["names"] for name in LEVELS]


def test_names_under_two_parents_stay_apart_in_features(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(
        "id,parent,name\na,,food\nb,,tools\nc,a,other\nd,b,other\ne,c,x\nf,d,y\n"
    )
    write_tree(read_tree(tmp_path / "e.csv"), "features", tmp_path / "f.json")
    names = json.loads((tmp_path / "f.json").read_text())["level 2"]["names"]
    assert names == ["other (food)", "other (tools)"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("parent,child\na,b\nb,c\nc,b\n", "row 4: 'b' has the parent 'c' here and 'a' in row 2"),
        ("parent,child\nb,a\nc,b\na,c\n", "row 2: a class is above itself: "),
        ("parent,child\na,b\na,\n", "row 3: a class has an empty name"),
        ("parent,child\n\na,b\n \na,\n", "row 5: a class has an empty name"),
        ("id,parent,name\na,,x\nb,aa,y\n", "row 3: the parent 'aa' is no class of the file"),
        ("mother,child\na,b\n", "expected the columns parent and child, or parent, id and name"),
        ("parent,child\n", "it has no class"),
        (
            "split,landmark_id,path\n",
            "no image has a class; label_dropped.csv has the reasons, images_",
        ),
    ],
)
def test_edges_that_are_no_tree_are_refused_with_their_row(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(InvalidData) as fault:
        read_tree(tmp_path / "e.csv")
    assert says in str(fault.value) and str(tmp_path / "e.csv") in str(fault.value)


@pytest.mark.parametrize("text", ["((a,b)c", "{", '{"children": [{}]}', "[1]"])
def test_a_damaged_tree_is_one_line(tmp_path: Path, text: str) -> None:
    for name in ("x.nwk", "x.json"):
        (tmp_path / name).write_text(text)
        with pytest.raises(InvalidData, match=r"x\.\w+: "):
            read_tree(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("('a b,c);", "a quote or a bracket of the Newick tree is not closed"),
        ("(red fox,wolf);", "no comma between red and fox of the Newick tree"),
    ],
)
def test_newick_that_would_lose_or_split_a_name_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "x.nwk").write_text(text)
    with pytest.raises(InvalidData, match=says):
        read_tree(tmp_path / "x.nwk")


def test_an_empty_csv_is_named_once_with_the_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").touch()
    with pytest.raises(InvalidData) as fault:
        read_tree(tmp_path / "x.csv")
    said = "the file is empty; expected the columns parent, id, name"
    assert str(fault.value) == f"{tmp_path / 'x.csv'}: {said}"


def test_more_levels_than_json_nests_are_refused(tmp_path: Path) -> None:
    levels = 20_000  # of Python 3.13; 1,000 before
    closed = "".join(f")n{level}" for level in range(levels))
    (tmp_path / "x.nwk").write_text(f"{'(' * levels}a{closed};")
    with pytest.raises(InvalidData, match="too many levels for tree; write edges or newick"):
        write_tree(read_tree(tmp_path / "x.nwk"), "tree", tmp_path / "x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["x.nwk"]


WORDNET = """  1 This software and database is being provided to you
00001740 03 n 01 entity 0 001 ~ 00001930 n 0000 | that which exists
00001930 03 n 01 animal 0 001 @ 00001740 n 0000 | a living thing
02084071 05 n 03 dog 0 domestic_dog 0 Canis_familiaris 0 002 @ 00001930 n 0000 @ 01317541 n 0000 |
01317541 05 n 01 domestic_animal 0 001 @ 00001930 n 0000 | tame
02110958 05 n 02 pug 0 pug-dog 0 001 @ 02084071 n 0000 | small
02121620 05 n 01 cat 0 001 @ 00001930 n 0000 | one
02127808 05 n 01 cat 1 001 @ 00001930 n 0000 | another
"""


def test_classes_get_wordnets_hypernyms_at_stated_depths(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(WORDNET)
    (tmp_path / "classes.csv").write_text("class,id\nPug,\ncat,\nlynx,n02127808\ncar,\npug,\n,\n")
    words = [tmp_path, "--classes", tmp_path / "classes.csv", "--depths", "2,3"]
    said = tree(*words, "--to", "paths", "--out", tmp_path / "p.csv").err
    paths = [json.loads(p) for p in declared_table("hierarchy").read(tmp_path / "p.csv")["path"]]
    assert [list(path.values()) for path in paths] == [
        ["animal", "animal", "lynx"], ["animal", "dog", "Pug"], ["animal", "dog", "pug"],
    ]  # fmt: skip
    assert "left out: cat: ambiguous, name its id: n02121620, n02127808" in said
    assert "left out: car: not in the tree" in said and "left out: row 7: an empty name" in said
    assert "1 further parent not taken; a class has its first one" in said
    tree(*words, "--to", "taxonomy", "--out", tmp_path / "taxonomy.csv")
    rows = declared_table("taxonomy").read(tmp_path / "taxonomy.csv")
    assert rows[["supercategory", "kind"]].to_numpy().tolist() == [
        ["animal", "animal"], ["dog", "animal"],
    ]  # fmt: skip


def test_all_names_of_wordnet_count_and_the_most_frequent_sense_of_each(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(WORDNET)
    index = (
        "  1 licence\ncat n 2 1 @ 2 1 02127808 02121620  \ndomestic_dog n 1 1 @ 1 0 02084071  \n"
    )
    (tmp_path / "index.noun").write_text(index)
    (tmp_path / "classes.csv").write_text("class\ncat\nDomestic dog\npug\n")
    words = [tmp_path, "--classes", tmp_path / "classes.csv", "--depths", "1"]
    said = tree(*words, "--to", "paths", "--out", tmp_path / "p.csv").err
    assert "left out" not in said
    assert (
        "1 of 3 classes has several senses; the most frequent one counts, as for 'cat' (n02127"
        in said
    )


def test_a_name_of_wordnet_whose_senses_were_not_counted_is_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(WORDNET)
    (tmp_path / "index.noun").write_text("cat n 2 1 @ 2 0 02127808 02121620  \n")
    names, ranked = read_names(tmp_path)
    assert names["cat"] == ["n02127808", "n02121620"] and not ranked
    _, left = cut_tree(read_tree(tmp_path), ["pug", "cat"], [1], (), names, ranked)
    assert left["cat"].startswith("ambiguous, name its id: n02")


def test_names_of_imagenet_behind_the_first_count_too(tmp_path: Path) -> None:
    (tmp_path / "wordnet.is_a.txt").write_text("n1 n2\nn1 n3\nn1 n4\n")
    (tmp_path / "words.txt").write_text("n1\tanimal\nn2\tcar, automobile\nn3\tcrane\nn4\tcrane\n")
    path = tmp_path / "wordnet.is_a.txt"
    cut, left = cut_tree(read_tree(path), ["automobile", "crane"], [1], (), *read_names(path))
    assert parents_of_leaves(cut) == {"automobile": "animal"}
    assert left == {"crane": "ambiguous, name its id: n3, n4"}


def test_the_first_word_of_a_synset_counts_before_further_ones(tmp_path: Path) -> None:
    (tmp_path / "wordnet.is_a.txt").write_text("n1 n2\nn1 n3\nn2 n4\n")
    (tmp_path / "words.txt").write_text("n1\tanimal\nn2\tbird\nn3\tcrane\nn4\tstork, crane\n")
    path = tmp_path / "wordnet.is_a.txt"
    cut, left = cut_tree(read_tree(path), ["crane"], [2], (), *read_names(path))
    assert not left and parents_of_leaves(cut) == {"crane": "animal"}


def test_a_class_that_is_left_out_is_named_by_its_row_behind_blank_ones(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(WORDNET)
    (tmp_path / "classes.csv").write_text("class,id\nPug,\n\n\n,\nPug,\n")
    said = tree(tmp_path, "--classes", tmp_path / "classes.csv", "--depths", "2").err
    assert "left out: row 5: an empty name" in said and "left out: Pug (row 6): the second" in said


def test_if_no_class_is_found_each_reason_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(WORDNET)
    (tmp_path / "classes.csv").write_text("class\ncar\ncat\n")
    said = tree(tmp_path, "--classes", tmp_path / "classes.csv", "--depths", "2", code=3).err
    assert "none of 2 classes is in the tree" in said and "car: not in the tree" in said
    assert "cat: ambiguous, name its id: n02121620, n02127808" in said


def test_imagenets_pairs_are_read_with_their_words(tmp_path: Path) -> None:
    (tmp_path / "wordnet.is_a.txt").write_text("n1 n2\nn2 n3\nn1 n4\nn4 n3\n")
    (tmp_path / "words.txt").write_text("n1\tanimal, beast\nn2\tdog\nn3\tpug, pug-dog\nn4\tcat\n")
    found = read_tree(tmp_path / "wordnet.is_a.txt")
    cut, left = cut_tree(found, ["pug"], [1, 2])
    assert not left and parents_of_leaves(cut) == {"pug": "dog"}


def test_a_fault_in_imagenets_pairs_is_named_by_its_line_behind_blank_ones(tmp_path: Path) -> None:
    (tmp_path / "wordnet.is_a.txt").write_text("n1 n2\n\n\nn2 n3 n4\n")
    with pytest.raises(InvalidData, match="line 4: expected a parent and a child"):
        read_tree(tmp_path / "wordnet.is_a.txt")


def test_a_slice_of_gbif_is_read_without_synonyms(tmp_path: Path) -> None:
    rows = [
        "taxonID\tparentNameUsageID\tcanonicalName\ttaxonRank\ttaxonomicStatus",
        "9703\t731\tFelidae\tfamily\taccepted",
        "2435194\t9703\tPanthera\tgenus\taccepted",
        "5219404\t2435194\tPanthera leo\tspecies\taccepted",
        "7193927\t2435194\tFelis leo\tspecies\tsynonym",
    ]
    (tmp_path / "Taxon.tsv").write_text("\n".join(rows) + "\n")
    (path,) = paths_of_tree(read_tree(tmp_path / "Taxon.tsv"))["path"]
    assert json.loads(path) == {"family": "Felidae", "genus": "Panthera", "species": "Panthera leo"}


def test_a_class_named_by_a_synonym_has_the_place_of_the_accepted_taxon(tmp_path: Path) -> None:
    rows = [
        "taxonID\tparentNameUsageID\tacceptedNameUsageID\tcanonicalName\ttaxonomicStatus",
        "9703\t\t\tFelidae\taccepted",
        "2435194\t9703\t\tPanthera\taccepted",
        "5219404\t2435194\t\tPanthera leo\taccepted",
        "7193927\t2435194\t5219404\tFelis leo\tsynonym",
        "7193928\t2435194\t1\tFelis alia\tsynonym",
    ]
    path = tmp_path / "Taxon.tsv"
    path.write_text("\n".join(rows) + "\n")
    cut, left = cut_tree(
        read_tree(path), ["felis_leo", "Felis alia"], [1, 2], (), *read_names(path)
    )
    (row,) = paths_of_tree(cut)["path"]
    assert [*json.loads(row).values()] == ["Felidae", "Panthera", "felis_leo"]
    assert left == {"Felis alia": "not in the tree"}


def test_a_taxon_without_a_status_is_a_synonym_if_it_names_another_in_its_place(
    tmp_path: Path,
) -> None:
    rows = [
        "taxonID\tparentNameUsageID\tacceptedNameUsageID\tcanonicalName",
        "2435194\t\t\tPanthera",
        "5219404\t2435194\t\tPanthera leo",
        "7193927\t2435194\t5219404\tFelis leo",
    ]
    path = tmp_path / "Taxon.tsv"
    path.write_text("\n".join(rows) + "\n")
    assert [*read_tree(path)] == ["2435194", "5219404"]
    assert read_names(path)[0] == {"Felis leo": ["5219404"]}
    status = ["taxonomicStatus", "accepted", "", ""]
    path.write_text("\n".join(f"{row}\t{cell}" for row, cell in zip(rows, status, strict=True)))
    assert [*read_tree(path)] == ["2435194", "5219404"]


def test_a_taxon_whose_row_is_cut_is_named(tmp_path: Path) -> None:
    head = "taxonID\tparentNameUsageID\tscientificName\ttaxonomicStatus"
    (tmp_path / "Taxon.tsv").write_text(f"{head}\n1\t\tFelidae\taccepted\n2\t1\n")
    with pytest.raises(InvalidData, match=r"Taxon\.tsv: taxon 2: a class has an empty name"):
        read_tree(tmp_path / "Taxon.tsv")


def test_openimages_hierarchy_is_read_with_its_descriptions(tmp_path: Path) -> None:
    below = [{"LabelName": "/m/1", "Subcategory": [{"LabelName": "/m/2"}]}, {"LabelName": "/m/2"}]
    document = {"LabelName": "/m/0bl9f", "Subcategory": below}
    (tmp_path / "bbox_labels_600_hierarchy.json").write_text(json.dumps(document))
    lines = "/m/0bl9f,Entity\n/m/1,Animal\n/m/2,Dog\n"
    (tmp_path / "class-descriptions-boxable.csv").write_text(lines)
    found = read_tree(tmp_path / "bbox_labels_600_hierarchy.json")
    assert sorted(name for _, name in found.nodes(data="name")) == ["Animal", "Dog", "Entity"]
    assert len(found.edges) == 2


def test_a_class_with_classes_below_it_has_several_parents(tmp_path: Path) -> None:
    shellfish = {"LabelName": "Shellfish", "Subcategory": [{"LabelName": "Crab"}]}
    parents = [{"LabelName": name, "Subcategory": [shellfish]} for name in ("Animal", "Food")]
    document = {"LabelName": "Entity", "Subcategory": parents}
    (tmp_path / "h.json").write_text(json.dumps(document))
    found = read_tree(tmp_path / "h.json")
    assert sorted(found.edges) == [
        ("Animal", "Shellfish"),
        ("Entity", "Animal"),
        ("Entity", "Food"),
        ("Shellfish", "Crab"),
    ]


def test_a_class_with_the_separator_of_kinds_is_in_no_taxonomy() -> None:
    path = '{"section": "Home > Kitchen", "shelf": "pans", "class": "wok"}'
    rows = pd.DataFrame({"split": ["train"], "landmark_id": [0], "path": [path]})
    with pytest.raises(InvalidData, match="'Home > Kitchen' holds ' > ', which joins classes"):
        taxonomy_of_tree(tree_of_paths(rows))


def test_leaves_at_different_depths_ask_for_depths(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("parent,child\na,b\nb,c\na,d\n")
    with pytest.raises(InvalidData, match=r"'d' at 2, 'c' at 3.*--depths 2,4"):
        paths_of_tree(read_tree(tmp_path / "e.csv"))


def test_odd_options_name_what_to_give(work: Path) -> None:
    for words, says in (
        (["--to", "newik", "--out", "x"], "did you mean 'newick'"),
        (["--to", "newick"], "--to and --out go together"),
        (["--classes", "x.csv"], "--classes and --depths go together"),
        (["--depths", "1,2"], "--classes and --depths go together"),
        (["--depths", "2,a"], "--depths 2,a: expected numbers from coarse to fine"),
        (["--classes", "x.csv", "--depths", "3,2"], "from coarse to fine"),
    ):
        assert says in tree(work, *words, code=2).said
    assert set(FORMATS) >= {"paths", "edges", "tree", "newick", "node-link", "features"}
