from pathlib import Path

import pytest
from pydantic import ValidationError

from hgld.config import (
    EmbedOptions,
    EvaluateOptions,
    ExportOptions,
    ScrapeOptions,
    TrainOptions,
    default_work,
    load_pipeline,
)
from hgld.errors import UsageError
from hgld.words import nearest

SHIPPED = [*sorted(Path("pipelines").glob("*.toml")), Path("tests/real/washington.toml")]


def write(folder: Path, text: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(f'labels = "labels"\n{text}', encoding="utf-8")
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=str)
def test_every_shipped_pipeline_loads(path: Path) -> None:
    assert load_pipeline(path).title


def test_a_set_option_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[cluster]\nclusters = 5")
    assert load_pipeline(path, ["cluster.clusters=7"]).cluster.clusters == 7


def test_a_set_option_may_be_plain_text(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, ""), ["scrape.contact=a@example.org"])
    assert pipeline.scrape.contact == "a@example.org"


def test_one_number_of_a_tar_is_a_text(tmp_path: Path) -> None:
    assert load_pipeline(write(tmp_path, "[fetch]\ntars = 7"), ["fetch.tars=5"]).fetch.tars == "5"


def test_numbers_of_landmarks_to_hold_out_are_texts(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, "[collect]\nevaluation_classes = [3, 5]"))
    assert pipeline.collect.evaluation_classes == ("3", "5")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("collect.evaluation_classes=3", r"collect\.evaluation_classes: expected a list \(found 3"),
        (
            "collect.evaluation_classes=[[]]",
            r"collect\.evaluation_classes\.0: input should be a val",
        ),
        ("train.eval_resize=x", r"train\.eval_resize: input should be a valid integer"),
        ("train.augmentation.resize=[1]", r"train\.augmentation\.resize: value 2 is missing"),
        ("report.compared=[]", r"report\.compared: value 1 is missing \(found \[\]\); report\.com"),
        ('report.compared=["a", "a"]', "report: compared names a twice; name two models"),
        ("cluster.clusters=true", r"cluster\.clusters: expected a number \(found True\)"),
        ("embed.photos=true", r"embed\.photos: expected a number \(found True\)"),
        ("export.memory_gb=false", r"export\.memory_gb: expected a number \(found False\)"),
        ("train.device=gpu", r"train\.device: expected auto, cpu, cuda, .* \(found .gpu.\)"),
        ("embed.device=CUDA", r"embed\.device: expected auto, cpu, cuda, .* \(found .CUDA.\)"),
        ("evaluate.device=mps", r"evaluate\.device: expected auto, .* \(found .mps.\)"),
        ("evaluate.device=cpu:1", r"evaluate\.device: expected auto, .* \(found .cpu:1.\)"),
        ("export.ray=", r"export\.ray: expected host:port, .* or auto .* \(found ..\)"),
        ("fetch.ray=head", r"fetch\.ray: expected host:port, .* or auto .* \(found .head.\)"),
        ("evaluate.ray=http://head:8265", r"evaluate\.ray: expected host:port, "),
        ("export.ray=:", r"export\.ray: expected host:port, "),
        ("evaluate.ray=ray://", r"evaluate\.ray: expected host:port, "),
        ("export.cpus_per_task=0.33333", r"export\.cpus_per_task: expected four decimals at most"),
        ("evaluate.gpus_per_task=0.00001", "gpus_per_task is 1e-05; Ray .* four decimals at most"),
        ("train.images_per_class=4000000000", r"images_per_class: expected a number below 2\^31"),
        ("train.batches.images_cap=4000000000", r"images_cap: expected a number below 2\^31"),
        ("scrape.refresh_older_than=4000000000", r"older_than: expected a number below 2\^31"),
        ("train.defaults.milestones=[4000000000]", r"milestones: expected a number below 2\^31"),
        ("source.toy.size=100000", r"source\.toy\.size: input should be less .* 16384"),
        (
            "export.memory_gb=1e30",
            r"export\.memory_gb: input should be less than or equal to 1000000",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_without_words_of_python(
    tmp_path: Path, setting: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        load_pipeline(write(tmp_path, ""), [setting])
    assert not any(
        word in str(refused.value) for word in ("tuple[", "constrained", "union", "--set")
    )


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            "publish.license=CC BY 4.0",
            "license is 'CC BY 4.0'; expected Hugging Face's name of one",
        ),
        ('publish.creators=["A", " A"]', "creators are .'A', 'A'.; expected different names"),
        ('publish.creators=[" "]', "creators are .''.; expected different names"),
        ("publish.version=٣.1.1", "publish.version: string should match pattern"),
    ],
)
def test_a_release_whose_card_would_be_wrong_is_refused(
    tmp_path: Path, setting: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        load_pipeline(write(tmp_path, ""), [setting])


def test_a_blank_name_is_no_release(tmp_path: Path) -> None:
    assert load_pipeline(write(tmp_path, ""), ["publish.name= "]).publish.name == ""


def test_true_is_a_value_of_an_option_that_may_be_left_to_the_model(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, ""), ["train.freeze_batch_norm=true"])
    assert pipeline.train.freeze_batch_norm is True


