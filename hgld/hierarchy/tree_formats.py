"""File formats of a hierarchy: read one by its content, write one by its name.

Written and read back: ``hierarchy.csv`` (paths), edges as CSV, a JSON tree, Newick, and networkx's
node-link JSON. Written only: the ClassLabel features of Hugging Face's datasets, whose numbers are
those of the shards. Read only: WordNet's ``data.noun``, ImageNet's ``wordnet.is_a.txt``, GBIF's
``Taxon.tsv``, and OpenImages' JSON hierarchy.
"""

import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
from networkx import DiGraph as Tree

from hgld.artifacts import (
    ARTIFACTS,
    declared_table,
    parse_csv,
    read_header,
    rows_in_file,
    write_csv,
    write_file,
)
from hgld.artifacts.cells import guard_columns
from hgld.errors import InvalidData
from hgld.hierarchy.class_tree import (
    ClassNode,
    build_tree,
    paths_of_tree,
    taxonomy_of_tree,
    tree_of_paths,
)
from hgld.shards.classes import number_classes
from hgld.tasks import say
from hgld.words import spoken_name

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")  # of GBIF
FACTS = ("split", "landmark_id")  # of leaves
TOKENS = re.compile(r"\s*('(?:[^']|'')*'|[(),;:]|[^\s(),:;'\[\]]+|\[[^\]]*\])")
PLAIN = re.compile(r"[^\s(),:;'\[\]_\"\\]+")  # Newick labels that need no quotes


def read_tree(path: Path) -> Tree:
    """Read a hierarchy from a file or folder; its content says which format it has.

    Raises:
        InvalidData: it does not exist, has none of the formats, or is not a tree; with its rows.
    """
    work = path / ARTIFACTS["hierarchy"].file
    if work.is_file() or (path / "data.noun").is_file():
        path = work if work.is_file() else path / "data.noun"
    if not path.is_file():
        raise InvalidData(f"{path}: no hierarchy; expected a file, a work folder or WordNet's")
    try:
        if path.name == "data.noun":
            return build_tree(_wordnet(path), several_parents_in=path.name)
        if path.suffix == ".json":
            return _read_json(json.loads(path.read_text(encoding="utf-8-sig")), path)
        if path.suffix in (".nwk", ".newick", ".tree", ".tre"):
            return build_tree(_newick(path.read_text(encoding="utf-8-sig")))
        if path.suffix == ".csv":
            return _read_csv(path)
        if _is_gbif(path):
            return _gbif(path)
        return build_tree(_imagenet(path), several_parents_in=path.name)
    except InvalidData as fault:
        lines = str(fault).splitlines()
        named = (line if line.startswith(str(path)) else f"{path}: {line}" for line in lines)
        raise InvalidData(*named) from None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidData(f"{path}: not a readable hierarchy ({reason})") from None


def read_names(path: Path) -> tuple[dict[str, list[str]], set[str]]:
    """Read all names of the classes of WordNet, ImageNet or GBIF with their ids; none of others.

    Of GBIF these are its synonyms, with the taxa that are accepted in their place.

    Returns:
        The ids of each name; and the names whose most frequent sense is first, as ``index.noun``
        says: of most ambiguous names it counts no sense, and their order says nothing.
    """
    folder = path if path.is_dir() else path.parent
    index, words = folder / "index.noun", folder / "words.txt"
    names: dict[str, list[str]] = {}
    ranked: set[str] = set()
    if (folder / "data.noun").is_file() and index.is_file():
        for line in index.read_text(encoding="latin-1").splitlines():
            if not line.startswith("  "):  # the licence
                cells = line.split()
                senses = int(cells[2])
                names[cells[0]] = [f"n{offset}" for offset in cells[-senses:]]
                if cells[-senses - 1] != "0":  # senses that were counted
                    ranked.add(cells[0])
        return names, ranked
    if words.is_file() and path.is_file():
        for one, text in _imagenet_words(words).items():
            for name in text.split(","):
                names.setdefault(name.strip(), []).append(one)
    elif path.is_file() and _is_gbif(path):
        for taxon in _taxa(path):
            if taxon["status"] != "accepted" and taxon["synonym_of"]:
                names.setdefault(taxon["name"], []).append(taxon["synonym_of"])
    return names, ranked


def write_tree(tree: Tree, form: str, path: Path) -> None:
    """Write a hierarchy in one of ``FORMATS``, whole or not at all.

    Raises:
        InvalidData: it has too many levels for the format.
    """
    try:
        FORMATS[form](tree, path)
    except RecursionError:  # of Python's JSON
        raise InvalidData(
            f"{path}: the hierarchy has too many levels for {form}; write edges or newick"
        ) from None


