"""The forms that a .pt file may have, written by the real torch and by those who pack its files anew."""

import random
import shutil
import subprocess
import zipfile

import torch

DENSE = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex32",
         "complex64", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
# The legacy format cannot hold what has no class of storages of its own: torch.load fails.
LEGACY = [name for name in DENSE if name not in ("complex32", "uint16", "uint32", "uint64") and "float8" not in name]


def random_dense(rng, dtypes):
    dtype = getattr(torch, rng.choice(dtypes))
    shape = [rng.randrange(4) if rng.random() < 0.1 else rng.randrange(1, 5) for _ in range(rng.randrange(4))]
    values = torch.randint(0, 2 if dtype == torch.bool else 100, shape)
    if dtype.is_complex:
        wide = torch.complex64 if dtype == torch.complex32 else dtype
        tensor = torch.complex(values.double(), values.double() * 0.5 - 3).to(wide).to(dtype)
    else:
        tensor = values.to(torch.float32).to(dtype)
    tensor = tensor.clone()
    looks = ["plain", "transposed", "sliced", "expanded", "window"] + ["conj", "conj", "neg"] * dtype.is_complex
    look = rng.choice(looks)
    if look == "transposed":
        tensor = tensor.permute(rng.sample(range(tensor.dim()), tensor.dim()))
    elif look == "sliced" and tensor.dim() > 0:
        tensor = tensor[rng.randrange(2):: rng.randrange(1, 3)]
    elif look == "expanded":
        tensor = tensor.unsqueeze(0).expand(rng.randrange(1, 5), *tensor.shape)
    elif look == "window":
        tensor = tensor.reshape(-1)
        if tensor.numel() > 2:
            tensor = tensor.as_strided((tensor.numel() - 1, 2), (1, 1))
    elif look == "conj":
        tensor = tensor.conj()
    elif look == "neg" and dtype != torch.complex32:
        tensor = tensor.conj().imag
    if rng.random() < 0.2 and (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_neg():
        tensor = torch.nn.Parameter(tensor.detach(), requires_grad=rng.random() < 0.5)
    return tensor


def odd_tensors():
    eye = torch.eye(4)
    return {"coo": eye.to_sparse(), "csr": eye.to_sparse_csr(), "csc": eye.to_sparse_csc(), "bsr": eye.to_sparse_bsr(2),
            "bsc": eye.to_sparse_bsc(2), "qint8": torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8),
            "quint8": torch.quantize_per_channel(eye, torch.full((4,), 0.1), torch.zeros(4), 0, torch.quint8),
            "nested": torch.nested.nested_tensor([eye[0], eye[1, :2]]), "meta": torch.empty(3, device="meta"),
            "jagged": torch.nested.nested_tensor([eye[0], eye[1, :2]], layout=torch.jagged),
            "bits": torch.ones(3, dtype=torch.uint8).view(torch.bits8),
            "float4": torch.ones(3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "storage": torch.ones(3, dtype=torch.uint8).untyped_storage(),
            "typed": torch.ones(3).storage(), "list": [eye, eye], "keys": {(0, "a"): eye, None: 1, True: eye, 2.5: eye}}


def odd_values():
    return {"complex": 1 + 2j, "seed": 2**64 - 1, "negative": -2**200, "size": torch.Size([1, 2]), "set": {1, 2},
            "device": torch.device("cuda", 1), "dtype": torch.float4_e2m1fn_x2, "layout": torch.sparse_coo, "none": None,
            "bytes": b"\x00\xff", "array": bytearray(b"ab"), "empty_array": bytearray(), "high_array": bytearray(b"\x80\xff"), "scheme": torch.per_tensor_affine,
            "map": {True: 1, None: 2, 1.5: 3, (1, "a"): 4, torch.float32: 5, b"x": 6, 1 + 2j: 7, torch.device("cpu"): 8}}


def random_state(seed, legacy=False):
    """A state dict, and of it what can be read as tensors."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    dense = {f"layer{i}.weight": random_dense(rng, LEGACY if legacy else DENSE) for i in range(rng.randrange(1, 8))}
    marked = torch.ones(2)
    marked.note = "an attribute"
    dense["marked"] = marked
    shared = torch.arange(6.0)
    dense["tied"], dense["again"], dense["part"] = shared, shared, shared[2:5]
    odd = odd_tensors()
    if legacy:
        for name in ("bits", "float4", "storage", "meta", "nested", "jagged"):
            del odd[name]
    items = list(dense.items()) + rng.sample(list(odd.items()), rng.randrange(4))
    items += rng.sample(list(odd_values().items()), rng.randrange(4))
    rng.shuffle(items)
    return dict(items), {name: tensor.detach().resolve_conj().resolve_neg() for name, tensor in dense.items()}


class _Pipe:
    """Cannot seek, so that the sizes come behind the data."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        return self.file.write(data)

    def flush(self):
        pass


def pack_anew(source, target, compression=zipfile.ZIP_STORED, order=None, pipe=False, comment=b"", large=False, folders=False):
    with zipfile.ZipFile(source) as old, open(target, "wb") as file:
        with zipfile.ZipFile(_Pipe(file) if pipe else file, "w", compression) as new:
            names = order(old.namelist()) if order else old.namelist()
            if folders:
                new.writestr(names[0].split("/")[0] + "/", "")
            for name in names:
                with new.open(name, "w", force_zip64=large) as entry:
                    entry.write(old.read(name))
            new.comment = comment


def _append(source, target):
    shutil.copy(source, target)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr(archive.namelist()[0].split("/")[0] + "/notes.json", "{}")


def _zip(*options):
    def pack(source, target):
        folder = target.with_suffix(".folder")
        with zipfile.ZipFile(source) as archive:
            archive.extractall(folder)
        subprocess.run(["zip", "-q", "-r", *options, target, *[each.name for each in folder.iterdir()]], cwd=folder, check=True)
        shutil.rmtree(folder)
    return pack


def repackers():
    """Ways to pack a .pt file anew that torch.load takes, by name: functions of source and target."""
    deflated = zipfile.ZIP_DEFLATED
    ways = {"stored": pack_anew, "appended": _append,
            "deflated": lambda s, t: pack_anew(s, t, deflated),
            "reversed": lambda s, t: pack_anew(s, t, order=lambda names: names[::-1]),
            "piped": lambda s, t: pack_anew(s, t, deflated, pipe=True),
            "piped_stored": lambda s, t: pack_anew(s, t, pipe=True),
            "commented": lambda s, t: pack_anew(s, t, comment=b"epoch 7"),
            "zip64": lambda s, t: pack_anew(s, t, large=True),
            "piped_zip64": lambda s, t: pack_anew(s, t, pipe=True, large=True),
            "folders": lambda s, t: pack_anew(s, t, deflated, folders=True)}
    if shutil.which("zip"):
        ways.update({"zip": _zip(), "zip_0": _zip("-0"), "zip_D": _zip("-D"), "zip_X": _zip("-X", "-9")})
    return ways