def test_paths_are_relative_to_the_pipeline_file(tmp_path: Path) -> None:
    assert load_pipeline(write(tmp_path, "")).labels == tmp_path / "labels"


def test_a_variable_in_a_path_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, '[source]\nfolder = "${PHOTOS:-here}/x"')
    assert load_pipeline(path).source.folder == tmp_path / "here/x"
    monkeypatch.setenv("PHOTOS", "/data")
    assert load_pipeline(path).source.folder == Path("/data/x")


def test_a_path_may_begin_with_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path = write(tmp_path, '[source]\nfolder = "~/x"')
    assert load_pipeline(path).source.folder == Path("/home/me/x")
    assert load_pipeline(path, ["source.folder=~/y"]).source.folder == Path("/home/me/y")


def test_a_pipeline_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path, "[cluster]\nclusters = 5")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_pipeline(path).cluster.clusters == 5


@pytest.mark.parametrize(
    "option",
    [
        "cluster.restarts",
        "embed.batch_size",
        "evaluate.batch_size",
        "fetch.parallel",
        "train.checkpoint_steps",
    ],
)
def test_a_count_that_does_nothing_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: input should be greater than or equal to 1"):
        load_pipeline(write(tmp_path, ""), [f"{option}=0"])


def test_a_decay_that_grows_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="weight_decay: input should be greater than or equal to "):
        load_pipeline(write(tmp_path, ""), ["train.defaults.weight_decay=-1e-4"])


def test_runs_take_what_they_do_not_say_from_the_defaults(tmp_path: Path) -> None:
    text = "[train.defaults]\nsteps = 3\n[train.runs.a]\nlr = 0.5\n[train.runs.b]\nsteps = 4"
    runs = load_pipeline(write(tmp_path, text)).train.runs
    assert (runs["a"].steps, runs["a"].lr, runs["b"].steps) == (3, 0.5, 4)


STEPS_AT_BATCH = """
[train]
classes_per_batch = 32
images_per_class = 4
steps_at_batch = 128
batches = { groups_per_batch = 2, batches_per_combination = 10 }
[train.defaults]
steps = 66_000
warmup_steps = 3_300
milestones = [19_800, 46_200]
memory_start = 660
[train.runs.a]
[train.runs.pretrained]
steps = 0
"""


def test_another_batch_sees_as_many_images_in_fewer_steps(tmp_path: Path) -> None:
    train = load_pipeline(write(tmp_path, STEPS_AT_BATCH), ["train.classes_per_batch=96"]).train
    run = train.runs["a"]
    assert (run.steps, run.warmup_steps, run.memory_start) == (22_000, 1_100, 220)
    assert run.milestones == (6_600, 15_400) and train.runs["pretrained"].steps == 0
    assert train.batches.batches_per_combination == 3


