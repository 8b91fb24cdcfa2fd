"""Compare the fits of two versions: every engine on every variant of every model, by one seed.

``python .ci/same_fits.py write FILE`` fits and writes the numbers of all results;
``python .ci/same_fits.py compare OLD NEW`` prints the fits whose numbers differ and exits with 1
if there are any.
"""

import contextlib
import io
import pickle
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np

#: Groups that time and machine do not change.
GROUPS = ("posterior", "moments", "variational", "point", "trajectory", "log_likelihood")
OPTIONS = {"draws": 12, "tune": 12, "chains": 2, "cores": 1, "random_seed": 7}


def fits() -> dict[str, dict[str, object]]:
    """Numbers of the results, by variant and engine; an error's last line where there is none."""
    import kernelzoo as kz

    try:
        from kernelzoo.certificates.variants import VARIANTS
    except ImportError:
        from certificates.variants import VARIANTS

    found: dict[str, dict[str, object]] = {}
    for variant in VARIANTS:
        model = variant.problem()
        for engine in kz.engines(model).frame.query("applies != 'no'").index:
            name = f"{variant.slug}-{engine.lower()}"
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                try:
                    tree = kz.fit(model, engine, progressbar=False, **OPTIONS)
                    found[name] = numbers(tree)
                except Exception:
                    found[name] = {"error": traceback.format_exc().splitlines()[-1]}
            print(name, *found[name].get("error", "").split()[:20], flush=True)
    return found


def numbers(tree: object) -> dict[str, object]:
    """Arrays of the groups that are compared, and what the result says of its convergence."""
    arrays = {
        f"{group}/{name}": np.asarray(values)
        for group in GROUPS
        if group in tree.children
        for name, values in tree[group].data_vars.items()
        if values.dtype.kind in "fiub"
    }
    return arrays | {"converged": tree.attrs["converged"]}


def differences(old: dict[str, object], new: dict[str, object]) -> list[str]:
    """Describe what differs between two results."""
    said = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            said.append(f"{name}: only in the {'new' if name in new else 'old'}")
        elif isinstance(old[name], str):
            if old[name] != new[name]:
                said.append(f"{name}: {old[name]} -> {new[name]}")
        elif old[name].shape != new[name].shape:
            said.append(f"{name}: shape {old[name].shape} -> {new[name].shape}")
        elif not np.allclose(old[name], new[name], rtol=1e-9, atol=1e-12, equal_nan=True):
            said.append(f"{name}: up to {np.nanmax(np.abs(old[name] - new[name])):.3g}")
    return said


def main() -> int:
    """Run one of the two commands."""
    command, *files = sys.argv[1:]
    if command == "write":
        Path(files[0]).write_bytes(pickle.dumps(fits()))
        return 0
    old, new = (pickle.loads(Path(file).read_bytes()) for file in files)
    both = sorted(old.keys() & new.keys())
    differing = {name: said for name in both if (said := differences(old[name], new[name]))}
    for name, said in differing.items():
        print(f"{name}: {'; '.join(said)}")
    print(f"{len(both)} fits compared, {len(differing)} differ; ", end="")
    print(f"only old: {sorted(old.keys() - new.keys())}; new: {sorted(new.keys() - old.keys())}")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
