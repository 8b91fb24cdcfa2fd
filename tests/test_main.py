"""The command line: what it writes, what it says to bad input."""

import contextlib
import os

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.__main__ import kernels_for, main
from kernelzoo.datasets.dataset import Card, Dataset


def test_fit_writes_result_and_predictions(tmp_path, capsys):
    arguments = ["fit", "iris", "--draws", "50", "--seed", "3", "--out", str(tmp_path)]
    with pytest.warns(kz.ApproximationWarning, match="k-hat of VB"):
        assert main(arguments) == 0
    result = az.from_netcdf(tmp_path / "iris-vb.nc")
    assert result.attrs["engine"] == "VB"
    assert result["posterior"].sizes["draw"] == 50
    table = pd.read_csv(tmp_path / "iris-vb-predictions.csv", index_col=0)
    assert len(table) == 45
    classes = table.columns[1:]
    np.testing.assert_allclose(table[classes].sum(axis=1), 1)
    accuracy = (classes[table[classes].to_numpy().argmax(1)] == table["true"].astype(str)).mean()
    assert accuracy > 0.8
    assert f"{accuracy:.3f}"[:4] in capsys.readouterr().out


@pytest.fixture(params=[("full", 2), ("without a reader", 1)], ids=lambda case: case[0])
def unwritable(request):
    """Standard output to /dev/full, or to a pipe such as ``| head`` leaves; the exit code."""
    kind, code = request.param
    if kind == "full":
        output = open("/dev/full", "w")  # noqa: SIM115
    else:
        read, write = os.pipe()
        os.close(read)
        output = os.fdopen(write, "w")
    yield output, code
    # What is buffered cannot be written.
    with contextlib.suppress(OSError):
        output.close()


def code_of(arguments, output):
    """Exit code of a command with this standard output."""
    try:
        with contextlib.redirect_stdout(output):
            return main(arguments)
    except SystemExit as end:
        return end.code


@pytest.mark.filterwarnings("ignore::kernelzoo.ApproximationWarning")
def test_an_unwritable_output_loses_no_fit(tmp_path, unwritable):
    output, code = unwritable
    assert code_of(["fit", "iris", "--draws", "5", "--out", str(tmp_path)], output) == code
    assert az.from_netcdf(tmp_path / "iris-vb.nc")["posterior"].sizes["draw"] == 5
    assert len(pd.read_csv(tmp_path / "iris-vb-predictions.csv")) == 45


def test_a_result_that_is_open_is_replaced(tmp_path):
    """HDF5 writes to no file that is open."""
    arguments = ["fit", "iris", "--draws", "5", "--out", str(tmp_path)]
    assert main(arguments) == 0
    with xr.open_datatree(tmp_path / "iris-vb.nc", engine="h5netcdf"):
        assert main(arguments) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "iris-vb-predictions.csv",
        "iris-vb.nc",
    ]


def test_gram_matrices_are_taken_as_they_are():
    """Not as features, of which there would be three kernels."""
    rng, card = np.random.default_rng(0), Card("", "", "")
    features = pd.DataFrame(rng.normal(size=(20, 2)))
    gram = pd.DataFrame(features.to_numpy() @ features.to_numpy().T)
    # As many others as training objects.
    views = {"sequence": gram, "size": features, "to others": gram.iloc[:, :14]}
    y = np.arange(20) % 2
    data = Dataset("all", views, y, card, similarities=frozenset({"sequence", "to others"}))
    part = data.split(test_size=0.3, seed=1)
    stack = kernels_for(data)(part.X_train)
    assert stack.shape == (7, 14, 14)
    (at,) = (i for i, name in enumerate(stack["kernel"].values) if "sequence" in name)
    given = part.X_train["sequence"]
    np.testing.assert_allclose(stack[at], given * 14 / np.trace(given))
    alone = Dataset("one", gram, y, card, similarities=frozenset({"one"}))
    assert len(kernels_for(alone)(gram)) == 1


def test_engines_lists_every_model_on_one_screen(capsys, monkeypatch):
    monkeypatch.setattr("kernelzoo.__main__.WIDTH", 80)
    assert main(["engines"]) == 0
    shown = capsys.readouterr().out
    for word in (*(model.__name__ for model in kz.MODELS), "VB", "Gibbs", "NUTS", "Laplace"):
        assert word in shown
    assert "mean-field" not in shown
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80


def test_engines_of_a_model_says_why_not(capsys):
    assert main(["engines", "MultinomialProbit"]) == 0
    shown = capsys.readouterr().out
    assert "not available for" in shown
    assert "mean-field" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "wien"], "'wine'"),
        (["fit", "iris", "--engine", "gibs"], "'gibbs'"),
        (["engines", "MultinomialProbot"], "'MultinomialProbit'"),
        (["fit", "iris", "--test-size", "1.5"], "test_size"),
        (["fit", "iris", "--draws", "0"], "'draws'"),
    ],
)
def test_bad_input_ends_in_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert message in shown.err


def test_unknown_commands_show_the_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["sample"])
    assert "usage: kernelzoo" in capsys.readouterr().err


@pytest.mark.parametrize("message", ["Gibbs was interrupted before it had a result", ""])
def test_ctrl_c_ends_in_one_line(monkeypatch, capsys, message):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt(*filter(None, [message]))

    monkeypatch.setattr("kernelzoo.fit", interrupted)
    assert main(["fit", "iris"]) == 130
    assert capsys.readouterr().err == f"kernelzoo: {message or 'interrupted by Ctrl-C'}\n"