@pytest.mark.parametrize(
    "settings", [[], ["train.classes_per_batch=96", "train.steps_at_batch=384"]]
)
def test_the_batch_that_steps_are_given_for_leaves_them(
    tmp_path: Path, settings: list[str]
) -> None:
    train = load_pipeline(write(tmp_path, STEPS_AT_BATCH), settings).train
    assert train.runs["a"].steps == 66_000 and train.runs["a"].milestones == (19_800, 46_200)
    assert train.batches.batches_per_combination == 10


def test_a_scaled_run_keeps_a_step_and_a_wrong_batch_is_one_error(tmp_path: Path) -> None:
    path = write(tmp_path, STEPS_AT_BATCH)
    few = load_pipeline(path, ["train.classes_per_batch=96", "train.defaults.steps=1"])
    assert few.train.runs["a"].steps == 1
    with pytest.raises(UsageError, match="images_per_class: input should be a valid integer"):
        load_pipeline(path, ["train.images_per_class=x"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[clustr]", "unknown key 'clustr'; did you mean 'cluster'?"),
        ("[cluster]\ncluster = 3", "unknown key 'cluster.cluster'; did you mean 'clusters'?"),
        ("[train.runs.a]\nlos = 3", "unknown key 'train.runs.a.los'; did you mean 'loss'?"),
        ("[source.toy]\nseeds = 3", "unknown key 'source.toy.seeds'; did you mean 'seed'?"),
        ("[train]\nsteps = 3", "unknown key 'train.steps'; did you mean 'train.defaults.steps'?"),
        ("[train.runs.a]\nseed = 3", "'train.runs.a.seed'; did you mean 'train.seed'?"),
        ("backbone = 3", "unknown key 'backbone'; did you mean 'train.backbone'?"),
        ("[cluster]\nclusters = 'x'", "cluster.clusters: input should be a valid integer"),
        ("[review]\nmin_coverage = 2", "review.min_coverage: input should be less than or equal"),
        ("[train.runs.'../x']", "train.runs.../x.[key]: a run's name is a folder's"),
        ("[train.runs.'..']", "a run's name is a folder's"),
        ("[train]\nruns = {}", "train.runs: dictionary should have at least 1 item"),
        ("[train]\nruns = 3", "train.runs: expected a table (found 3)"),
        ("[train.runs]\na = 3", "train.runs.a: expected a table (found 3)"),
        ("[cluster]\nseed = -1", "cluster.seed: input should be greater than or equal to 0"),
        ("[export]\nshort_side = 0", "export.short_side: input should be greater than"),
        ("[export]\nshard_megabytes = inf", "shard_megabytes: input should be a finite number"),
        ("cluster = 3", "cluster: expected a table (found 3)"),
        ("[evaluate]\nmetrics = 3", "evaluate.metrics: expected a list (found 3)"),
        ("[source]\nfolder = 3", "source.folder: expected a path (found 3)"),
        ("[train.augmentation]\ncrop_scale = [1.0, 0.2]", "expected the least, then the largest"),
        (
            "[label]\nsource = 'native'\n[publish]\nname = 'X'",
            'native" makes no release, as the lab',
        ),
        ("[source]\nfolder = '${NOPE}/x'", "source.folder: the variable NOPE is not set"),
        ("[", "not a TOML file"),
    ],
)
def test_a_wrong_pipeline_file_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"pipeline\.toml") as caught:
        load_pipeline(write(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value).strip() or text == "["


def test_a_pipeline_without_labels_names_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text("title = 'x'")
    with pytest.raises(UsageError, match="labels is missing; add it to the file, or give it by"):
        load_pipeline(tmp_path / "pipeline.toml")


@pytest.mark.parametrize("setting", ["cluster.clusters", "=3", "cluster.=3", "cluster..seed=3"])
def test_a_setting_without_a_name_or_a_value_is_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(UsageError, match=r"expected stage.option=value"):
        load_pipeline(write(tmp_path, ""), [setting])


def test_a_setting_is_one_value_and_a_wrong_one_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    says = r"pipeline\.toml with the options given: cluster\.clusters: .* \(found '7\\nx=3'\)"
    with pytest.raises(UsageError, match=says):
        load_pipeline(write(tmp_path, ""), ["cluster.clusters=7\nx=3"])


def test_a_missing_pipeline_file_names_the_folder_of_those_that_ship() -> None:
    with pytest.raises(UsageError, match="pipelines/ holds those that ship"):
        load_pipeline(Path("nowhere.toml"))


def test_no_word_is_near_a_strange_one() -> None:
    assert nearest("xyzzy", ["cluster", "seed"]) == ""


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ('link.table="items.csv"', r'link\.table needs scrape\.source = "items"'),
        ("cluster.ancestry=2", r'cluster\.ancestry needs scrape\.source = "items"'),
    ],
)
def test_options_of_items_without_items_are_refused(option: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path, '[scrape]\nsource = "names"')
    with pytest.raises(UsageError, match=says):
        load_pipeline(path, [option])
    load_pipeline(path, [option, 'scrape.source="items"', "scrape.most_hops=3"])


