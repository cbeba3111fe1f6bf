"""A hierarchy of classes as a graph: built and checked, cut to fixed levels, turned into paths.

The graph is a ``networkx.DiGraph`` from parent to child, so that its algorithms are at hand. A node
has a ``name``; a leaf of a pipeline's hierarchy also has ``split`` and ``landmark_id``. ``levels``
of the graph names the depths, coarse to fine, if they have names.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import pandas as pd
from networkx import DiGraph as Tree

from hgld.artifacts import ID_SPACES, records, table_of
from hgld.config import KIND_SEPARATOR
from hgld.errors import InvalidData
from hgld.shards.classes import number_classes
from hgld.tasks import say
from hgld.words import count_text, folded_name, nearest, part_text

SHOWN = 5  # classes that are named in an error or a notice


@dataclass(frozen=True)
class ClassNode:
    """A row of a file of classes; ``place`` names it in errors, an empty parent makes a root."""

    id: str
    parent: str
    name: str
    place: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def build_tree(
    nodes: Iterable[ClassNode], levels: Sequence[str] = (), *, several_parents_in: str = ""
) -> Tree:
    """Build a tree from its nodes, in any order.

    Args:
        nodes: one for each class and parent.
        levels: names of the depths, coarse to fine.
        several_parents_in: name of a file whose classes may have several parents, as those of
            WordNet and OpenImages; the first one is taken, and a notice counts the others.

    Raises:
        InvalidData: all faults: an empty name, a second parent, a parent that is missing, a cycle.

    Example:
        >>> tree = build_tree([ClassNode("a", "", "animal", ""), ClassNode("b", "a", "dog", "")])
        >>> list(tree.edges)
        [('a', 'b')]
    """
    tree, faults, more = nx.DiGraph(levels=tuple(levels)), list[str](), 0
    first: dict[str, ClassNode] = {}
    for node in nodes:
        known = first.setdefault(node.id, node)
        if not node.name.strip() or not node.id.strip():
            faults.append(f"{node.place}: a class has an empty name; name it or remove the row")
        elif known is node:
            tree.add_node(node.id, name=node.name, **node.facts)
        elif several_parents_in:  # below a class with several parents, a class comes once for each
            more += known.parent != node.parent
        else:
            again = f"'{node.parent}' here and '{known.parent}' in {known.place}"
            faults.append(f"{node.place}: '{node.name}' has the parent {again}; keep one")
    for node in first.values():
        if node.parent and node.parent not in first:
            near = nearest(node.parent, first) if len(faults) < SHOWN else ""
            faults.append(f"{node.place}: the parent '{node.parent}' is no class of the file{near}")
        elif node.parent:
            tree.add_edge(node.parent, node.id)
    if not faults and not nx.is_directed_acyclic_graph(tree):
        cycle = [edge[0] for edge in nx.find_cycle(tree)]
        names = KIND_SEPARATOR.join(first[one].name for one in [*cycle, cycle[0]])
        faults.append(f"{first[cycle[0]].place}: a class is above itself: {names}; remove a parent")
    if not tree and not faults:
        faults.append("it has no class")
    if faults:
        raise InvalidData(*faults)
    if more:
        further = count_text(more, "further parent")
        say(f"{several_parents_in}: {further} not taken; a class has its first one")
    return tree


def tree_of_paths(hierarchy: pd.DataFrame) -> Tree:
    """Build the tree of a hierarchy's paths; a class is identified by its whole path.

    Raises:
        InvalidData: no rows, or paths with different levels.

    Example:
        >>> path = '{"kind": "natural", "landmark": "train:7"}'
        >>> rows = pd.DataFrame({"split": ["train"], "landmark_id": [7], "path": [path]})
        >>> dict(tree_of_paths(rows).nodes(data="name"))
        {'1.0': 'natural', '2.0': 'train:7'}
    """
    classes = number_classes(hierarchy)
    tree = nx.DiGraph(levels=classes.levels)
    for row in records(classes.table):
        level, own = row["level"], f"{row['level']}.{row['id']}"
        tree.add_node(own, name=row["name"])
        if row["parent_id"] >= 0:
            tree.add_edge(f"{level - 1}.{row['parent_id']}", own)
    finest = len(classes.levels)
    columns = (classes.landmarks[name] for name in ("split", "landmark_id", f"level_{finest}"))
    for split, landmark_id, number in zip(*columns, strict=True):
        leaf = tree.nodes[f"{finest}.{number}"]
        if split in leaf.get("split", "").split():
            several = f"the class of several rows of {split}"
            raise InvalidData(f"'{leaf['name']}' is {several}; give each a name")
        facts = {"split": split, "landmark_id": int(landmark_id)}
        leaf |= {name: f"{leaf[name]} {f}" if name in leaf else f for name, f in facts.items()}
    return tree


def paths_of_tree(tree: Tree) -> pd.DataFrame:
    """Return ``hierarchy`` of a tree whose leaves all have the same depth.

    Leaves without split and id are numbered by name in the split train. Levels without a name are
    "level 1", ...

    Raises:
        InvalidData: leaves at different depths, or another number of names.
    """
    paths = {leaf: _path_to(tree, leaf) for leaf in _leaves(tree)}
    depths = {len(path): leaf for leaf, path in paths.items()}
    if len(depths) > 1:
        shown = ", ".join(
            f"'{tree.nodes[leaf]['name']}' at {depth}" for depth, leaf in sorted(depths.items())
        )
        raise InvalidData(
            f"the leaves are at different depths ({shown}), but paths need equal ones; choose "
            "depths with --depths, such as --depths 2,4"
        )
    (depth,) = depths
    names = tree.graph.get("levels") or [f"level {i}" for i in range(1, depth + 1)]
    if len(names) != depth:
        raise InvalidData(f"the tree has {depth} levels, but {len(names)} names: {list(names)}")

    split_ids = {leaf: tree.nodes[leaf]["name"].partition(":")[::2] for leaf in paths}
    # of landmarks if all names are such, not of a class "16:9" or a "train:12" among others
    are_landmarks = all(s in ID_SPACES and own.isdecimal() for s, own in split_ids.values())
    named = [([tree.nodes[one]["name"] for one in path], leaf) for leaf, path in paths.items()]
    rows = []
    for number, (path, leaf) in enumerate(sorted(named, key=lambda one: one[0])):
        facts = tree.nodes[leaf]
        text = dict(zip(names, path, strict=True))
        known = dict(zip(("split", "landmark_id"), split_ids[leaf], strict=True))
        known = known if are_landmarks else {}
        row = {"split": "train", "landmark_id": number, **known, **facts}
        ids = zip(row["split"].split(), str(row["landmark_id"]).split(), strict=False)
        cell = json.dumps(text, ensure_ascii=False)
        rows += [{"split": one, "landmark_id": int(own), "path": cell} for one, own in ids]
    return table_of("hierarchy", rows).sort_values(["split", "landmark_id"], ignore_index=True)


def cut_tree(
    tree: Tree,
    classes: Sequence[str],
    depths: Sequence[int],
    ids: Sequence[str] = (),
    names: Mapping[str, Sequence[str]] | None = None,
    ranked: Collection[str] = (),
    *,
    rows: Sequence[int] = (),
) -> tuple[Tree, dict[str, str]]:
    """Give classes their ancestors at fixed depths, as coarse labels.

    Args:
        tree: a larger one, such as WordNet.
        classes: names of the classes; a name counts without regard to capitals and "_".
        depths: of the ancestors, 1 is a root; a class that is less deep has its own parent there.
        ids: of the classes in the tree, if names are ambiguous; empty ones are found by name.
        names: further names in the tree with the ids that have them.
        ranked: those of them of which the first of several ids is the most frequent one and counts;
            any other name with several is ambiguous, and its class left out.
        rows: of the classes in their file, for the reasons; default: counted below a header.

    Returns:
        A tree with the levels of the depths and the classes as leaves; class -> why it is left out.

    Raises:
        InvalidData: all classes are left out; with each one's reason.

    Example:
        >>> rows = [("a", "", "animal"), ("d", "a", "dog"), ("p", "d", "pug"), ("c", "a", "cat")]
        >>> tree = build_tree(ClassNode(*row, "") for row in rows)
        >>> cut, left = cut_tree(tree, ["Pug", "cat", "car"], [1, 2])
        >>> paths_of_tree(cut)["path"].tolist()[1], left
        ('{"level 1": "animal", "level 2": "dog", "class": "Pug"}', {'car': 'not in the tree'})
    """
    found: dict[str, list[str]] = {}
    for one, name in tree.nodes(data="name"):
        found.setdefault(folded_name(name), []).append(one)
    for name, meant in (names or {}).items():
        known = found.get(folded_name(name), [])
        # Without an order of senses the first word of a synset counts before further ones.
        ones = [*meant, *known] if name in ranked else known or meant
        found[folded_name(name)] = [one for one in dict.fromkeys(ones) if one in tree]
    several, by_frequency = list[str](), {folded_name(name) for name in ranked}
    left: dict[str, str] = {}
    nodes: dict[str, ClassNode] = {}
    rows = rows or range(2, len(classes) + 2)
    for number, (row, name) in enumerate(zip(rows, classes, strict=True)):
        given = ids[number] if ids else ""
        candidates = [given] if given in tree else [] if given else found.get(folded_name(name), [])
        if len(candidates) > 1 and folded_name(name) in by_frequency:
            several.append(f"'{name}' ({candidates[0]})")
            candidates = candidates[:1]
        if not name.strip():
            left[f"row {row}"] = "an empty name; name it or remove the row"
        elif f"class {name}" in nodes:
            left[f"{name} (row {row})"] = "the second class of this name; rename one"
        elif len(candidates) > 1:
            left[name] = f"ambiguous, name its id: {', '.join(candidates[:SHOWN])}"
        elif not candidates:
            left[name] = f"no class '{given}' in the tree" if given else "not in the tree"
        else:
            above = _path_to(tree, candidates[0])[:-1]
            if not above:
                left[name] = "a root of the tree, so that nothing is above it"
                continue
            parent = ""
            for level, depth in enumerate(depths):
                own = above[min(depth, len(above)) - 1]
                key = f"{level} {parent} {own}"
                nodes[key] = ClassNode(key, parent, tree.nodes[own]["name"], name)
                parent = key
            nodes[f"class {name}"] = ClassNode(f"class {name}", parent, name, name)
    if several:
        say(
            f"{part_text(len(several), len(classes), 'class', 'have')} several senses; the "
            f"most frequent one counts, as for {', '.join(several[:SHOWN])}; ids choose others"
        )
    if not nodes:
        reasons = (f"  {name}: {why}" for name, why in left.items())
        raise InvalidData(f"none of {count_text(len(classes), 'class')} is in the tree", *reasons)
    levels = (*(f"level {i}" for i in range(1, len(depths) + 1)), "class")
    return build_tree(nodes.values(), levels), left


def taxonomy_of_tree(tree: Tree) -> pd.DataFrame:
    """Return ``taxonomy`` of the levels above the leaves.

    Raises:
        InvalidData: leaves at different depths, two supercategories of one name, or a class above
            them with the separator of a kind in its name.
    """
    paths = [list(json.loads(text).values()) for text in paths_of_tree(tree)["path"]]
    kinds: dict[str, str] = {}
    if odd := next((n for *above, _, _ in paths for n in above if KIND_SEPARATOR in n), ""):
        raise InvalidData(f"'{odd}' holds '{KIND_SEPARATOR}', which joins classes; rename it")
    for *above, name, _ in paths:
        kind = KIND_SEPARATOR.join(above)
        if kinds.setdefault(name, kind) != kind:
            raise InvalidData(f"'{name}' is below '{kind}' and '{kinds[name]}'; rename one of them")
    rows = [{"supercategory": n, "kind": kind, "definition": ""} for n, kind in kinds.items()]
    return table_of("taxonomy", rows).sort_values("supercategory", ignore_index=True)


def describe_tree(tree: Tree) -> str:
    """Return the number of classes, leaves and depths as a line.

    Example:
        >>> describe_tree(build_tree([ClassNode("0", "", "lake", "row 2")]))
        '1 class, 1 leaf, depth 1'
    """
    leaves = _leaves(tree)
    depths = sorted({len(_path_to(tree, leaf)) for leaf in leaves})
    said = f"{depths[0]}" if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"
    ends = "leaf" if len(leaves) == 1 else "leaves"
    return f"{count_text(len(tree), 'class')}, {len(leaves):,} {ends}, depth {said}"


def _leaves(tree: Tree) -> list[str]:
    return [one for one in tree if not tree.out_degree(one)]


def _path_to(tree: Tree, node: str) -> list[str]:
    """Return the nodes from the root down to this one."""
    path = [node]
    while parents := list(tree.predecessors(path[-1])):
        path.append(parents[0])
    return path[::-1]
