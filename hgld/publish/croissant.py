"""The Croissant 1.1 document of a release: the content of the files and its origin.

Croissant (MLCommons) is the machine-readable form of a data card: every file with its hash,
every column with its type, and, by W3C's PROV and the vocabulary for responsible AI, how labels
came to be and how far annotators agree. It is plain JSON-LD, so writing it needs no library.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgld.artifacts import KINDS
from hgld.hierarchy.kinds import kinds_to_choose
from hgld.publish.content import Photos, Release, ReleaseTable
from hgld.words import count_text, share_text

Json = dict[str, Any]

SPECIFICATIONS = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
LICENSES = {
    "cc-by-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "cc-by-sa-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "cc0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
}
GLDV2 = "https://github.com/cvdfoundation/google-landmark"
WIKIDATA = "https://www.wikidata.org/"
CITATION = (
    "Weyand et al., Google Landmarks Dataset v2, CVPR 2020; "
    "Ramzi et al., Optimization of Rank Losses for Image Retrieval"
)
TYPES = {"int": "cr:Int64", "text": "sc:Text", "float": "cr:Float64"}
FORMATS = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/x-parquet",
    ".png": "image/png",
    ".tar": "application/x-tar",
}
SPLIT_CLASSES = {
    "train": "cr:TrainingSplit",
    "validation": "cr:ValidationSplit",
    "evaluation": "cr:TestSplit",
    "test": "cr:TestSplit",
}
EQUIVALENT = {  # column -> the property that it states of the landmark
    "class_id": "wdt:P31",
    "instance_of": "wdt:P31",
    "supercategory": "wdt:P31",  # of the published labels: the scraped text
    "category": "sc:url",
    "commons_url": "sc:url",
}
DECIDED = {  # column of the lineage -> what it says of the supercategory beside it
    "item_id": "prov:wasDerivedFrom",
    "who": "prov:wasAttributedTo",
    "when": "prov:generatedAtTime",
    "decided_by": "prov:wasGeneratedBy",
}
# names of the vocabulary, by the specification's first appendix, and those of provenance
OWN = (
    "annotation arrayShape citeAs column containedIn equivalentProperty excludes extract field "
    "fileObject fileProperty fileSet format includes isArray isLiveDataset jsonPath key md5 "
    "parentField path readLines recordSet references regex repeated replace samplingRate "
    "sdVersion separator source subField transform unArchive"
)
CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{word: f"cr:{word}" for word in OWN.split()},
}
SAMPLE_COLUMNS = {
    "key": "sc:Text",
    "image_id": "sc:Text",
    "landmark_id": "cr:Int64",
    "width": "cr:Int64",
    "height": "cr:Int64",
    "author": "sc:Text",
    "license": "sc:Text",
    "title": "sc:Text",
    "url": "sc:Text",
    "sha256": "sc:Text",
}


def describe_release(release: Release, folder: Path, sums: Mapping[str, str]) -> Json:
    """The document of a folder that holds everything else; ``sums`` are hashes by file."""
    options = release.options
    languages = release.context.languages
    creators = options.creators or release.reviewers or [f"authors of {options.name}"]
    document: Json = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": options.name,
        "description": _describe(release),
        "conformsTo": list(SPECIFICATIONS),
        "url": options.url or "README.md",
        "version": options.version,
        "datePublished": release.context.now,
        "creator": [{"@type": "sc:Organization", "name": name} for name in creators],
        "keywords": [
            "image retrieval",
            "hierarchical labels",
            *([] if release.road == "folder" else ["landmarks"]),
        ],
        "inLanguage": languages[0] if len(languages) == 1 else list(languages),
        "isLiveDataset": False,
    }
    if release.license:
        document["license"] = LICENSES.get(release.license, release.license)
    of_gldv2 = release.road != "folder" and not release.made
    document["citeAs"] = CITATION if of_gldv2 else f"{options.name} {options.version}"
    document |= _provenance(release) | _responsible_ai(release)
    document["distribution"] = _files(release, folder, sums)
    of_landmarks = [] if release.road == "folder" else [_kinds(release), _supercategories(release)]
    tables = [_table(sheet) for sheet in release.sheets if sheet.name != "taxonomy"]
    images = _images(release.photos) if release.photos else []
    document["recordSet"] = [*of_landmarks, *tables, *images]
    return document


def _describe(release: Release) -> str:
    what = {
        "decisions": 'Landmarks with their "instance of" value, reviewed supercategory and kind.',
        "published": "Landmarks with their supercategory and kind, as they were published before.",
        "folder": "Classes with their place in a hierarchy.",
    }[release.road]
    source = "a made world" if release.made else "Google Landmarks v2"
    parts = [what] if release.road == "folder" else [what, f"The landmarks are those of {source}."]
    with_images = "Images are in the shards." if release.photos else "Labels only, no images."
    return " ".join([*parts, with_images])


def _provenance(release: Release) -> Json:
    """Sources, activities and agents of the labels (PROV-O)."""
    words = {
        "decisions": "scrape, clustering of text embeddings, review by value",
        "published": "reading of published label files",
        "folder": f"reading of {release.origin}",
    }
    scraped = [WIKIDATA] if release.road == "decisions" else []
    sources = [GLDV2, *scraped]
    known = not release.made and release.road != "folder"
    if release.sheet("linked") and not known:
        sources, known = [WIKIDATA], True
    agents = [{"@type": "prov:Agent", "prov:label": who} for who in release.reviewers]
    return {
        **({"prov:wasDerivedFrom": [{"@id": url} for url in sources]} if known else {}),
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": words["decisions" if release.reviewed else release.road],
            "prov:endedAtTime": release.context.now,
        },
        **({"prov:wasAttributedTo": agents} if agents else {}),
    }


def _responsible_ai(release: Release) -> Json:
    """Properties of the vocabulary for responsible AI, as far as the run knows them."""
    one, each = ("class", "classes") if release.road == "folder" else ("landmark", "landmarks")
    things = "classes" if release.road == "folder" else "places"
    facts: Json = {
        "rai:dataLimitations": [
            f"One {one} has one path, though many {things} are several things at once.",
            f"Labels are of {each}; images were not looked at one by one.",
        ],
        "rai:dataUseCases": ["training and measuring hierarchical image retrieval"],
        "rai:dataReleaseMaintenancePlan": "Corrections make a new version; an image is taken out "
        "at its author's wish.",
    }
    if release.road != "folder":
        biases = "Places that Wikimedia Commons covers well are over-represented."
        facts["rai:dataBiases"] = [biases]
        if groups := release.groups:
            largest = max(groups, key=lambda group: (group.all_landmarks, group.name))
            share = largest.all_landmarks / max(1, sum(group.all_landmarks for group in groups))
            facts["rai:dataBiases"].append(
                f"{share_text(share)} of the landmarks are of one supercategory, {largest.name}."
            )
    missing = [f"{space}: {reason}: {n}" for space, reason, n in release.dropped_landmarks()]
    if missing:
        facts["rai:dataCollectionMissingData"] = f"{each} without a label: " + "; ".join(missing)
    if release.photos is not None:
        facts["rai:personalSensitiveInformation"] = [
            "Images may show people; authors of images are named, as their licences ask."
        ]
    return facts | (_annotation(release) if release.reviewed else {})


def _annotation(release: Release) -> Json:
    """The way of deciding on the labels, and the agreement of two annotators."""
    one = "class" if release.road == "folder" else "landmark"
    facts: Json = {
        "rai:dataAnnotationProtocol": [
            "Every distinct value was put into a supercategory of a written taxonomy, or dropped; "
            f"a {one} has the supercategory of its value."
        ],
        "rai:dataAnnotationPlatform": ["hgld review: sheets and an offline page"],
        "rai:machineAnnotationTools": ["text embedding and k-means, as proposals to reviewers"],
    }
    if release.agreement:
        facts["rai:annotationsPerItem"] = str(len(release.agreement["annotators"]))
        values = count_text(release.agreement["values"], "value")
        analysis = facts["rai:dataAnnotationAnalysis"] = []
        for row in release.agreement["measures"]:
            found = f"{row['of']}, by {row['by']}, {values}: agreement {row['agreement']:.4f}, "
            if row["kappa"] is None:
                found += str(row["note"])
            else:
                bounds = f"{row['low']:.4f} to {row['high']:.4f}"
                found += f"Cohen's kappa {row['kappa']:.4f} (95 % interval {bounds})"
            analysis.append(found)
    return facts


def _files(release: Release, folder: Path, sums: Mapping[str, str]) -> list[Json]:
    """Every file that has a known format, and the images inside the tars as a set."""
    shown = sorted(name for name in sums if Path(name).suffix in FORMATS)
    files: list[Json] = [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "contentSize": f"{(folder / name).stat().st_size} B",
            "encodingFormat": FORMATS[Path(name).suffix],
            "sha256": sums[name],
        }
        for name in shown
    ]
    tars = [{"@id": file["@id"]} for file in files if file["@id"].endswith(".tar")]
    if not tars:
        return files
    images = {
        "@type": "cr:FileSet",
        "@id": "image-files",
        "name": "image-files",
        "description": "The images in the shards.",
        "containedIn": tars,
        "encodingFormat": "image/jpeg",
        "includes": "*.jpg",
    }
    return [*files, images]


def _kinds(release: Release) -> Json:
    kinds = kinds_to_choose(group.kind for group in release.groups)
    rows = [{"kinds/name": kind} for kind in sorted(kinds)]
    fields = [_field("kinds", "name", "sc:Text")]
    about = "The two kinds." if kinds is KINDS else "The classes above the supercategories."
    return _record_set("kinds", fields, "name", about, "sc:Enumeration") | {"data": rows}


def _supercategories(release: Release) -> Json:
    """The taxonomy's rows where it is released, else the groups that the labels have."""
    name, about = "supercategories", "The supercategories, each of one kind."
    sheet = release.sheet("taxonomy")
    columns = {"name": "supercategory", "kind": "kind"}
    if sheet is not None:
        columns["definition"] = "definition"
    fields = [
        _field(name, word, "sc:Text", _column(sheet.file, column) if sheet else None)
        for word, column in columns.items()
    ]
    fields[1]["references"] = {"field": {"@id": "kinds/name"}}
    found = _record_set(name, fields, "name", about, "sc:Enumeration")
    if sheet is not None:
        return found
    data = [{f"{name}/name": g.name, f"{name}/kind": g.kind} for g in release.groups]
    return found | ({"data": data} if data else {})