def test_a_model_to_evaluate_that_no_run_trains_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, '[train.runs.happier]\n[evaluate.models]\nmine = "run:hapier"\n')
    with pytest.raises(UsageError, match=r"\.toml: evaluate\.models\.mine: train has no run") as e:
        load_pipeline(path)
    assert str(e.value).endswith("(it has happier); did you mean 'happier'?")


def test_the_model_of_one_seed_of_a_run_may_be_evaluated(tmp_path: Path) -> None:
    text = '[train]\nseeds = [0, 1]\n[evaluate.models]\nfirst = "run:model-s0"\n'
    assert load_pipeline(write(tmp_path, text)).evaluate.models == {"first": "run:model-s0"}


@pytest.mark.parametrize(
    ("more", "trains"),
    [
        ("", True),
        ('[evaluate.models]\nmine = "timm:resnet50"\n', False),
        ('[evaluate.models]\nmine = "timm:resnet50"\nown = "run:model"\n', True),
        ('[evaluate.models]\nmine = "timm:resnet50"\n[train]\ndim = 64\n', True),
    ],
)
def test_nothing_is_trained_if_all_models_are_given(
    more: str, trains: bool, tmp_path: Path
) -> None:
    assert load_pipeline(write(tmp_path, more)).trains == trains


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5_000])
def test_toml_beyond_what_python_reads_is_refused_in_one_line(value: str, tmp_path: Path) -> None:
    said = r"\.toml: not a TOML file: (nested|line 2: a number of 5,000 digits)"
    with pytest.raises(UsageError, match=said):
        load_pipeline(write(tmp_path, f"x = {value}"))
    with pytest.raises(UsageError, match="unknown key 'x'"):
        load_pipeline(Path("pipelines/quickstart.toml"), [f"x={value}"])


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A pipeline file that is to be written, and the current folder beside its own."""
    file, here = tmp_path / "exp" / "p.toml", tmp_path / "here"
    for folder in (file.parent, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    return file, here


def test_a_path_in_the_file_is_relative_to_it_and_one_of_the_command_line_to_the_current_folder(
    elsewhere: tuple[Path, Path],
) -> None:
    file, here = elsewhere
    file.write_text('labels = "l"\n[source]\nfolder = "photos"\n[evaluate.models]\na = "a.npz"\n')
    assert load_pipeline(file).source.folder == file.parent / "photos"
    settings = ["source.folder=photos", 'evaluate.models={b = "b.npz", c = "timm:resnet50"}']
    pipeline = load_pipeline(file, settings)
    assert (pipeline.labels, pipeline.source.folder) == (file.parent / "l", here / "photos")
    assert pipeline.evaluate.models == {"b": str(here / "b.npz"), "c": "timm:resnet50"}


def test_a_file_of_weights_is_relative_to_the_file_like_other_paths(
    elsewhere: tuple[Path, Path],
) -> None:
    file, here = elsewhere
    clips = 'a = "open_clip:RN50/w.pt"\nb = "open_clip:RN50/openai"\nc = "timm:resnet50/w"\n'
    file.write_text(
        'labels = "l"\n[embed]\nencoder = "local-dir:clip"\nimages = "open_clip:local-dir:clip"\n'
        f'[train]\nbackbone = "resnet50/../w.pth"\n[evaluate.models]\n{clips}'
    )
    found, folder = load_pipeline(file), file.parent
    assert found.embed.encoder == f"local-dir:{folder}/clip"
    assert found.embed.image_encoder == f"open_clip:local-dir:{folder}/clip"
    assert found.train.backbone == f"resnet50/{here.parent}/w.pth"
    models = [f"open_clip:RN50/{folder}/w.pt", "open_clip:RN50/openai", f"timm:resnet50/{folder}/w"]
    assert list(found.evaluate.sources.values()) == models
    settings = ["embed.encoder=ViT-B-32/a/b", "train.backbone=resnet50/w.pth"]
    found = load_pipeline(file, settings)
    assert found.embed.encoder == f"ViT-B-32/{here}/a/b"
    assert found.train.backbone == f"resnet50/{here}/w.pth"


def test_a_model_of_several_seeds_has_a_source_for_each(tmp_path: Path) -> None:
    text = '[evaluate.models]\na = { source = "%s", seeds = %s }\n'
    found = load_pipeline(write(tmp_path, text % ("a-{seed}.npz", [0, 7]))).evaluate
    files = {f"a-s{seed}": f"{tmp_path}/a-{seed}.npz" for seed in (0, 7)}
    assert found.sources == files
    assert {str(path) for path in found.brought_paths().values()} == {*files.values()}
    found = load_pipeline(write(tmp_path, text % ("python:net.py:build_{seed}", [1]))).evaluate
    assert found.sources == {"a-s1": f"python:{tmp_path}/net.py:build_1"}
    for source, seeds in (("a.npz", [0, 1]), ("a-{seed}.npz", []), ("a-{seed}.npz", [0, 0])):
        with pytest.raises(UsageError, match=r"seeds, each once, and \{seed\} in the source need"):
            load_pipeline(write(tmp_path, text % (source, seeds)))


def test_a_model_is_a_text_or_a_table_and_its_code_is_relative_to_the_file(tmp_path: Path) -> None:
    models = 'a = "python:net.py:build"\nb = "python:nets.small:build"\n'
    models += 'c = { source = "python:net.py:build", image_size = 64 }\n'
    found = load_pipeline(write(tmp_path, f"[evaluate.models]\n{models}")).evaluate
    own = f"python:{tmp_path}/net.py:build"
    assert found.sources == {"a": own, "b": "python:nets.small:build", "c": own}
    assert found.models["a"] == own
    net = tmp_path / "net.py"
    assert found.brought_paths() == {"models.a": net, "models.c": net}


def test_the_files_of_a_text_encoder_are_the_users(tmp_path: Path) -> None:
    (tmp_path / "w.pt").touch()
    for name, path in (
        (f"local-dir:{tmp_path}", tmp_path),
        (f"RN50/{tmp_path}/w.pt", tmp_path / "w.pt"),
    ):
        assert EmbedOptions(encoder=name).brought_paths() == {"encoder": path}
    for name in ("offline:minilm", "ViT-L-14/laion2b_s32b_b82k"):
        assert EmbedOptions(encoder=name).brought_paths() == {}


def test_files_of_weights_count_by_their_content(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    weights.touch()
    settings = [f"embed.encoder=ViT-B-32/{weights}", f"train.backbone=resnet50/{weights}"]
    settings.append(f"evaluate.models.a=open_clip:local-dir:{tmp_path}")
    found = load_pipeline(write(tmp_path, ""), settings)
    assert found.embed.brought_paths() == {"encoder": weights}
    assert found.train.brought_paths() == {"backbone": weights}
    assert found.evaluate.brought_paths() == {"models.a": tmp_path}


def test_a_crop_of_more_than_the_photo_is_refused() -> None:
    """As after a lower eval_resize than that of the recipe; the rest of the photo was black."""
    with pytest.raises(ValueError, match="eval_crop is 256, but photos are resized to 72 before"):
        TrainOptions(image_size=64, eval_resize=(72, 80), eval_crop=256)
    with pytest.raises(ValueError, match="eval_crop is 65, but photos are resized to 64 before"):
        TrainOptions(image_size=64, eval_crop=65)
    assert TrainOptions(image_size=64, eval_resize=72, eval_crop=72).eval_crop == 72


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ('"python:net.py"', "evaluate.models.m: expected python:FILE.py:FUNCTION or"),
        ("3", "evaluate.models.m: expected a table (found 3)"),
        ('{ source = "timm:a", sise = 3 }', "unknown key 'evaluate.models.m.sise'"),
        ("{ image_size = 3 }", "evaluate.models.m.source is missing; add it to the file"),
        ('{ source = "timm:a", image_size = 0 }', "evaluate.models.m.image_size: input should be"),
        (
            '{ source = "timm:a", eval_resize = [9, 7], eval_crop = 8 }',
            "evaluate.models.m: eval_crop is 8, but photos are resized to 7 before it",
        ),
        (
            '{ source = "python:a:b", eval_crop = 256 }',
            "evaluate.models.m: eval_crop is 256, but photos are resized to 224 before it",
        ),
        ('{ source = "run:model", eval_crop = 3 }', "eval_crop is not for run:model: a trained"),
    ],
)
def test_a_wrong_model_is_one_clear_line(tmp_path: Path, model: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_pipeline(write(tmp_path, f"[evaluate.models]\nm = {model}\n"))
    assert says in str(caught.value) and "<" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "current", "work"),
    [
        ("pipelines/a.toml", ".", "work/a"),
        ("../pipelines/a.toml", "pipelines", "../work/a"),
        ("a.toml", "pipelines", "../work/a"),
        ("mine.toml", ".", "work/mine"),
        ("exp/mine.toml", ".", "exp/work/mine"),
    ],
)
def test_the_work_folder_is_beside_the_file_or_its_folder_pipelines(
    file: str, current: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    monkeypatch.chdir(tmp_path / current)
    assert default_work(Path(file)) == Path(work)
    assert default_work(Path(file).resolve()) == Path(work).resolve()


@pytest.mark.parametrize("setting", ["train.defaults.stps=5", "train.defaults.lr=fast"])
def test_a_fault_that_all_runs_inherit_is_told_once(setting: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_pipeline(Path("pipelines/sop.toml"), [setting])
    assert "train.defaults." in str(caught.value) and "train.runs." not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["", "commons.example", "file:///x", "http://[x", "http://x:y/", "http://.a."]
)
def test_the_address_of_an_api_is_one(address: str) -> None:
    with pytest.raises(ValidationError, match=r"is not an address such as https://example\.org"):
        ScrapeOptions(commons_api=address)


def test_a_base_gives_what_the_file_does_not_and_keeps_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.toml").write_text(
        'title = "of the base"\nlabels = "labels"\n[train]\ndim = 64\n'
        '[train.runs.a]\nloss = "ROADMAP"\nloss_options = { preset = "paper", lam = 0.1 }\n'
    )
    middle = 'base = "shared/base.toml"\n[train]\nseeds = [1, 2]\n'
    (tmp_path / "middle.toml").write_text(middle)
    own = 'base = "middle.toml"\n[train]\nseeds = [3]\n[train.runs.a.loss_options]\nlam = 0.5\n'
    (tmp_path / "own.toml").write_text(own)
    pipeline = load_pipeline(tmp_path / "own.toml")
    assert (pipeline.title, pipeline.train.dim) == ("of the base", 64)
    assert pipeline.labels == tmp_path / "shared" / "labels"
    assert pipeline.train.seeds == (3,)
    assert pipeline.train.runs["a"].loss_options == {"preset": "paper", "lam": 0.5}


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ('"no.toml"', "no.toml does not exist"),
        ('"own.toml"', "leads back to this file"),
        ('"link.toml"', "leads back to this file"),
        ('"labels"', "labels is not a file"),
        ('""', "expected the path of another pipeline file"),
        ("7", "expected the path of another pipeline file"),
    ],
)
def test_a_base_that_cannot_be_read_is_one_clear_line(tmp_path: Path, base: str, says: str) -> None:
    (tmp_path / "own.toml").write_text(f'base = {base}\nlabels = "labels"\n')
    (tmp_path / "link.toml").symlink_to("own.toml")
    (tmp_path / "labels").mkdir()
    with pytest.raises(UsageError, match=rf"own.toml: base .*{says}"):
        load_pipeline(tmp_path / "own.toml")


def test_a_fault_in_a_base_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[train]\nepochz = 3\n")
    (tmp_path / "own.toml").write_text('base = "base.toml"\nlabels = "labels"\n')
    with pytest.raises(UsageError, match=r"own.toml on its base 'base.toml': unknown key 'train"):
        load_pipeline(tmp_path / "own.toml")


def test_only_the_named_runs_are_trained(tmp_path: Path) -> None:
    path = write(tmp_path, "[train.runs.a]\n[train.runs.b]\n[train.runs.c]\n")
    assert list(load_pipeline(path, ["train.only=['c', 'a']"]).train.runs) == ["c", "a"]
    assert list(load_pipeline(path, ["train.only=[]"]).train.runs) == ["a", "b", "c"]
    with pytest.raises(UsageError, match=r"unknown run 'd' \(there are a, b, c\)"):
        load_pipeline(path, ["train.only=['d']"])
    with pytest.raises(UsageError, match=r"unknown run \['a'\]"):
        load_pipeline(path, ["train.only=[['a']]"])


def test_only_names_runs_also_where_the_file_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    assert list(load_pipeline(path, ["train.only=['model']"]).train.runs) == ["model"]
    with pytest.raises(UsageError, match=r"unknown run 'd' \(there are model\)"):
        load_pipeline(path, ["train.only=['d']"])


@pytest.mark.parametrize(
    "address", ["auto", "local", "head:6379", "ray://head:10001", "10.0.0.1:6379", "[::1]:6379"]
)
def test_addresses_of_a_ray_cluster_are_accepted(address: str) -> None:
    assert EvaluateOptions(ray=address).ray == address


def test_a_gpu_of_this_machine_is_refused_for_tasks_on_a_cluster() -> None:
    with pytest.raises(ValueError, match="device is cuda:5, but Ray chooses the GPUs"):
        EvaluateOptions(ray="auto", device="cuda:5")
    assert EvaluateOptions(ray="auto", device="cuda").device == "cuda"


def test_seeds_may_be_larger_than_counts() -> None:
    assert TrainOptions(seed=2**62, seeds=(2**40, 1)).seed == 2**62


def test_reservations_have_no_effect_without_a_cluster() -> None:
    assert ExportOptions(cpus_per_task=4).without_effect() == ["cpus_per_task"]
    assert ExportOptions(cpus_per_task=4, ray="auto").without_effect() == []
    assert TrainOptions().without_effect() == ExportOptions().without_effect() == []