def _read_csv(path: Path) -> Tree:
    expected = ("parent", "id", "name")
    if not (header := read_header(path, expected)):
        raise InvalidData(f"the file is empty; expected the columns {', '.join(expected)}")
    rows = [row for piece in parse_csv(path, {}) for row in piece.to_dict("records")]
    columns = {name.casefold(): name for name in header}
    if {"path", "landmark_id"} <= columns.keys():
        return tree_of_paths(declared_table("hierarchy").read(path))
    child = columns.get("id") or columns.get("child")
    if not child or "parent" not in columns:
        raise InvalidData("expected the columns parent and child, or parent, id and name")
    name, level_of = columns.get("name", child), dict[str, str]()
    nodes = []
    for number, row in zip(rows_in_file(path, len(rows)), rows, strict=True):
        facts = {fact: row[fact] for fact in FACTS if row.get(fact)}
        ids = [int(one) for one in facts.get("landmark_id", "").split()]  # one for each split
        facts |= {"landmark_id": ids[0] if len(ids) == 1 else facts["landmark_id"]} if ids else {}
        place = f"row {number}"
        nodes.append(ClassNode(row[child], row[columns["parent"]], row[name], place, facts))
        level_of[row[child]] = row.get("level", "")
    if child == columns.get("child"):  # roots may be named as parents only
        known = {node.id for node in nodes}
        roots = dict.fromkeys(n.parent for n in nodes if n.parent and n.parent not in known)
        nodes = [*(ClassNode(one, "", one, "a parent") for one in roots), *nodes]
    tree = build_tree(nodes)
    levels: dict[int, str] = {}  # by depth: the rows may be in any order
    for node, depth in _with_depth(tree):
        level = level_of.get(node, "")
        if level and levels.setdefault(depth, level) != level:
            both = f"'{level}' and '{levels[depth]}'"
            raise InvalidData(
                f"'{tree.nodes[node]['name']}': depth {depth + 1} has the levels {both}; keep one"
            )
    tree.graph["levels"] = tuple(level for _, level in sorted(levels.items()))
    return tree


def _write_edges(tree: Tree, path: Path) -> None:
    levels = tree.graph.get("levels", ())
    rows = []
    for node, depth in _with_depth(tree):
        facts = tree.nodes[node]
        above = next(iter(tree.predecessors(node)), "")
        level = levels[depth] if depth < len(levels) else ""
        row = {"id": node, "parent": above, "name": facts["name"], "level": level}
        rows.append({**row, **{fact: str(facts.get(fact, "")) for fact in FACTS}})
    write_csv(pd.DataFrame(rows), path)


def _with_depth(tree: Tree) -> list[tuple[str, int]]:
    """Return nodes with their depth from 0, level by level, in the order of the tree."""
    layers = enumerate(nx.topological_generations(tree))
    return [(node, depth) for depth, layer in layers for node in layer]


def _read_json(document: Any, path: Path) -> Tree:
    if isinstance(document, Mapping) and "nodes" in document:
        edges = "edges" if "edges" in document else "links"
        graph = nx.node_link_graph(document, edges=edges, directed=True, multigraph=False)
        nodes = [
            ClassNode(str(one), str(above), str(facts.get("name", one)), "edge of node", {
                fact: facts[fact] for fact in FACTS if fact in facts
            })
            for one, facts in graph.nodes(data=True)
            for above in (list(graph.predecessors(one)) or [""])
        ]  # fmt: skip
        return build_tree(nodes, graph.graph.get("levels", ()))
    if isinstance(document, Mapping) and "LabelName" in document:
        return build_tree(_open_images(document, path), several_parents_in=path.name)
    roots = [document] if isinstance(document, Mapping) and document.get("name") else None
    if roots is None:
        roots = document["children"] if isinstance(document, Mapping) else document
    levels = document.get("levels", ()) if isinstance(document, Mapping) else ()
    return build_tree(_json_nodes(roots), levels)


def _json_nodes(roots: list[Any]) -> Iterator[ClassNode]:
    waiting = deque((str(number), "", node) for number, node in enumerate(roots))
    while waiting:
        key, parent, node = waiting.popleft()
        facts = {fact: node[fact] for fact in FACTS if fact in node}
        yield ClassNode(key, parent, str(node["name"]), f"child {key}", facts)
        below = enumerate(node.get("children", ()))
        waiting += [(f"{key}.{number}", key, child) for number, child in below]