def _table(sheet: ReleaseTable) -> Json:
    """A table with a field a column; the lineage says of each supercategory where it is from."""
    fields = []
    is_lineage, is_labels = sheet.name == "lineage", sheet.name.endswith("_labels")
    for column, kind in sheet.artifact.columns.items():
        field = _field(sheet.name, column, TYPES[kind], _column(sheet.file, column))
        is_decided = is_lineage and column == "supercategory"
        if column in EQUIVALENT and (is_labels or is_lineage) and not is_decided:
            field["equivalentProperty"] = EQUIVALENT[column]
        fields.append(field)
        if is_decided:  # from the columns beside it
            field["annotation"] = [
                _field("lineage/supercategory", name, "sc:Text", _column(sheet.file, name))
                | {"equivalentProperty": says}
                for name, says in DECIDED.items()
            ]
        if is_labels and column == "hierarchical_label":
            field["dataType"] = ["sc:Text", "cr:Label"]
    key = next(iter(sheet.artifact.key), "")
    about = f"{count_text(len(sheet.rows), 'row')} of {sheet.file}."
    return _record_set(sheet.name, fields, key if len(sheet.artifact.key) == 1 else "", about)


def _images(photos: Photos) -> list[Json]:
    """Splits; samples with what the index says; and the images themselves, joined by key."""
    splits = sorted({str(shard["split"]) for shard in photos.shards})
    data = [
        {"splits/name": split, "splits/url": SPLIT_CLASSES.get(split, "cr:Split")}
        for split in splits
    ]
    named = [_field("splits", "name", "sc:Text"), _field("splits", "url", "sc:URL")]
    about = "Splits of the images; index is the gallery that test is searched in."
    index = "shards/index.parquet"
    fields = [
        _field("samples", column, kind, _column(index, column))
        for column, kind in SAMPLE_COLUMNS.items()
    ]
    split = _field("samples", "split", "sc:Text", _column(index, "split"))
    split["references"] = {"field": {"@id": "splits/name"}}
    key = _field("images", "key", "sc:Text", _of_images("filename"))
    # the name of a member is the key of its sample, which the index has
    key["source"]["transform"] = {"regex": r"([^/]*)\.jpg$"}
    content = _field("images", "content", "sc:ImageObject", _of_images("content"))
    return [
        _record_set("splits", named, "name", about, "cr:Split") | {"data": data},
        _record_set("samples", [*fields, split], "key", "One row a sample."),
        _record_set("images", [key, content], "key", "The images, by the key of their sample."),
    ]


def _of_images(what: str) -> Json:
    return {"fileSet": {"@id": "image-files"}, "extract": {"fileProperty": what}}


def _column(file: str, column: str) -> Json:
    return {"fileObject": {"@id": file}, "extract": {"column": column}}


def _field(place: str, name: str, kind: str, source: Json | None = None) -> Json:
    field = {"@type": "cr:Field", "@id": f"{place}/{name}", "name": name, "dataType": kind}
    return field | ({"source": source} if source else {})


def _record_set(name: str, fields: Sequence[Json], key: str, about: str, kind: str = "") -> Json:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": about,
        **({"dataType": kind} if kind else {}),
        **({"key": {"@id": f"{name}/{key}"}} if key else {}),
        "field": list(fields),
    }
