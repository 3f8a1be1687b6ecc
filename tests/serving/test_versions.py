"""Versions come and go while the server answers; a damaged one changes nothing."""

import shutil
import threading
from types import SimpleNamespace

import pytest
import tiny_server
from refusals import one_line

from albert_tf.serving.model_store import Entry, ModelStore, read_config
from albert_tf.serving.server_metrics import Metrics

PATH, ASKED = "/v1/models/m", {"inputs": ["a"]}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """{version: folder} of models of vectors; 3 is damaged."""
    folder = tmp_path_factory.mktemp("sources")
    made = {k: tiny_server.write_model(str(folder), k) for k in (1, 2)}
    made[3] = shutil.copytree(made[1], folder / "3")
    (made[3] / "saved_model.pb").write_bytes(b"damage")
    return made


@pytest.fixture
def served(tmp_path, sources):
    """A client of a model `m`, whose `update(3, 5)` puts source 3 there as version 5."""
    folder = tmp_path / "m"
    entry = Entry("m", str(folder))
    store = ModelStore([entry], Metrics())

    def update(source=None, version=None):
        if source:
            shutil.copytree(sources[source], folder / str(version or source))
        store.update(entry)

    def ask():
        """Returns the version that answers, or the status."""
        reply = client.ask(f"{PATH}:predict", ASKED)
        return reply.json["outputs"][0][1] if reply.status == 200 else reply.status

    def states():
        rows = client.ask(PATH).json["model_version_status"]
        return {int(x["version"]): x["state"] for x in rows}

    with tiny_server.serving(store) as client:
        yield SimpleNamespace(folder=folder, update=update, ask=ask, states=states, client=client)


def test_a_version_takes_over_and_goes_back_again(served):
    assert served.ask() == 503
    served.update(1)
    answers, stops = set(), threading.Event()

    def ask_on():
        while not stops.is_set():
            answers.add(served.ask())

    threads = [threading.Thread(target=ask_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    served.update(2)
    assert (served.ask(), served.states()) == (2, {2: "AVAILABLE", 1: "END"})
    shutil.rmtree(served.folder / "2")
    served.update()
    assert (served.ask(), served.states()) == (1, {2: "END", 1: "AVAILABLE"})
    shutil.rmtree(served.folder / "1")
    served.update()
    assert served.ask() == 1  # the last one goes on
    stops.set()
    for thread in threads:
        thread.join()
    assert answers == {1, 2}


@pytest.mark.parametrize("is_there_at_start", [False, True])
def test_a_damaged_version_is_passed_over(served, sources, is_there_at_start, capfd):
    if is_there_at_start:
        shutil.copytree(sources[3], served.folder / "3")
    served.update(1)
    if not is_there_at_start:
        served.update(3)
    served.update()
    assert capfd.readouterr().err.count("cannot be served") == 1
    assert (served.ask(), served.states()) == (1, {3: "END", 1: "AVAILABLE"})
    [state] = served.client.ask(f"{PATH}/versions/3").json["model_version_status"]
    assert state["status"]["error_code"] == "DATA_LOSS"
    assert "saved_model.pb is damaged" in state["status"]["error_message"]
    assert str(served.folder) not in state["status"]["error_message"]
    assert served.client.ask(f"{PATH}/versions/3:predict", ASKED).status == 404
    served.update(2, 4)  # a later one is sound
    assert served.ask() == 2


def test_a_version_answers_when_its_copy_is_whole(served, sources):
    served.update(1)
    shutil.copytree(sources[2], served.folder / "2", ignore=lambda *_: ["variables"])
    served.update()
    assert (served.ask(), served.states()) == (1, {2: "END", 1: "AVAILABLE"})
    shutil.copytree(sources[2], served.folder / "2", dirs_exist_ok=True)
    served.update()
    assert served.ask() == 2


def test_without_a_sound_version_it_is_never_ready(served):
    served.update(3)
    assert served.client.ask("/v2/health/ready").status == 503
    reply = served.client.ask(f"{PATH}:predict", ASKED)
    assert (reply.status, reply.json["error"][-9:]) == (404, "Latest(m)")


CONFIG = """model_config_list {
  config { name: "one" base_path: "PATH" model_platform: "tensorflow"
    model_version_policy { specific { versions: 1 versions: 2 } }
    version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 } }
  config { name: "all" base_path: "PATH" model_version_policy { all {} } }
  config { name: "new" base_path: "PATH" model_version_policy { latest { num_versions: 2 } } }
}"""


def test_a_file_of_models(sources, tmp_path):
    config, folder = tmp_path / "models.config", sources[3].parent
    config.write_text(CONFIG.replace("PATH", str(folder)))
    entries = read_config(str(config))
    store = ModelStore(entries, Metrics())
    for entry in entries:
        store.update(entry)
        assert sorted(entry.loaded) == [1, 2]
    with tiny_server.serving(store) as client:
        for label, version in (("stable", 1), ("canary", 2)):
            path = f"one/labels/{label}"
            assert tiny_server.predict(client, path, ASKED)["outputs"] == [[1, version, 1, 2]]
        assert client.ask("/v1/models/new/labels/stable").status == 404


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_config_list {", "models.config: .*"),
        ("", "models.config lists no models"),
        ('model_config_list { config { name: "a" } config { name: "a" } }', "lists a name twice"),
        (None, ".*models.config.*"),
    ],
)
def test_a_wrong_file_of_models_is_one_line(tmp_path, text, message):
    if text is not None:
        (tmp_path / "models.config").write_text(text)
    with one_line(f"--model_config: .*{message}"):
        read_config(str(tmp_path / "models.config"))