def _write_json(tree: Tree, path: Path) -> None:
    made: dict[str, dict[str, Any]] = {"": {"name": "", "levels": list(tree.graph["levels"])}}
    for node, _ in _with_depth(tree):
        above = next(iter(tree.predecessors(node)), "")
        made[node] = dict(tree.nodes[node])
        made[above].setdefault("children", []).append(made[node])
    _dump(made[""], path)


def _dump(document: Any, path: Path) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=1)
    write_file(path, text + "\n")


def _newick(text: str) -> Iterator[ClassNode]:
    """Yield the nodes of the first tree, children before parents; lengths and comments are left."""
    groups: list[list[str]] = [[]]
    found: dict[str, tuple[str, str]] = {}  # node -> parent, name
    latest, number, after = "", 0, ""
    if TOKENS.sub("", text).strip():
        raise InvalidData("a quote or a bracket of the Newick tree is not closed")
    for token in TOKENS.findall(text):
        if token.startswith("["):
            continue
        if after == ";":
            say("there are several Newick trees; only the first one is read")
            break
        if token == "(":
            groups.append([])
        elif token == ")":
            children, latest = groups.pop(), str(number)
            for child in children:
                found[child] = latest, found[child][1]
            found[latest] = "", ""
            groups[-1].append(latest)
            number += 1
        elif token not in ",:;" and after != ":":
            quoted = token.startswith("'")
            name = token[1:-1].replace("''", "'") if quoted else token.replace("_", " ")
            if after not in ("", "(", ",", ")"):
                raise InvalidData(
                    f"no comma between {after} and {token} of the Newick tree; quote a name with "
                    "blanks, as in 'red fox'"
                )
            if after != ")":
                latest = str(number)
                groups[-1].append(latest)
                number += 1
            found[latest] = "", name
        after = token
    if len(groups) != 1 or after != ";":
        raise InvalidData("a parenthesis of the Newick tree is not closed, or its ; is missing")
    roots = groups[0]
    unnamed = len(roots) == 1 and not found[roots[0]][1] and len(found) > 1
    for one, (parent, name) in found.items():
        if not (unnamed and one == roots[0]):  # a root without a name only joins several trees
            parent = "" if unnamed and parent == roots[0] else parent
            yield ClassNode(one, parent, name, f"node {one}")


def _write_newick(tree: Tree, path: Path) -> None:
    texts: dict[str, str] = {}
    nodes = [node for node, _ in _with_depth(tree)]
    for node in reversed(nodes):  # children before parents
        name = tree.nodes[node]["name"]
        quoted = name if PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"
        below = ",".join(texts.pop(child) for child in tree.successors(node))
        texts[node] = f"({below}){quoted}" if below else quoted
    roots = ",".join(texts[node] for node in nodes if node in texts)
    write_file(path, f"({roots});\n")


def _write_features(tree: Tree, path: Path) -> None:
    """Write a ClassLabel for each level; a name under several parents gets its parent's, too."""
    classes = number_classes(paths_of_tree(tree))
    features = {}
    above: list[str] = []
    for number, level in enumerate(classes.levels, 1):
        rows = classes.table[classes.table["level"] == number]
        shared = rows["name"].duplicated(keep=False)
        parents = [above[parent] if parent >= 0 else "" for parent in rows["parent_id"]]
        triples = zip(rows["name"], parents, shared, strict=True)
        above = [f"{name} ({parent})" if twice else name for name, parent, twice in triples]
        features[level] = {"names": above, "_type": "ClassLabel"}
    _dump(features, path)


def _write_sheet(tree: Tree, path: Path) -> None:
    """Write a sheet for ``hgld review --apply`` that keeps each class in its supercategory.

    The value of a class is its name with blanks for underscores, as ``scrape`` reads it.
    """
    places: dict[str, str] = {}
    for text in paths_of_tree(tree)["path"]:
        *_, name, leaf = json.loads(text).values()
        value = spoken_name(leaf)
        if places.setdefault(value, name) != name:
            both = f"'{places[value]}' and '{name}'"
            raise InvalidData(f"'{value}' is below {both}; rename one of them")
    rows = [
        {"decision": "keep", "supercategory": name, "kind": "", "note": "", "instance_of": value}
        for value, name in sorted(places.items())
    ]
    write_csv(guard_columns(pd.DataFrame(rows)), path, spreadsheet=True)


