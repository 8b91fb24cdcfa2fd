"""NUTS says that it compiles, and only where it does."""

import logging

import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.generic import COMPILING

RUN = {"draws": 5, "tune": 5, "chains": 1, "cores": 1, "random_seed": 1}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, 1),
        ({"progressbar": False}, 0),
        ({"compile_kwargs": {"mode": python_mode()}}, 0),
    ],
)
@pytest.mark.usefixtures("terminal")
def test_the_time_of_a_compilation_is_told_beforehand(options, told, caplog):
    with pm.Model() as model:
        pm.Normal("x")
    with caplog.at_level(logging.INFO, "pymc"):
        kz.fit(model, "nuts", **RUN | options)
    messages = [record.message for record in caplog.records]
    assert messages[:told].count(COMPILING) == messages.count(COMPILING) == told
