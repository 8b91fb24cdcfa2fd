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

sys.path.append(str(Path(__file__).parent / "extensions"))
sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in (".", "tests"))
from cards import REFERENCES

import kernelzoo as kz
from certificates.variants import VARIANTS, Variant
from kernelzoo.inference.engine.paper import identified

#: Samplers in order of preference, and their draws per chain at the first try.
SAMPLERS = {"Exact": 4_000, "Gibbs": 2_000, "NUTS": 1_000}
CHAINS = 4
#: Draws per chain that are kept.
KEPT = 100
TRIES = 5
SEED = 1


def draw(card: Variant, draws: int | None = None) -> xr.DataTree:
    """Draw the reference posterior of a card's example."""
    model = card.example()
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
    """Thinned draws of the identified quantities, and their statistics from all draws."""
    quantities = identified(result)
    statistics = {
        "mean": quantities.mean(("chain", "draw")),
        "sd": quantities.std(("chain", "draw"), ddof=1),
        "MCSE": az.mcse(quantities),
        "ESS": az.ess(quantities),
    }
    if quantities.sizes["chain"] > 1:
        statistics["R-hat"] = az.rhat(quantities)
    names = xr.DataArray(list(statistics), dims="statistic", name="statistic")
    summary = xr.concat(list(statistics.values()), names)
    every = max(quantities.sizes["draw"] * quantities.sizes["chain"] // (CHAINS * KEPT), 1)
    kept = quantities.isel(draw=slice(None, None, every)).astype("float32")
    for variable in kept.data_vars.values():
        variable.encoding = {"zlib": True, "complevel": 9}
    tree = xr.DataTree.from_dict({"posterior": kept, "summary": summary})
    told = ("model", "variant", "random_seed", "versions")
    tree.attrs = {name: result.attrs[name] for name in told if name in result.attrs}
    chains, draws = (quantities.sizes[dim] for dim in ("chain", "draw"))
    tree.attrs |= {"chains": chains, "draws": draws, "engine": sampler}
    return tree


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    REFERENCES.mkdir(exist_ok=True)
    for card in VARIANTS:
        if not sys.argv[1:] or card.slug in sys.argv[1:]:
            reference = draw(card)
            reference.to_netcdf(REFERENCES / f"{card.slug}.nc")
            print(f"{card.slug}: {reference.attrs['engine']}")