FORMATS: dict[str, Callable[[Tree, Path], None]] = {
    "paths": lambda tree, path: declared_table("hierarchy").write(paths_of_tree(tree), path),
    "edges": _write_edges,
    "tree": _write_json,
    "newick": _write_newick,
    "node-link": lambda tree, path: _dump(nx.node_link_data(tree, edges="edges"), path),
    "features": _write_features,
    "taxonomy": lambda tree, path: declared_table("taxonomy").write(taxonomy_of_tree(tree), path),
    "sheet": _write_sheet,
}


def _wordnet(path: Path) -> Iterator[ClassNode]:
    """Yield the nouns of WordNet's database; ids are those of ImageNet, such as n02084071."""
    with path.open(encoding="latin-1") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("  "):  # the licence
                continue
            cells = line.partition(" | ")[0].split()
            words = int(cells[3], 16)
            pointers = cells[5 + 2 * words :]
            name = cells[4].replace("_", " ")
            groups = zip(pointers[::4], pointers[1::4], strict=False)
            above = [f"n{offset}" for symbol, offset in groups if symbol in ("@", "@i")]
            for parent in above or [""]:
                yield ClassNode(f"n{cells[0]}", parent, name, f"line {number}")


def _imagenet(path: Path) -> Iterator[ClassNode]:
    """Yield the pairs "parent child" of a file, with names from ``words.txt`` beside it."""
    words = path.with_name("words.txt")
    texts = _imagenet_words(words) if words.is_file() else {}
    names = {one: text.split(",")[0] for one, text in texts.items()}
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    pairs = {number: line.split() for number, line in enumerate(lines, 1) if line.strip()}
    for number, pair in pairs.items():
        if len(pair) != 2:
            raise InvalidData(f"line {number}: expected a parent and a child")
    children = {child for _, child in pairs.values()}
    for root in dict.fromkeys(parent for parent, _ in pairs.values() if parent not in children):
        yield ClassNode(root, "", names.get(root, root), "line 1")
    for number, (parent, child) in pairs.items():
        yield ClassNode(child, parent, names.get(child, child), f"line {number}")


def _imagenet_words(path: Path) -> dict[str, str]:
    """Return the words of each synset, between commas."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return {one: text for one, _, text in (line.partition("\t") for line in lines)}


def _is_gbif(path: Path) -> bool:
    with path.open(encoding="utf-8-sig") as file:
        return "taxonID" in file.readline().split("\t")


def _taxa(path: Path) -> Iterator[dict[str, str]]:
    """Yield GBIF's taxa; one that is not accepted is a synonym of another, or doubtful."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file, restval="", delimiter="\t", quoting=csv.QUOTE_NONE):
            synonym_of = row.get("acceptedNameUsageID", "")
            yield {
                "id": row["taxonID"],
                "parent": row["parentNameUsageID"],
                "name": row.get("canonicalName") or row.get("scientificName", ""),
                "rank": row.get("taxonRank", ""),
                "status": row.get("taxonomicStatus") or ("synonym" if synonym_of else "accepted"),
                "synonym_of": synonym_of,
            }


def _gbif(path: Path) -> Tree:
    """Read a slice of GBIF's backbone; synonyms are left out, taxa without parent are roots."""
    taxa = list(_taxa(path))
    accepted = [taxon for taxon in taxa if taxon["status"] == "accepted"]
    here, ranks = ({taxon[fact] for taxon in accepted} for fact in ("id", "rank"))
    nodes = [
        ClassNode(
            one["id"], one["parent"] if one["parent"] in here else "", one["name"], f"taxon {n}"
        )
        for n, one in enumerate(accepted, 1)
    ]
    if len(accepted) < len(taxa):
        say(f"{path.name}: {len(taxa) - len(accepted):,} taxa are synonyms or doubtful; left out")
    levels = [rank for rank in RANKS if rank in ranks]
    return build_tree(nodes, levels if ranks <= set(RANKS) else ())


def _open_images(root: Mapping[str, Any], path: Path) -> Iterator[ClassNode]:
    """Yield the classes of OpenImages' hierarchy, named by its class descriptions beside it."""
    names: dict[str, str] = {}
    for file in sorted(path.parent.glob("*class-descriptions*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            names |= {row[0]: row[1] for row in csv.reader(lines) if len(row) > 1}
    waiting = deque([("", root)])
    while waiting:
        parent, node = waiting.popleft()
        own = str(node["LabelName"])
        yield ClassNode(own, parent, names.get(own, own), f"class {own}")
        waiting += [(own, child) for child in node.get("Subcategory", ())]
