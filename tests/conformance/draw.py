"""Training programs drawn at random: `draw(seed)` gives a description, which conformance_program.cpp and conformance_twin.py interpret.

A description is plain JSON. Whoever adds an entry adds its meaning to both interpreters, and to `SIMPLER` in shrink.py a way to
do without it. `unusual` programs keep gradients, run several backwards per forward or differentiate twice; `recompute` programs
have regions of activation checkpointing, which some of the others have too. `combined` programs have regions beside all that may
go wrong with them: communication hooks, also where gradients are kept or ranks join; layers that are frozen for some steps; hooks on
parameters that replace gradients; operators whose results a region keeps.
"""

import random

import known

CLASSES = 5
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu", "softplus", "leaky_relu")
MODELS = ("mlp", "mlp", "residual", "conv", "conv", "conv", "embedding", "sparse", "bag", "rnn", "sequence", "mixed", "branches", "unused",
          "sync_bn", "torch_linear", "attention", "encoder")
HOOKS = ("allreduce", "fp16", "bf16", "fp16_wrapped", "power_sgd1", "power_sgd2")
UNUSUAL_MODELS = ("mlp", "residual", "conv", "embedding", "rnn", "sequence")
UNUSUAL = ("kept_gradient", "pcgrad", "retain_graph", "forwards_then_backwards", "static_no_sync", "gradient_penalty", "create_graph")


# Operators whose results a region may keep; an activation in place would change the first ones'.
SAVED = ("addmm", "mm", "convolution", "native_layer_norm")
SAVED_ACTIVATIONS = ("tanh", "sigmoid", "gelu", "silu", "softplus", "relu")


def plain_optimizer():
    """For judges of values, not of bits: others divide gradients that are 0 but for the judge's rounding by themselves."""
    return {"name": "SGD", "library": "torch", "options": {"lr": 0.05, "momentum": 0.9}, "second": None, "zero": False}


def draw(seed, unusual=False, recompute=False, combined=False):
    if not combined:
        return Draw(seed, unusual, recompute).case
    numbers = random.Random(f"combinations of {seed}")
    drawn = Draw(seed, numbers.randrange(3) == 0, recompute=True)
    combine(drawn, numbers)
    return drawn.case


def combine(drawn, numbers):
    case = drawn.case
    if known.is_computed(case):
        case["optimizer"] = plain_optimizer()
    if case["unusual"] in (None, "kept_gradient", "pcgrad"):
        # LibTorch's own linear layers add the bias in place, to what a region would keep.
        save_in_regions(numbers, case["layers"], changes_in_place=drawn.kind in ("torch_linear", "attention", "encoder"))
    if case["unusual"] in (None, "kept_gradient", "pcgrad") and not case["hook"] and numbers.randrange(3):
        drawn.random = numbers
        case["hook"] = drawn.hook(often=True)
        if case["hook"]:
            case["hops"] = None
            if case["join"] and case["hook"] not in HOOKS[:3]:
                case["hook"] = "bf16"
    plain = not (drawn.is_sparse() or case["optimizer"]["zero"] or case["join"] or case["hops"] or case["ddp"]["static"] or case["ddp"]["delayed"])
    names = [layer for layer in drawn.all_layers() if layer["op"] in ("linear", "conv") and layer["name"] not in case["frozen"]]
    if plain and len(names) > 2 and case["unusual"] is None and not case["ema"] and numbers.randrange(2) and not (case["hook"] or "").endswith(
            ("1", "2", "wrapped")):
        first = numbers.randint(1, case["steps"] - 1)
        case["freeze"] = {"name": numbers.choice(names)["name"], "from": first, "to": numbers.randint(first + 1, case["steps"])}
        case["ddp"] |= {"find_unused": True, "own_engine": None, "auto_bucket": False}  # Python has no other way
    if not drawn.is_sparse() and not case["join"] and not case["hops"]:
        for layer in numbers.sample(names, min(len(names), numbers.randint(0, 2))):
            case["parameter_hooks"].append({"name": f"{layer['name']}.weight", "kind": numbers.choice(("scaled", "constant", "expanded")),
                                            "from": numbers.randint(1, case["steps"])})
    if case["freeze"]:
        case["parameter_hooks"] = [hook for hook in case["parameter_hooks"] if not hook["name"].startswith(f"{case['freeze']['name']}.")]


