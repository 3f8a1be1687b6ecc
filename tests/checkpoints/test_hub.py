"""Checkpoints by name and by URL, from a stand-in for huggingface.co."""

import fnmatch
import itertools
import os
import shutil
import tarfile
from pathlib import Path

import pytest
import stand_in_hub
import tiny_checkpoints
import tiny_run
from huggingface_hub import constants
from refusals import one_line

from albert_tf import hub, provenance
from albert_tf.checkpoints import formats
from albert_tf.tokenizers import tokenization
from albert_tf.train import command_log
from albert_tf.train.start import Start

NAME = "albert/tiny-v2"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The repository as Hugging Face has them: with what nobody here reads."""
    folder = tmp_path_factory.mktemp("published") / "site"
    root = folder / NAME
    vocabulary = tiny_run.write_vocabulary(f"{folder}-vocabulary")
    tiny_checkpoints.write(root, tiny_checkpoints.make(vocabulary), "hugging_face")
    for name in ("pytorch_model.bin", "tf_model.h5", "modeling.py", "onnx/config.json"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"must not be read")
    return folder


@pytest.fixture
def made(published):
    return formats.read(str(published / NAME))


@pytest.fixture
def site(tmp_path, published, monkeypatch):
    shutil.copytree(published, tmp_path / "site")
    with stand_in_hub.serving(tmp_path / "site", monkeypatch) as served:
        yield served


def test_a_repository_is_read_by_its_name_and_then_without_a_network(site, made, monkeypatch):
    for name in (NAME, f"{NAME}@v1", f"hf://{NAME}", f"https://huggingface.co/{NAME}"):
        tiny_checkpoints.assert_same(formats.read(name), made)
    downloaded = {path.rpartition("/")[2] for path in site.requests if "/resolve/" in path}
    assert downloaded >= {"config.json", "model.safetensors", "spiece.model", "tokenizer.json"}
    assert not downloaded & {"pytorch_model.bin", "tf_model.h5", "modeling.py", "README.md"}
    assert not any("onnx" in path for path in site.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    tiny_checkpoints.assert_same(formats.read(NAME), made)


def test_every_file_of_a_vocabulary_is_downloaded():
    names = {*itertools.chain(*tokenization.NAMES.values())}
    assert {x for x in names for y in hub._SETTINGS if fnmatch.fnmatch(x, y)} == names


def test_a_local_folder_wins(site, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_checkpoints.write("albert/other", made)
    for path in ("albert/other", "albert/other/model.ckpt-best"):
        assert formats.read(path).source == "albert/other/model.ckpt-best"
    assert not site.requests
    with one_line("there is nothing at 'albert/other' here"):
        formats.read("hf://albert/other")


def answer(status, **headers):
    return lambda request: request.answer(status, **headers)


def cut(request):
    """Half a file."""
    request.send_response(200)
    for name, value in {"Content-Length": 1000, "ETag": "e", "X-Repo-Commit": "a" * 40}.items():
        request.send_header(name, value)
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(bytes(500))


def loop(request):
    request.answer(302, Location=request.hub.address + request.path)


@pytest.mark.parametrize(
    ("name", "faults", "message"),
    [
        ("albert/none", {}, "nothing at 'albert/none' here, .* no such repository.*log in"),
        ("a--b/c..d", {}, "nothing at 'a--b/c..d' here, and a repository cannot have such a name"),
        (f"{NAME}@v9", {}, f"{NAME} has no revision 'v9'"),
        (NAME, {"/api/models": answer(403, X_Error_Code="GatedRepo")}, "is gated. Accept its ter"),
        (NAME, {"/api/models": answer(401)}, "^there is nothing at .* no such repository.*log in"),
        (NAME, {"/api/models": answer(403)}, "shows you no such repository.*log in"),
        (NAME, {"model.safetensors": loop}, "cannot be reached"),
        (NAME, {"model.safetensors": cut}, "is not here, or is incomplete in .*Run it again"),
        (
            "URL",
            {".tar": answer(403)},
            r"downloaded \(HTTP Error 403: Forbidden\).*your access rights",
        ),
        ("URL", {".tar": cut}, "stopped after 500 of 1,000 bytes. Run it again"),
    ],
)
def test_a_failure_is_one_line(site, archive, monkeypatch, name, faults, message):
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    site.faults, is_url = faults, name == "URL"
    with one_line(message):
        formats.read(archive if is_url else name)
    assert not any(names for _, _, names in os.walk(constants.HF_ASSETS_CACHE))
    site.faults = {}
    formats.read(archive if is_url else NAME)


def test_without_a_network_the_cache_is_named(site, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with one_line(r"incomplete in .*/cache/hub, and .* cannot be reached"):
        formats.read(NAME)
    with one_line(r"is not in .*/cache/assets/.* HF_HUB_OFFLINE is set"):
        formats.read(f"{site.address}/{NAME}/resolve/main/x.tar.gz")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with one_line(r"http://127.0.0.1:9 cannot be reached \(.*refused.*\)"):
        formats.read(NAME)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            '{"registered_name": "keras_hub>AlbertBackbone"}',
            "is a preset of Keras Hub, which cannot",
        ),
        ('{"model_type": "roberta"}', "model_type: 'roberta' is not one of albert, bert"),
        (None, r"has no config\.json: it is not a model"),
        ("{", "is not JSON"),
    ],
)
def test_another_model_is_not_downloaded(site, config, message):
    path = site.folder / NAME / "config.json"
    path.write_text(config) if config else path.unlink()
    with one_line(message):
        formats.read(NAME)
    assert not any("safetensors" in path for path in site.requests)


def test_other_weights_are_read_where_they_are_named(site):
    (site.folder / NAME / "model.safetensors").unlink()
    with one_line(rf"has no model\.safetensors\..*{NAME}/pytorch_model\.bin"):
        formats.read(NAME)
    assert not any(".bin" in path for path in site.requests)
    folder = hub.resolve(f"{NAME}/pytorch_model.bin@v1")
    assert {*os.listdir(folder)} >= {"config.json", "spiece.model", "pytorch_model.bin"}
    assert not any(".h5" in path for path in site.requests)
    assert "tf_model.h5" in os.listdir(hub.resolve(f"{NAME}/tf_model.h5"))
    with one_line(r"has no flax\.bin"):
        formats.read(f"{NAME}/flax.bin")


# Without its list nobody knows that a repository has a vocabulary.
CACHED = itertools.product(("model.safetensors", "config.json", "spiece.model"), (True, False))


@pytest.mark.parametrize(("name", "is_dangling"), [*CACHED][:-1])
def test_an_incomplete_cache_is_named(site, monkeypatch, name, is_dangling):
    path = Path(hub.resolve(NAME), name)
    (path.resolve() if is_dangling else path).unlink()
    shutil.rmtree(path.parents[2] / "trees")  # older caches have no list of the repository's files
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        offline.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        with one_line(r"incomplete (here|in).*Run it again with a network"):
            formats.read(NAME)
    formats.read(NAME)


def test_sentence_embeddings_are_read_by_their_name(site, made):
    tiny_checkpoints.write(site.folder / "my" / "tiny", made, "sentence_transformers")
    assert formats.read("my/tiny").vectors.pooling == "mean"


@pytest.fixture
def archive(site, made, tmp_path):
    tiny_checkpoints.write(site.folder / NAME / "tiny", made)
    with tarfile.open(site.folder / NAME / "tiny.tar.gz", "w:gz") as tar:
        tar.add(site.folder / NAME / "tiny", "tiny")
    return f"{site.address}/{NAME}/resolve/main/tiny.tar.gz"


def test_keys_in_addresses_stay_out_of_what_a_run_keeps(tmp_path, monkeypatch):
    url, public = "https://me:key@site.org/a.tar.gz?token=key&x=y", "https://site.org/a.tar.gz"
    arguments = [f"--init_checkpoint={url}", "--train_files=gs://b/train-?????", "s3://key@b/x"]
    monkeypatch.setattr("sys.argv", ["bin/run_pretraining", *arguments])
    command_log.begin(str(tmp_path), "1 x CPU")
    [record] = command_log.read(str(tmp_path))
    shown = f"'--init_checkpoint={public}' '--train_files=gs://b/train-?????' s3://b/x"
    assert record["command"] == f"bin/run_pretraining {shown}"
    assert Start(init_checkpoint=url, which="newest").name == f"{public} --which=newest"


def test_an_archive_is_read_by_its_url(site, made, archive, tmp_path, capsys):
    assert formats.read(archive).config == made.config
    assert "tiny.tar.gz: 100%" in capsys.readouterr().err
    site.faults = {"": answer(500)}
    checkpoint = formats.read(archive)  # of the cache
    folder = os.path.dirname(checkpoint.source)
    assert sorted(os.listdir(folder)) == ["download.json", "sha256.json", "tiny.tar.gz"]
    size = os.path.getsize(f"{folder}/tiny.tar.gz")
    assert f'"size": {size}' in Path(folder, "download.json").read_text()
    assert provenance.find_name(checkpoint.source) == archive
    site.faults = {}
    assert provenance.find_name(formats.read(f"{archive}?key=secret").source) == archive
    assert "secret" not in capsys.readouterr().err
    with open(f"{folder}/tiny.tar.gz", "ab") as file:
        file.write(b"x")
    with one_line(r"tiny\.tar\.gz is damaged"):
        formats.read(archive)
    os.remove(f"{folder}/tiny.tar.gz")
    formats.read(archive)
    with one_line(r"/model is not an archive\. Use one of \.tar\.gz,"):
        formats.read(f"{site.address}/model?x.tar.gz")


def convert(run_program, to, *arguments):
    flags = f"--checkpoint={NAME}", f"--output_dir={to}", "--to_format=hugging_face"
    return run_program("bin/convert_checkpoint", *flags, *arguments)


def test_a_folder_is_pushed_with_its_card_and_read_again(site, tmp_path, run_program, capsys):
    to = tmp_path / "out"
    assert not convert(run_program, to, "--push_to_hub=me/mine", "--private")
    assert f"uploaded to {site.address}/me/mine" in capsys.readouterr().err
    assert site.visibility == {"me/mine": "private"}
    pushed = site.folder / "me" / "mine"
    assert {path.name for path in pushed.iterdir()} == {path.name for path in to.iterdir()}
    card = (pushed / "README.md").read_text()
    assert "## Scores" in card
    assert f"bin/convert_checkpoint --checkpoint={NAME}@{stand_in_hub.COMMIT} --output_dir=" in card
    tiny_checkpoints.assert_same(formats.read("me/mine"), formats.read(str(to)))


def test_a_push_that_fails_leaves_the_folder_and_a_remedy(site, tmp_path, run_program, capsys):
    to, push = tmp_path / "a", "--push_to_hub=me/mine"
    assert "--private is only for --push_to_hub" in convert(run_program, to, "--private")
    message = convert(run_program, to, push, "--to_format=google")
    assert "--to_format: 'google' is not one" in message
    site.faults = {"/commit/": answer(403)}
    message = convert(run_program, to, push)
    assert "Log in (`hf auth login`, or HF_TOKEN)" in message
    assert message.endswith(f"then: hf upload me/mine {to}")
    assert "\n" not in message
    assert (to / "model.safetensors").exists()


def test_a_damaged_file_of_the_cache_is_named(site):
    folder = hub.resolve(NAME)
    path = Path(folder, "model.safetensors").resolve()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with one_line(f"{path} is damaged. Remove it"):
        formats.read(NAME)
    path.unlink()
    formats.read(NAME)
