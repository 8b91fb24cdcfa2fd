"""Full disks, unwritable folders, an output without a reader, no network."""

import io
import resource
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.__main__ import main
from kernelzoo.inference.engine.result import Store

QUICK = {"draws": 20, "tune": 5, "chains": 1, "cores": 1, "random_seed": 1}


@pytest.fixture(scope="module")
def model():
    return kz.WishartCompletion.example()


@contextmanager
def largest_file(size):
    """Files longer than `size` bytes cannot be written, as on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("engine", ["exact", "gibbs"])
def test_a_full_disk_ends_a_fit(model, tmp_path, engine):
    store = tmp_path / "draws"
    with largest_file(100), pytest.raises(OSError, match="File too large"):
        kz.fit(model, engine, **QUICK, progressbar=False, store=store)


def test_draws_written_before_the_disk_was_full_remain(model, tmp_path, monkeypatch):
    store = tmp_path / "draws"
    whole = kz.fit(model, "exact", **QUICK | {"draws": 200}, progressbar=False)
    monkeypatch.setattr("kernelzoo.inference.engine.independent.BLOCK_BYTES", 1)
    append = Store.append

    def full_at_forty(self, chain, values):
        if self.counts[chain] >= 40:
            raise OSError(28, "No space left on device")
        append(self, chain, values)

    monkeypatch.setattr(Store, "append", full_at_forty)
    with pytest.raises(OSError, match="No space left"):
        kz.fit(model, "exact", **QUICK | {"draws": 200}, progressbar=False, store=store)
    assert np.load(store / "counts") == 40
    kept = np.load(store / "trace_K22.npy")[:, :40]
    np.testing.assert_array_equal(kept, whole["posterior"]["trace_K22"][:, :40])


def test_a_store_in_no_writable_folder_is_refused_before_the_fit(model, tmp_path, monkeypatch):
    needed = "'store' argument of fit must be the path of a folder that can be made"
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kz.Exact, "run", lambda *_: pytest.fail("the engine ran"))
    with pytest.raises(ValueError, match=f"{needed}.*Not a directory"):
        kz.fit(model, "exact", store=tmp_path / "file" / "draws")
    with pytest.raises(ValueError, match=f"{needed}.*File name too long"):
        kz.fit(model, "exact", store=tmp_path / "new" / ("x" * 300))
    assert not (tmp_path / "new").exists()

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ValueError, match=f"{needed}.*Permission denied"):
        kz.fit(model, "exact", store=tmp_path / "new" / "draws")


NO_PATHS = b"x", True, 3, "s3://bucket/draws", "a\0b", "", "~nobody-here/x"


@pytest.mark.parametrize("store", NO_PATHS)
def test_what_is_no_path_of_a_store_is_refused_before_the_fit(model, monkeypatch, store):
    monkeypatch.setattr(kz.Exact, "run", lambda *_: pytest.fail("the engine ran"))
    with pytest.raises(ValueError, match="The 'store' argument of fit must be"):
        kz.fit(model, "exact", store=store)


@pytest.mark.parametrize("file", ["--data", "taken"])
def test_commands_say_what_could_not_be_written(tmp_path, capsys, monkeypatch, file):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device", file)

    monkeypatch.setattr(kz, "fit", full)
    assert main(["fit", "iris", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"kernelzoo: [Errno 28] No space left on device: '{file}'\n"


def closed():
    file = io.StringIO()
    file.close()
    return file


class Broken(io.StringIO):
    """The output of a program whose reader has gone, as after ``| head``."""

    def write(self, text):
        raise BrokenPipeError


class Full(io.StringIO):
    """The output of a program to a file on a full disk."""

    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def undisturbed(model):
    """Draws of fits without a bar."""
    return {
        engine: kz.fit(model, engine, **QUICK, progressbar=False)["posterior"]
        for engine in ("vb", "gibbs")
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [lambda: None, closed, Broken, Full])
# Chains have PyMC's bar, and all others ours.
@pytest.mark.parametrize("engine", ["vb", "gibbs"])
def test_a_closed_output_loses_no_fit(model, undisturbed, monkeypatch, engine, make):
    expected = undisturbed[engine]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", make())
        found = kz.fit(model, engine, **QUICK, progressbar=True)["posterior"]
    np.testing.assert_array_equal(found["trace_K22"], expected["trace_K22"])


# Full raises what Broken does and more.
@pytest.mark.parametrize("make", [closed, Full])
def test_an_output_without_reader_loses_no_calibration(model, monkeypatch, make):
    options = {"replicates": 20, "draws": 2, "random_seed": 1, "progressbar": False}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", make())
        checked = kz.calibrate(model, "exact", **options)
    assert "verdict" in checked.attrs


def test_a_command_with_its_output_closed_ends_quietly(monkeypatch):
    """Python's standard output after the shell's `>&-`."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["engines", "MultinomialProbit"]) == 0


def test_fits_and_predictions_use_no_network(monkeypatch):
    def no_network(*arguments):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    model = kz.CompositeKernelRegression.example()
    result = kz.fit(model, "vb", draws=10, random_seed=1, progressbar=False)
    predictions = kz.predict(model, result, model["K"].get_value(), random_seed=1)
    assert "mean" in predictions