def save_in_regions(numbers, layers, changes_in_place):
    for layer in layers:
        if layer["op"] == "region" and numbers.randrange(2):
            in_place = changes_in_place or "relu_" in {inner["op"] for inner in all_of(layer["layers"])}
            among = SAVED_ACTIVATIONS if in_place else SAVED + SAVED_ACTIVATIONS
            layer["save"] = sorted(numbers.sample(among, numbers.randint(1, len(among))))
        for inner in [layer.get("layers", []), *layer.get("branches", [])]:
            save_in_regions(numbers, inner, changes_in_place)


def all_of(layers):
    for layer in layers:
        yield layer
        for inner in [layer.get("layers", []), *layer.get("branches", [])]:
            yield from all_of(inner)


def with_regions(numbers, layers, depth=0):
    """`layers` with some of them in regions of activation checkpointing, up to three deep."""
    layers = [dict(layer) for layer in layers]
    for before, layer in zip(layers, layers[1:], strict=False):
        if layer["op"] == "relu" and before["op"] in ("linear", "conv", "batch_norm1d", "batch_norm2d", "layer_norm") and numbers.randrange(2):
            layer["op"] = "relu_"
    for layer in layers:
        if layer["op"] in ("residual", "branches") and depth < 2 and numbers.randrange(2):
            if "layers" in layer:
                layer["layers"] = with_regions(numbers, layer["layers"], depth + 1)
            else:
                layer["branches"] = [with_regions(numbers, branch, depth + 1) for branch in layer["branches"]]
    result = []
    while layers:
        length = numbers.randint(1, len(layers))
        while length < len(layers) and layers[length]["op"] == "relu_":
            length += 1  # it would change the input of the next region
        part, layers = layers[:length], layers[length:]
        if numbers.randrange(3) == 0:
            result += part
            continue
        if depth < 2 and numbers.randrange(3) == 0:
            part = with_regions(numbers, part, depth + 1)
        result.append({"op": "region", "early_stop": numbers.randrange(4) > 0, "save": [], "layers": part})
    return result


