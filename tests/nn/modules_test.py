"""LibTorch's modules, functions and ours against Python's: modules_test.py PROGRAM."""

import collections
import pathlib
import subprocess
import sys
import tempfile
import os
import warnings

import torch

import modules_cases

def compare(program, cases, circumstances=modules_cases.CIRCUMSTANCES):
    """{(case, circumstance): {tensor: (expected, actual)}} of those that differ; a text where the program failed."""
    torch.set_num_threads(1)
    runs = []
    for case in cases:
        for circumstance in circumstances:
            needed, expected = modules_cases.run(case, circumstance)
            if needed is not None:
                runs.append((case, circumstance, needed, expected))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        torch.save([needed for _, _, needed, _ in runs], folder / "cases.pt")
        subprocess.run([program, folder / "cases.pt", folder / "results.pt"], check=True, env=dict(os.environ, OMP_NUM_THREADS="1"), stderr=subprocess.PIPE)
        results = torch.load(folder / "results.pt", weights_only=False)
    out = {}
    for (case, circumstance, _, expected), actual in zip(runs, results):
        out[case.name, circumstance] = (expected, actual)
    return out

if __name__=="__main__":
    warnings.simplefilter("ignore")
    res = compare(sys.argv[1], modules_cases.DROP_INS if len(sys.argv) > 2 else modules_cases.CASES)
    for (case, circ), (e, a) in list(res.items()):
        if isinstance(a, str):
            print(case,'|',circ,'| FAILED', a.splitlines()[0][:150]); continue
        if set(e)!=set(a): print(case,'|',circ,'| NAMES',sorted(set(e)^set(a)))
        bad=[]
        for n in e:
            if n in a:
                if e[n].dtype!=a[n].dtype or e[n].shape!=a[n].shape: bad.append(f"{n}: {e[n].dtype}{list(e[n].shape)} {a[n].dtype}{list(a[n].shape)}")
                elif e[n].contiguous().reshape(-1).view(torch.uint8).tolist()!=a[n].contiguous().reshape(-1).view(torch.uint8).tolist():
                    d=(e[n].double()-a[n].double()).abs().max().item(); m=e[n].double().abs().max().item()
                    bad.append(f"{n} {d/m if m else d:.1e}")
        if bad: print(case,'|',circ,'|', '; '.join(bad))
