"""Draw the reference posteriors of the zoo cards; the site shows ``references/*.nc``.

``python docs/draw_references.py [CARD ...]`` draws those of the named cards, or all, by the exact
sampler or Gibbs where they apply and otherwise by NUTS, until they converge.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import arviz as az
import xarray as xr
from rich.console import Console

sys.path.append(str(Path(__file__).parent / "extensions"))
from cards import CARDS, Card
from references import REFERENCES, STATISTICS

import kernelzoo as kz
from kernelzoo.inference.engine.paper import identified

#: Samplers in order of preference, and their draws per chain at the first try.
SAMPLERS = {"Exact": 4_000, "Gibbs": 2_000, "NUTS": 1_000}
CHAINS = 4
#: Draws per chain that are kept.
KEPT = 100
TRIES = 4
SEED = 1


def draw(card: Card, draws: int | None = None) -> xr.DataTree:
    """Draw the reference posterior of a card's example."""
    model = card.make()
    able = set(kz.engines(model).frame.query("applies != 'no'").index)
    sampler = next(name for name in SAMPLERS if name in able)
    draws = draws or SAMPLERS[sampler]
    for _ in range(TRIES):
        size: dict[str, Any] = {"draws": draws, "chains": CHAINS, "tune": draws // 2, "cores": 1}
        if sampler == "Exact":
            size = {"draws": CHAINS * draws}
        result = kz.fit(model, sampler.lower(), **size, random_seed=SEED, progressbar=False)
        if result.attrs["converged"] == "yes":
            return _reference(result, sampler)
        draws *= 2
    raise RuntimeError(f"The chains of {card.slug} have not converged: {result.attrs['note']}")


def _reference(result: xr.DataTree, sampler: str) -> xr.DataTree:
    quantities = identified(result)
    statistics = {
        "mean": quantities.mean(("chain", "draw")),
        "sd": quantities.std(("chain", "draw"), ddof=1),
        "MCSE": az.mcse(quantities),
        "ESS": az.ess(quantities),
    }
    if quantities.sizes["chain"] > 1:
        statistics["R-hat"] = az.rhat(quantities)
    order = [name for name in STATISTICS if name in statistics]
    summary = xr.concat(
        [statistics[name] for name in order],
        xr.DataArray(order, dims="statistic", name="statistic"),
    )
    every = max(quantities.sizes["draw"] * quantities.sizes["chain"] // (CHAINS * KEPT), 1)
    kept = quantities.isel(draw=slice(None, None, every)).astype("float32")
    told = ("model", "variant", "random_seed", "versions")
    attrs = {name: result.attrs[name] for name in told if name in result.attrs}
    sizes = {"chains": quantities.sizes["chain"], "draws": quantities.sizes["draw"]}
    tree = xr.DataTree.from_dict({"posterior": kept, "summary": summary})
    tree.attrs = attrs | sizes | {"engine": sampler}
    return tree


def main(slugs: list[str]) -> None:
    """Draw the references of these cards, or of all, and write their files."""
    console = Console()
    warnings.simplefilter("ignore")
    REFERENCES.mkdir(exist_ok=True)
    for card in CARDS:
        if slugs and card.slug not in slugs:
            continue
        reference = draw(card)
        path = REFERENCES / f"{card.slug}.nc"
        packed = {"zlib": True, "complevel": 9}
        reference.to_netcdf(
            path,
            encoding={"/posterior": dict.fromkeys(reference["posterior"].data_vars, packed)},
        )
        console.print(f"{card.slug}: {reference.attrs['engine']}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