class Draw:
    def __init__(self, seed, unusual, recompute=False):
        self.random = random.Random(seed)
        self.names = 0
        pick = self.pick
        self.kind = pick(UNUSUAL_MODELS if unusual else MODELS)
        self.case = case = {"seed": seed, "kind": self.kind, "ranks": pick((1, 2, 2, 2, 3, 3, 4)), "backend": pick(("shm", "shm", "gloo"))}
        case["loss"] = pick(("cross_entropy", "cross_entropy", "mse", "smooth_l1", "bce"))
        case["layers"] = self.model()
        others = random.Random(f"regions of {seed}")  # so that the rest of a description does not depend on them
        if recompute or others.randrange(5) == 0:
            case["layers"] = with_regions(others, case["layers"])
        case["frozen"] = self.frozen()
        case["zero_grad"] = pick(("none", "none", "zero"))
        case["accumulate"] = pick((1, 1, 1, 2, 3))
        case["steps"] = self.random.randint(4, 8)
        case["data"] = self.data()
        case["autocast"] = self.autocast()
        case["optimizer"] = self.optimizer()
        case["scaler"] = self.scaler()
        case["clip"] = self.clip()
        case["schedule"] = self.schedule()
        case["ema"] = self.ema()
        case["evaluate"] = self.one_in(3)
        case["ddp"] = self.ddp()
        case["hook"] = self.hook()
        case["join"] = self.join()
        case["hops"] = self.hops()
        case["unusual"] = self.unusual() if unusual else None
        case |= {"freeze": None, "parameter_hooks": []}

    def pick(self, among):
        return self.random.choice(list(among))

    def one_in(self, n):
        return self.random.randrange(n) == 0

    def number(self, low, high):
        """With few digits, so that the description is the number."""
        return float(f"{self.random.uniform(low, high):.3g}")

    # The model.

    def named(self, op, **settings):
        self.names += 1
        return {"op": op, "name": f"l{self.names}", **settings}

    def activation(self):
        return {"op": self.pick(ACTIVATIONS)}

    def linear(self, width, out, bias=None):
        return self.named("linear", width=width, out=out, bias=self.random.random() < 0.85 if bias is None else bias)

    def model(self):
        layers = getattr(self, self.kind if self.kind not in ("sync_bn",) else "conv")()
        return layers

    def body(self, width, depth):
        """Layers from (N, width) to (N, width of the last), and that width."""
        layers = []
        for _ in range(depth):
            form = self.pick(("linear", "linear", "linear", "residual", "dropout", "norm", "scale", "again", "double"))
            if form == "residual":
                layers.append({"op": "residual", "layers": [self.linear(width, width), self.activation(), self.linear(width, width)]})
            elif form == "dropout":
                layers.append({"op": "dropout", "p": self.number(0.1, 0.6)})
            elif form == "norm":
                layers.append(self.norm(width))
            elif form == "scale":
                layers.append(self.named("scale", shape=self.pick(([], [width]))))
            elif form == "again":
                square = self.linear(width, width)
                layers += [square, self.activation(), self.named("again", layer=square["name"], alias=self.one_in(2))]
            elif form == "double":
                layers.append({"op": "cast", "dtype": "float64", "layers": [self.linear(width, width)]})
            else:
                out = self.random.randint(2, 24)
                layers += [self.linear(width, out), self.activation()]
                width = out
        return layers, width

    def norm(self, width):
        if self.one_in(2):
            return self.named("layer_norm", width=width)
        return self.named("batch_norm1d", width=width, affine=not self.one_in(4), track=not self.one_in(5),
                          momentum=self.pick((0.1, 0.1, 0.3, None)))

    def head(self, layers, width):
        more, width = self.body(width, self.random.randint(0, 2))
        return layers + more + [self.linear(width, CLASSES)]

    def mlp(self):
        width = self.random.randint(3, 16)
        self.case["input"] = {"kind": "vector", "shape": [width]}
        layers, width = self.body(width, self.random.randint(1, 6))
        return self.head(layers, width)

    def residual(self):
        width = self.random.randint(3, 12)
        self.case["input"] = {"kind": "vector", "shape": [width]}
        layers = []
        for _ in range(self.random.randint(2, 5)):
            layers.append({"op": "residual", "layers": [self.linear(width, width), self.norm(width), self.activation(), self.linear(width, width)]})
        return self.head(layers, width)

    def conv(self):
        channels = self.pick((1, 2, 3))
        side = self.pick((8, 9, 12))
        self.case["input"] = {"kind": "image", "shape": [channels, side, side]}
        layers = []
        for _ in range(self.random.randint(1, 3)):
            out = self.pick((4, 6, 8))
            groups = 2 if channels % 2 == 0 and self.one_in(3) else 1
            layers.append(self.named("conv", width=channels, out=out, kernel=self.pick((1, 3)), stride=self.pick((1, 1, 2)), padding=1,
                                     groups=groups, bias=not self.one_in(3)))
            norm = "batch" if self.kind == "sync_bn" else self.pick(("batch", "batch", "group", "no"))
            if norm == "batch":
                layers.append(self.named("batch_norm2d", width=out, affine=not self.one_in(5), track=self.kind == "sync_bn" or not self.one_in(5),
                                         momentum=0.1 if self.kind == "sync_bn" else self.pick((0.1, 0.1, 0.25, None))))
            elif norm == "group":
                layers.append(self.named("group_norm", width=out, groups=2))
            layers.append(self.activation())
            if self.one_in(3):
                layers.append({"op": "residual", "layers": [self.named("conv", width=out, out=out, kernel=3, stride=1, padding=1, groups=1, bias=True),
                                                            self.activation()]})
            channels = out
        if self.one_in(3):
            layers.append({"op": self.pick(("max_pool", "avg_pool"))})
        layers.append({"op": "global_pool"})
        if self.kind == "sync_bn":
            return layers + [self.linear(channels, CLASSES)]
        return self.head(layers, channels)

    def tokens(self, sparse):
        words, length, width = self.random.randint(8, 40), self.random.randint(2, 8), self.random.randint(3, 12)
        self.case["input"] = {"kind": "tokens", "shape": [length], "words": words}
        return self.named("embedding", words=words, width=width, sparse=sparse, padding=self.pick((None, None, 0))), width

    def embedding(self):
        table, width = self.tokens(sparse=False)
        tied = self.one_in(3)
        layers = [table, {"op": "mean_time"}]
        if tied:  # the table as the last layer too, as language models have it
            layers += [self.linear(width, width), {"op": "tanh"}, self.named("decode", layer=table["name"])]
            width = table["words"]
        return self.head(layers, width)

    def sparse(self):
        table, width = self.tokens(sparse=True)
        return [table, {"op": "mean_time"}, self.linear(width, 6), self.activation(), self.linear(6, CLASSES)]

    def bag(self):
        table, width = self.tokens(sparse=False)
        del table["padding"]
        return self.head([table | {"op": "embedding_bag", "mode": self.pick(("sum", "mean", "max"))}], width)

    def rnn(self):
        width, hidden = self.random.randint(2, 6), self.random.randint(2, 8)
        op = self.pick(("lstm", "gru", "rnn"))
        both = self.one_in(3)
        recurrent = self.named(op, width=width, hidden=hidden, depth=self.pick((1, 1, 2)), both=both)
        end = {"op": self.pick(("mean_time", "last_time"))}
        if self.one_in(2):
            table, _ = self.tokens(sparse=False)
            table["width"] = width
            return self.head([table, recurrent, end], hidden * (2 if both else 1))
        self.case["input"] = {"kind": "sequence", "shape": [self.random.randint(2, 6), width]}
        return self.head([recurrent, end], hidden * (2 if both else 1))

    def sequence(self):
        """Linear layers on three dimensions, by at::linear."""
        width = self.random.randint(2, 8)
        self.case["input"] = {"kind": "sequence", "shape": [self.random.randint(2, 6), width]}
        layers = [self.linear(width, 6), self.named("layer_norm", width=6), self.activation()]
        if self.one_in(2):
            layers.append(self.named("conv1d", width=6, out=6, kernel=3))
        return self.head(layers + [{"op": "mean_time"}], 6)

    def torch_linear(self):
        """LibTorch's own class, on two dimensions, where it has Python's bits, and on three."""
        width = self.random.randint(2, 8)
        three = self.one_in(2)
        self.case["input"] = {"kind": "sequence", "shape": [4, width]} if three else {"kind": "vector", "shape": [width]}
        layers = [self.named("torch_linear", width=width, out=7, bias=not self.one_in(4), dimensions=3 if three else 2), self.activation()]
        if three:
            layers.append({"op": "mean_time"})
        return layers + [self.named("torch_linear", width=7, out=CLASSES, bias=True, dimensions=2)]

    def attention(self):
        self.case["input"] = {"kind": "sequence", "shape": [5, 6]}
        return [self.named("attention", width=6, heads=self.pick((1, 2, 3))), {"op": "mean_time"}, self.linear(6, CLASSES)]

    def encoder(self):
        self.case["input"] = {"kind": "sequence", "shape": [5, 6]}
        return [self.named("encoder_layer", width=6, heads=self.pick((1, 2, 3)), hidden=12, p=self.pick((0.0, 0.2))), {"op": "mean_time"},
                self.linear(6, CLASSES)]

    def mixed(self):
        """Parameters of several dtypes."""
        width = self.random.randint(3, 10)
        self.case["input"] = {"kind": "vector", "shape": [width]}
        layers = [self.linear(width, 8), self.activation()]
        for dtype in self.random.sample(["float64", "bfloat16", "float16"], self.random.randint(1, 3)):
            layers += [{"op": "cast", "dtype": dtype, "layers": [self.linear(8, 8), {"op": "tanh"}]}]
        return layers + [self.linear(8, CLASSES)]

    def branches(self):
        width = self.random.randint(3, 10)
        self.case["input"] = {"kind": "vector", "shape": [width]}
        branches = [[self.linear(width, 8), self.activation()] for _ in range(self.random.randint(2, 4))]
        if self.one_in(3):
            branches.append([self.linear(width, 6), self.activation(), self.linear(6, 8)])
        return self.head([{"op": "branches", "branches": branches}], 8)

    def unused(self):
        width = self.random.randint(3, 10)
        self.case["input"] = {"kind": "vector", "shape": [width]}
        layers = [{"op": "unused", "layers": [self.linear(width, 5), self.linear(5, 3)]}]
        more, width = self.body(width, self.random.randint(1, 4))
        return self.head(layers + more, width)

    def all_layers(self):
        return all_of(self.case["layers"])

    def has(self, *ops):
        return any(layer["op"] in ops for layer in self.all_layers())

    def has_norms(self):
        return self.has("batch_norm1d", "batch_norm2d")

    def is_sparse(self):
        return any(layer.get("sparse") for layer in self.all_layers())

    def is_16_bit(self):
        return any(layer.get("dtype") in ("float16", "bfloat16") for layer in self.all_layers())

    def is_near(self):
        """The bits differ from the first forward on: others than SGD divide gradients that are 0 but for rounding by themselves."""
        return self.kind in ("sync_bn", "attention", "encoder", "torch_linear")

    def frozen(self):
        names = [layer["name"] for layer in self.all_layers() if layer["op"] in ("linear", "conv", "layer_norm", "embedding")]
        return [self.pick(names)] if len(names) > 3 and not self.is_sparse() and self.one_in(5) else []

    # The loop.

    def data(self):
        if self.one_in(2):
            return {"kind": "drawn", "batch": self.random.randint(2, 9)}
        batch = self.random.randint(2, 8)
        ranks, passes = self.case["ranks"], self.random.randint(2, 5)
        length = ranks * (batch * passes + self.pick((0, 0, 2 if batch > 2 else 0)))
        data = {"kind": "dataset", "batch": batch, "length": length, "shuffle": not self.one_in(4), "seed": self.random.randrange(1000),
                "drop_last": self.one_in(3), "loader": self.pick(("batches", "loader", "loader_threads", "device", "torch")),
                "drop_last_batch": self.one_in(3)}
        data["sampler"] = self.pick(("distributed", "distributed", "distributed", "random", "weighted"))
        data["replacement"] = data["sampler"] != "distributed" and self.one_in(2)
        if data["sampler"] == "distributed" and ranks > 1 and self.one_in(2):
            data["length"] -= self.random.randint(1, ranks - 1) if not data["drop_last"] else 0
        if data["loader"] in ("batches", "torch"):  # which have no such option
            data["drop_last_batch"] = False
        return data

    def autocast(self):
        if self.kind in ("sync_bn", "attention", "encoder"):
            return None
        if self.is_16_bit() or self.has("cast", "again", "decode", "lstm", "gru", "rnn") or self.is_sparse() or not self.one_in(4):
            return None
        return self.pick(("bfloat16", "bfloat16", "float16"))

    def optimizer(self):
        pick, number = self.pick, self.number
        if self.is_sparse():
            name, library = pick((("SGD", "torch"), ("Adagrad", "torch")))
        elif self.is_near():
            name, library = pick((("SGD", "torch"), ("SGD", "ddp")))
        elif self.is_16_bit():
            name, library = pick((("SGD", "torch"), ("Adam", "ddp"), ("AdamW", "ddp")))
        else:
            name, library = pick((("SGD", "torch"), ("SGD", "torch"), ("Adam", "torch"), ("AdamW", "torch"), ("RMSprop", "torch"),
                                  ("Adagrad", "torch"), ("SGD", "ddp"), ("SGD", "ddp"), ("Adam", "ddp"), ("AdamW", "ddp"), ("Adagrad", "ddp")))
            if self.one_in(4):
                name, library = pick(("RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor")), "own"
        options = {"lr": number(0.01, 0.1) if name in ("SGD", "Adagrad", "Adadelta") else number(0.001, 0.02)}
        plain = self.is_sparse() or (self.is_16_bit() and library == "torch")
        if self.kind == "branches" and library == "ddp":
            plain = True  # Python's fused SGD throws where a momentum is there and another not yet
        if name == "SGD" and not plain and self.random.random() < 0.7:
            options["momentum"] = number(0.5, 0.95)
            if self.one_in(3):
                options["nesterov"] = True
            elif self.one_in(3):
                options["dampening"] = number(0.1, 0.5)
        if name in ("NAdam", "RAdam") and self.one_in(2):
            options["decoupled_weight_decay"] = True
        if name == "ASGD":
            options["t0"] = pick((1e6, 2.0))
        if name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam"):
            if self.one_in(2):
                options["betas"] = [number(0.8, 0.95), number(0.9, 0.999)]
            if name in ("Adam", "AdamW") and self.one_in(3):
                options["amsgrad"] = True
        if name == "RMSprop":
            options["alpha"] = number(0.9, 0.99)
            if self.one_in(2):
                options["momentum"] = number(0.5, 0.9)
            if self.one_in(3):
                options["centered"] = True
        if name == "Adagrad" and self.one_in(2):
            options |= {"lr_decay": number(0.001, 0.1), "initial_accumulator_value": number(0.01, 0.2)}
        if not self.is_sparse() and name != "Rprop" and self.one_in(2):
            options["weight_decay"] = number(0.001, 0.1)
        optimizer = {"name": name, "library": library, "options": options, "second": None, "zero": False}
        if library != "torch" and self.one_in(5):
            options["maximize"] = True
            options["lr"] /= 100
        if not self.is_sparse() and self.one_in(3):  # biases and the like have a group of their own
            optimizer["second"] = {"lr": number(0.001, 0.05)} | ({"weight_decay": 0.0} if "weight_decay" in options else {})
        if library != "torch" and self.case["ranks"] > 1 and not self.is_16_bit() and self.one_in(4):
            optimizer["zero"] = not (name == "Adafactor" and self.has("cast"))  # refused: eps depends on the dtype
        return optimizer

    def scaler(self):
        if self.is_sparse() or self.is_16_bit() or self.is_near() or self.case["optimizer"]["zero"] or not (self.case["autocast"] == "float16" or self.one_in(5)):
            return None
        return {"init_scale": self.pick((1024.0, 65536.0, 3.0)), "growth_interval": self.random.randint(1, 3),
                "overflow_at": sorted(self.random.sample(range(1, self.case["steps"] + 1), self.random.randint(0, 2)))}

    def clip(self):
        if self.is_sparse() or not self.one_in(3):
            return None
        if self.one_in(3):
            return {"kind": "value", "limit": self.number(0.001, 0.2), "by": "ddp"}
        return {"kind": "norm", "limit": self.number(0.05, 1.0), "norm_type": self.pick((2.0, 2.0, 1.0, "inf", 3.0)), "by": self.pick(("ddp", "ddp", "torch"))}

    def schedule(self):
        if self.one_in(2):
            return None
        per = "epoch" if self.case["data"]["kind"] == "dataset" and self.one_in(2) else "step"
        if self.one_in(6):
            return {"name": "ReduceLROnPlateau", "per": "step", "args": {"factor": 0.5, "patience": self.pick((0, 1)), "threshold": self.number(0.01, 0.3)}}
        schedule = self.plain_schedule(allow_composed=True)
        return schedule | {"per": per}

    def plain_schedule(self, allow_composed=False, may_be_cycle=True):
        integer, number = self.random.randint, self.number
        has_momentum = "momentum" in self.case["optimizer"]["options"] or self.case["optimizer"]["name"] in ("Adam", "AdamW")
        choices = {
            "StepLR": lambda: {"step_size": integer(1, 3), "gamma": number(0.3, 0.9)},
            "MultiStepLR": lambda: {"milestones": sorted(integer(1, 7) for _ in range(3)), "gamma": number(0.3, 0.9)},
            "LambdaLR": lambda: {"rate": number(0.1, 1)},
            "MultiplicativeLR": lambda: {"factor": number(0.5, 1)},
            "ConstantLR": lambda: {"factor": number(0.2, 0.9), "total_iters": integer(1, 6)},
            "LinearLR": lambda: {"start_factor": number(0.1, 0.9), "end_factor": number(0.1, 1), "total_iters": integer(1, 6)},
            "ExponentialLR": lambda: {"gamma": number(0.5, 0.99)},
            "PolynomialLR": lambda: {"total_iters": integer(2, 8), "power": number(0.5, 2)},
            "CosineAnnealingLR": lambda: {"T_max": integer(2, 8), "eta_min": number(0, 0.001)},
            "CosineAnnealingWarmRestarts": lambda: {"T_0": integer(1, 3), "T_mult": integer(1, 2), "eta_min": number(0, 0.001)},
            "OneCycleLR": lambda: {"max_lr": number(0.01, 0.1), "total_steps": 40, "cycle_momentum": has_momentum,
                                   "anneal_strategy": self.pick(("cos", "linear")), "three_phase": self.one_in(2)},
            "CyclicLR": lambda: {"base_lr": number(0.001, 0.01), "max_lr": number(0.02, 0.1), "step_size_up": integer(1, 4),
                                 "mode": self.pick(("triangular", "triangular2", "exp_range")), "gamma": 0.9, "cycle_momentum": has_momentum},
        }
        if allow_composed and self.one_in(4):
            parts = [self.plain_schedule(may_be_cycle=False) for _ in range(self.random.randint(2, 3))]
            if self.one_in(2):
                return {"name": "ChainedScheduler", "parts": parts}
            return {"name": "SequentialLR", "parts": parts, "milestones": sorted(self.random.sample(range(1, 7), len(parts) - 1))}
        name = self.pick([name for name in choices if may_be_cycle or name not in ("OneCycleLR", "CyclicLR")])
        return {"name": name, "args": choices[name]()}

    def ema(self):
        if not self.one_in(6) or self.is_16_bit():
            return None
        ema = {"function": self.pick(("ema", "multi_ema", "swa", "multi_swa")), "decay": self.number(0.5, 0.99), "buffers": self.one_in(2)}
        if ema["function"] == "multi_swa" and self.has_norms():
            ema["buffers"] = False  # Python's throws for the numbers of batches, which are integers
        return ema

    # DistributedDataParallel.

    def ddp(self):
        case = self.case
        minor = {"bucket_cap_bytes": self.pick((0, 0, 100, 300, 1000, 4096, 1 << 20)), "views": self.one_in(2), "python_views": self.one_in(2),
                 "own_engine": None, "batched_grad_copy": None, "lazy": False, "broadcast_buffers": not self.one_in(5), "init_sync": not self.one_in(6),
                 "find_unused": False, "static": False, "auto_bucket": False, "ignored": [], "delayed": None}
        options = minor
        if case["ranks"] == 3:  # a gradient in its bucket is divided by the ranks, one that is copied multiplied by a reciprocal
            options["python_views"] = options["views"]
        if self.kind == "branches":
            options["find_unused"] = True
        elif self.kind == "unused":
            options[self.pick(("find_unused", "static"))] = True
        elif self.one_in(5):
            options["find_unused"] = True
        elif self.one_in(5):
            options["static"] = True
        if options["static"]:
            case["accumulate"] = 1 if case["accumulate"] > 1 else case["accumulate"]
        plain = not (options["find_unused"] or options["static"])
        if not self.is_sparse():
            options["batched_grad_copy"] = self.pick((None, None, True, False))
            options["lazy"] = self.one_in(6)
        if plain and not self.is_sparse() and not options["lazy"] and options["views"] and not options["batched_grad_copy"]:
            options["own_engine"] = self.pick((None, None, None, False))
        if plain and case["ranks"] <= 2 and self.one_in(8) and not self.is_sparse():
            options["auto_bucket"] = True
        if self.kind in ("mlp", "residual", "conv") and case["ranks"] > 1 and self.one_in(8):
            names = [layer["name"] for layer in self.all_layers() if layer["op"] in ("linear", "conv") and layer["bias"]]
            trained = [name for name in names if name not in case["frozen"]]
            if len(trained) >= 3 and not self.has("again", "cast") and plain:
                if self.one_in(2) and not case["optimizer"]["zero"]:  # which needs equal gradients
                    options["ignored"] = [f"{self.pick(trained)}.bias"]
                elif case["accumulate"] == 1:
                    options["delayed"] = {"names": [f"{trained[-1]}.weight", f"{trained[-1]}.bias"], "trigger": f"{trained[0]}.weight"}
                    options |= {"auto_bucket": False, "bucket_cap_bytes": 0, "own_engine": None}
        return options

    def hook(self, often=False):
        options = self.case["ddp"]
        if (not (often or self.one_in(4)) or self.is_sparse() or self.is_16_bit() or options["delayed"] or self.case["ranks"] == 1 or options["auto_bucket"]
                or self.has("cast")):
            return None
        options["own_engine"] = None
        hook = self.pick(HOOKS)
        if hook.startswith("power_sgd"):  # Python's starts collectives from callbacks, which others bring out of order
            if self.kind in ("branches", "unused") or self.has("scale"):  # nor does it take parameters without dimensions
                return "fp16"
            options |= {"bucket_cap_bytes": 0, "find_unused": False}
        if hook == "fp16_wrapped" and options["find_unused"]:
            hook = "fp16"  # Python's leaves float16 gradients then
        return hook

    def join(self):
        case = self.case
        if (not self.one_in(5) or case["data"]["kind"] != "drawn" or self.is_sparse() or case["ddp"]["delayed"] or self.kind == "sync_bn"
                or case["ranks"] == 1 or case["optimizer"]["zero"] or case["hook"] or case["ddp"]["static"]):
            return None
        schedule = case["schedule"]
        if schedule and schedule["name"] == "ReduceLROnPlateau":
            case["schedule"] = None
        case["ddp"]["python_views"] = case["ddp"]["views"]  # as for three ranks, which may be those that are left
        return {"divide_by_initial": self.one_in(2), "less": self.random.randint(1, 2)}

    def hops(self):
        """Who trains until which step; None: one process to the end."""
        case = self.case
        if (not self.one_in(3) or case["join"] or case["hook"] or case["optimizer"]["name"] == "RMSprop" or case["ddp"]["auto_bucket"]
                or case["ddp"]["ignored"] or self.is_sparse()):
            return None
        if self.has_norms() and (case["ema"] or not case["ddp"]["broadcast_buffers"]):
            return None  # a checkpoint has rank 0's buffers
        if self.kind in ("branches", "unused") and case["zero_grad"] == "zero":
            return None  # a gradient of zeros stays for parameters that are unused from then on, but not in a new process
        steps = case["steps"]
        # A job in Python does not keep the buckets, so sums over more than two ranks may differ in their last bit.
        through_python = (case["ranks"] <= 2 and not case["ema"] and not case["optimizer"]["zero"] and self.kind != "sync_bn" and self.one_in(2)
                          and case["data"].get("loader") != "torch" and case["data"].get("sampler", "distributed") == "distributed")
        if case["ranks"] > 2 and (case["ddp"]["find_unused"] or case["ddp"]["static"]):
            return None
        if case["ranks"] == 3 and case["ddp"]["views"] and case["zero_grad"] == "zero":
            return None  # gradients are in their buckets but for the first step of a process, and divided otherwise
        if through_python:
            first = self.random.randint(1, steps - 2)
            second = self.random.randint(first + 1, steps - 1)
            return [["cpp", first], ["python", second], ["cpp", steps]]
        return [["cpp", self.random.randint(1, steps - 1)], ["cpp", steps]]

    def unusual(self):
        case = self.case
        kind = self.pick(UNUSUAL)
        case |= {"hops": None, "join": None, "scaler": None, "autocast": None, "hook": None, "accumulate": 1}
        if case["data"]["kind"] == "dataset":
            case["data"] = {"kind": "drawn", "batch": case["data"]["batch"]}
            if case["schedule"]:
                case["schedule"]["per"] = "step"
        if case["ranks"] == 3 and case["ddp"]["views"]:
            case["ranks"] = 4  # the judge has no views, and divides by 3 otherwise
        case["ddp"] |= {"python_views": False, "ignored": [], "delayed": None}
        if kind == "static_no_sync":
            case["ddp"] |= {"static": True, "find_unused": False, "own_engine": None, "auto_bucket": False}
        if known.is_computed({**case, "unusual": kind}):
            case["ddp"]["broadcast_buffers"] = False  # the judge's forwards are local
            if self.has_norms():
                case["optimizer"] = plain_optimizer()  # a bias before a batch norm has a gradient of 0
        return kind
