"""Where data files are looked for, verified and downloaded from.  Nothing here uses a network."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

import kernelzoo
from kernelzoo import datasets
from kernelzoo.datasets.catalogue import openml_table, project, search_folders, verified

SHARED = Path(kernelzoo.__file__).parents[1] / "shared" / "data"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Empty folders in place of the environment variable's and the user's."""
    monkeypatch.setenv("KERNELZOO_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "user" / project)
    return tmp_path


def put(path, content=b"content"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


FILE = {"file": "x.npz", "sha256": hashlib.sha256(b"content").hexdigest()}


def test_folders_in_their_order(folders):
    assert search_folders() == [
        folders / "data",
        folders / "data" / "registry",
        folders / "data" / "public",
        folders / "user" / "kernelzoo",
        folders / "user" / "kernelzoo" / "registry",
        folders / "user" / "kernelzoo" / "public",
    ]
    for folder in reversed(search_folders()):
        path = put(folder / "x.npz")
        assert verified(FILE) == path


def test_without_the_variable_only_the_users_folder(folders, monkeypatch):
    monkeypatch.delenv("KERNELZOO_DATA")
    assert search_folders()[0] == folders / "user" / "kernelzoo"


def test_wrong_checksum(folders):
    put(folders / "data" / "x.npz", b"other")
    with pytest.raises(
        ValueError, match=rf"x.npz must have the SHA-256 {FILE['sha256']}. Got [0-9a-f]"
    ):
        verified(FILE)


def test_missing_file_says_what_to_put_where(folders):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load("usps")
    message = str(error.value)
    assert "'usps' needs the file usps.npz (SHA-256 b4d62f27" in message
    assert "KERNELZOO_DATA" in message
    assert str(folders / "user" / "kernelzoo") in message
    assert datasets.table().loc["usps", "where"] == "missing"


def test_damaged_file_is_not_read_and_not_replaced_by_a_download(folders, monkeypatch):
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: pytest.fail("downloaded"))
    put(folders / "data" / "vehicle.csv.gz")
    with pytest.raises(ValueError, match=r"damaged or of another version"):
        datasets.load("vehicle")


# --- downloads --------------------------------------------------------------------------------


def serve(monkeypatch, tables):
    """Put tables {identifier: (X, labels)} in place of OpenML; return the list of requests."""
    requests = []

    def fetch_openml(*, data_id, as_frame, data_home):
        requests.append((data_id, data_home))
        X, labels = tables[data_id]
        # Nominal features come as categories of strings, as OpenML's pixels do.
        data = pd.DataFrame(X).map(lambda x: f"{x:.10g}").astype("category")
        return Bunch(data=data, target=pd.Series(labels, dtype="category"))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    return requests


def test_download_is_cached_in_the_users_folder_and_named(folders, monkeypatch):
    X = np.arange(12.0).reshape(4, 3)
    labels = ["b", "a", "b", "a"]
    projection = project(np.column_stack([X, [1, 0, 1, 0]]))
    requests = serve(monkeypatch, {7: (X, labels)})
    found, codes = openml_table(7, projection, ("a", "b"))
    np.testing.assert_array_equal(found, X)
    assert codes.tolist() == [1, 0, 1, 0]
    assert requests == [(7, str(folders / "user" / "kernelzoo"))]


@pytest.mark.parametrize(
    "damage",
    [
        lambda X, y: (X[[1, 0, 2, 3]], y),
        lambda X, y: (X[:, [0, 2, 1]], y),
        lambda X, y: (X[:3], y[:3]),
        lambda X, y: (X + 1e-6, y),
        lambda X, y: (X, ["a", "a", "b", "a"]),
        lambda X, y: (X, ["c", "a", "b", "a"]),
        lambda X, y: (X * np.nan, y),
    ],
)
def test_another_table_is_refused(damage, folders, monkeypatch):
    X, labels = np.arange(12.0).reshape(4, 3), ["b", "a", "b", "a"]
    projection = project(np.column_stack([X, [1, 0, 1, 0]]))
    serve(monkeypatch, {7: damage(X, labels)})
    with pytest.raises(ValueError, match=r"OpenML table 7 must have the projection .* another ver"):
        openml_table(7, projection, ("a", "b"))


def test_no_connection_says_what_to_put_where(folders, monkeypatch):
    def fetch_openml(**_):
        raise ConnectionError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    with pytest.raises(FileNotFoundError, match=r"'heart' needs the file heart.csv.gz") as error:
        datasets.load("heart")
    assert isinstance(error.value.__cause__, ConnectionError)
    assert datasets.table().loc["heart", "where"] == "to be downloaded"


@pytest.fixture
def shared():
    if not SHARED.is_dir():
        pytest.skip(f"needs the data files, which are not at {SHARED}")
    return SHARED


@pytest.mark.parametrize(
    ("name", "data_id", "spelling"),
    [("vehicle", 54, {}), ("heart", 53, {1: "absent", 2: "present"})],
)
def test_download_equals_the_cached_file(name, data_id, spelling, shared, folders, monkeypatch):
    frame = pd.read_csv(next(shared.glob(f"*/{name}.csv.gz")))
    labels = frame["label"].map(lambda label: spelling.get(label, label))
    serve(monkeypatch, {data_id: (frame.drop(columns="label").to_numpy(float), labels)})
    downloaded = datasets.load(name)
    monkeypatch.setenv("KERNELZOO_DATA", str(shared))
    cached = datasets.load(name)
    pd.testing.assert_frame_equal(downloaded.X, cached.X)
    assert downloaded.y.tolist() == cached.y.tolist()


def test_download_of_mfeat_equals_the_cached_file(shared, folders, monkeypatch):
    ids = {"fac": 12, "fou": 14, "kar": 16, "mor": 18, "pix": 20, "zer": 22}
    with np.load(shared / "public" / "mfeat.npz") as arrays:
        views = {view: arrays[view] for view in ids}
        tables = {ids[view]: (X, arrays["labels"].astype(str)) for view, X in views.items()}

    def fetch_openml(*, data_id, as_frame, data_home):
        X, labels = tables[data_id]
        return Bunch(data=pd.DataFrame(X), target=pd.Series(labels))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    downloaded = datasets.load("mfeat")
    monkeypatch.setenv("KERNELZOO_DATA", str(shared))
    cached = datasets.load("mfeat")
    assert list(downloaded.X) == list(cached.X)
    assert downloaded.y.tolist() == cached.y.tolist()
    for view in views:
        assert downloaded.X[view].columns.tolist() == cached.X[view].columns.tolist()
        np.testing.assert_allclose(downloaded.X[view], cached.X[view], rtol=1e-9)
