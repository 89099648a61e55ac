"""What modules_program runs, in Python: CASES, and run() of one."""

import dataclasses
import typing
import zlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

# In which circumstances: dtype, training, gradients, autocast.
CIRCUMSTANCES = {
    "float32": ("float32", True, True, False),
    "float32, eval": ("float32", False, True, False),
    "float32, eval, no_grad": ("float32", False, False, False),
    "float64": ("float64", True, True, False),
    "bfloat16": ("bfloat16", True, True, False),
    "autocast": ("float32", True, True, True),
    "autocast, eval, no_grad": ("float32", False, False, True),
}


@dataclasses.dataclass
class Case:
    subject: str  # its name in subjects.h
    make: typing.Callable  # () -> module, or None of a function
    inputs: typing.Callable  # (generator) -> tensors; those of floats get gradients
    call: typing.Callable = None  # (module, *inputs) -> outputs
    shape: str = ""  # what differs from other cases of the subject

    @property
    def name(self):
        return f"{self.subject} ({self.shape})" if self.shape else self.subject


def x(*shape):
    return lambda g: torch.randn(*shape, generator=g)


def unit(*shape):
    return lambda g: torch.rand(*shape, generator=g) * 0.9 + 0.05


def log_unit(*shape):
    return lambda g: torch.log_softmax(torch.randn(*shape, generator=g), -1)


def indices(limit, *shape):
    return lambda g: torch.randint(0, limit, shape, generator=g)


def signs(*shape):
    return lambda g: torch.randint(0, 2, shape, generator=g) * 2 - 1


def mask(*shape):
    """Of booleans, with at least one False in each row."""

    def draw(g):
        drawn = torch.rand(*shape, generator=g) < 0.4
        drawn[..., 0] = False
        return drawn

    return draw


def inputs(*kinds):
    return lambda g: [kind(g) for kind in kinds]


def shapes(subject, make, *alternatives):
    """A case for each of several inputs: (what it is called, kinds...)."""
    return [Case(subject, make, inputs(*kinds), shape=name) for name, *kinds in alternatives]


def module(subject, make, *kinds, call=None):
    return Case(subject, make, inputs(*kinds), call)


def function(subject, call, *kinds):
    return Case(subject, lambda: None, inputs(*kinds), lambda _, *tensors: call(*tensors))


def of_each(kind, **makes):
    return [module(name, make, kind) for name, make in makes.items()]


LINEAR_SHAPES = [("1-D", x(48)), ("2-D", x(20, 48)), ("3-D", x(5, 7, 48)), ("4-D", x(2, 3, 5, 48)),
                 ("3-D, transposed", lambda g: torch.randn(5, 7, 48, generator=g).transpose(0, 1)), ("one row", x(1, 48))]  # fmt: skip
LINEAR = [
    *shapes("Linear", lambda: nn.Linear(48, 40), *LINEAR_SHAPES),
    *shapes("Linear, wide", lambda: nn.Linear(300, 260), ("2-D", x(64, 300)), ("3-D", x(16, 20, 300))),
    *shapes("Linear, no bias", lambda: nn.Linear(48, 40, bias=False), *LINEAR_SHAPES),
    module("Linear, used twice", lambda: nn.Linear(48, 48), x(20, 48), call=lambda m, a: m(torch.relu(m(a)))),
]
LAYERS = [
    *shapes("Bilinear", lambda: nn.Bilinear(12, 10, 8), ("2-D", x(20, 12), x(20, 10)), ("3-D", x(5, 4, 12), x(5, 4, 10))),
    module("Bilinear, no bias", lambda: nn.Bilinear(12, 10, 8, bias=False), x(20, 12), x(20, 10)),
    module("Identity", nn.Identity, x(4, 5)),
    module("Flatten", nn.Flatten, x(4, 5, 6)),
    module("Unflatten", lambda: nn.Unflatten(1, (4, 12)), x(3, 48)),
    module("Embedding", lambda: nn.Embedding(20, 16), indices(20, 9, 7)),
    module("Embedding, padding_idx", lambda: nn.Embedding(20, 16, padding_idx=3), indices(20, 9, 7)),
    module("Embedding, max_norm", lambda: nn.Embedding(20, 16, max_norm=1.0), indices(20, 9, 7)),
    module("Embedding, scale_grad_by_freq", lambda: nn.Embedding(20, 16, scale_grad_by_freq=True), indices(20, 9, 7)),
    module("Embedding, sparse", lambda: nn.Embedding(20, 16, sparse=True), indices(20, 9, 7)),
    module("EmbeddingBag, mean", lambda: nn.EmbeddingBag(20, 16), indices(20, 9, 7)),
    module("EmbeddingBag, sum", lambda: nn.EmbeddingBag(20, 16, mode="sum"), indices(20, 9, 7)),
    module("EmbeddingBag, max", lambda: nn.EmbeddingBag(20, 16, mode="max"), indices(20, 9, 7)),
    *shapes("Conv1d", lambda: nn.Conv1d(6, 8, 3, padding=1), ("3-D", x(4, 6, 20)), ("2-D", x(6, 20))),
    module("Conv1d, no bias, stride 2, dilation 2", lambda: nn.Conv1d(6, 8, 3, bias=False, stride=2, dilation=2), x(4, 6, 20)),
    *shapes("Conv2d", lambda: nn.Conv2d(6, 8, 3, padding=1), ("4-D", x(4, 6, 9, 8)), ("3-D", x(6, 9, 8)),
            ("channels last", lambda g: torch.randn(4, 6, 9, 8, generator=g).to(memory_format=torch.channels_last))),
    module("Conv2d, 1x1", lambda: nn.Conv2d(6, 8, 1), x(4, 6, 9, 8)),
    module("Conv2d, no bias, stride 2", lambda: nn.Conv2d(6, 8, 3, bias=False, stride=2), x(4, 6, 9, 8)),
    module("Conv2d, groups", lambda: nn.Conv2d(6, 12, 3, groups=6), x(4, 6, 9, 8)),
    module("Conv2d, same", lambda: nn.Conv2d(6, 8, 4, padding="same"), x(4, 6, 9, 8)),
    *(module(f"Conv2d, {mode}", lambda mode=mode: nn.Conv2d(6, 8, 3, padding=1, padding_mode=mode), x(4, 6, 9, 8))
      for mode in ("reflect", "replicate", "circular")),
    module("Conv3d", lambda: nn.Conv3d(4, 6, 3, padding=1), x(2, 4, 6, 5, 4)),
    module("ConvTranspose1d", lambda: nn.ConvTranspose1d(6, 8, 3, stride=2), x(4, 6, 9)),
    module("ConvTranspose2d", lambda: nn.ConvTranspose2d(6, 8, 3, stride=2, output_padding=1), x(4, 6, 9, 8)),
    module("ConvTranspose2d, groups", lambda: nn.ConvTranspose2d(6, 9, 2, groups=3), x(4, 6, 9, 8)),
    module("ConvTranspose3d", lambda: nn.ConvTranspose3d(4, 6, 2, stride=2), x(2, 4, 5, 4, 3)),
    *shapes("BatchNorm1d", lambda: nn.BatchNorm1d(6), ("2-D", x(20, 6)), ("3-D", x(4, 6, 9))),
    module("BatchNorm2d", lambda: nn.BatchNorm2d(6), x(4, 6, 9, 8)),
    module("BatchNorm2d, not affine", lambda: nn.BatchNorm2d(6, affine=False), x(4, 6, 9, 8)),
    module("BatchNorm2d, no running statistics", lambda: nn.BatchNorm2d(6, track_running_stats=False), x(4, 6, 9, 8)),
    module("BatchNorm2d, no momentum", lambda: nn.BatchNorm2d(6, momentum=None), x(4, 6, 9, 8)),
    module("BatchNorm3d", lambda: nn.BatchNorm3d(4), x(2, 4, 6, 5, 4)),
    module("InstanceNorm1d", lambda: nn.InstanceNorm1d(6, affine=True), x(4, 6, 9)),
    module("InstanceNorm2d", lambda: nn.InstanceNorm2d(6), x(4, 6, 9, 8)),
    module("InstanceNorm2d, affine, running statistics", lambda: nn.InstanceNorm2d(6, affine=True, track_running_stats=True), x(4, 6, 9, 8)),
    module("InstanceNorm3d", lambda: nn.InstanceNorm3d(4), x(2, 4, 6, 5, 4)),
    module("LayerNorm", lambda: nn.LayerNorm(48), x(5, 7, 48)),
    module("LayerNorm, not affine", lambda: nn.LayerNorm(48, elementwise_affine=False), x(5, 7, 48)),
    module("GroupNorm", lambda: nn.GroupNorm(3, 6), x(4, 6, 9, 8)),
    module("GroupNorm, not affine", lambda: nn.GroupNorm(3, 6, affine=False), x(4, 6, 9, 8)),
    module("LocalResponseNorm", lambda: nn.LocalResponseNorm(3), x(4, 6, 9, 8)),
    module("CrossMapLRN2d", lambda: nn.CrossMapLRN2d(3), x(4, 6, 9, 8)),
    module("MaxPool1d", lambda: nn.MaxPool1d(3, stride=2, padding=1), x(4, 6, 20)),
    module("MaxPool2d", lambda: nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), x(4, 6, 10, 8)),
    module("MaxPool3d", lambda: nn.MaxPool3d(2), x(2, 4, 6, 5, 4)),
    module("AvgPool1d", lambda: nn.AvgPool1d(3, stride=2, padding=1), x(4, 6, 20)),
    module("AvgPool2d", lambda: nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), x(4, 6, 10, 8)),
    module("AvgPool3d", lambda: nn.AvgPool3d(2), x(2, 4, 6, 5, 4)),
    module("AdaptiveMaxPool1d", lambda: nn.AdaptiveMaxPool1d(5), x(4, 6, 20)),
    module("AdaptiveMaxPool2d", lambda: nn.AdaptiveMaxPool2d(3), x(4, 6, 10, 8)),
    module("AdaptiveMaxPool3d", lambda: nn.AdaptiveMaxPool3d(3), x(2, 4, 6, 5, 4)),
    module("AdaptiveAvgPool1d", lambda: nn.AdaptiveAvgPool1d(5), x(4, 6, 20)),
    module("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d(1), x(4, 6, 10, 8)),
    module("AdaptiveAvgPool3d", lambda: nn.AdaptiveAvgPool3d(3), x(2, 4, 6, 5, 4)),
    module("LPPool1d", lambda: nn.LPPool1d(2, 3), x(4, 6, 20)),
    module("LPPool2d", lambda: nn.LPPool2d(2, 3), x(4, 6, 10, 8)),
    module("LPPool3d", lambda: nn.LPPool3d(2, 2), x(2, 4, 6, 5, 4)),
    module("FractionalMaxPool2d", lambda: nn.FractionalMaxPool2d(2, output_size=4), x(4, 6, 10, 8)),
    module("FractionalMaxPool3d", lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5), x(2, 4, 6, 6, 4)),
    function("MaxUnpool1d", lambda a: nn.MaxUnpool1d(2)(*nn.MaxPool1d(2, return_indices=True)(a)), x(4, 6, 20)),
    function("MaxUnpool2d", lambda a: nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(a)), x(4, 6, 10, 8)),
    function("MaxUnpool3d", lambda a: nn.MaxUnpool3d(2)(*nn.MaxPool3d(2, return_indices=True)(a)), x(2, 4, 6, 4, 4)),
    *(module(f"{kind}{dims}d", lambda kind=kind, dims=dims, more=more: getattr(nn, f"{kind}{dims}d")(2 if dims < 3 else 1, *more),
             x(2, 4, *(6, 5, 4)[:dims]))
      for kind, more in (("ReflectionPad", ()), ("ReplicationPad", ()), ("ZeroPad", ()), ("ConstantPad", (0.5,))) for dims in (1, 2, 3)),
    module("PixelShuffle", lambda: nn.PixelShuffle(2), x(2, 8, 3, 4)),
    module("PixelUnshuffle", lambda: nn.PixelUnshuffle(2), x(2, 3, 4, 6)),
    module("Fold", lambda: nn.Fold((4, 5), (2, 2)), x(2, 12, 12)),
    module("Unfold", lambda: nn.Unfold((2, 3), padding=1), x(2, 3, 4, 6)),
    module("Upsample, nearest", lambda: nn.Upsample(scale_factor=1.7), x(2, 3, 5, 6)),
    module("Upsample, nearest, size", lambda: nn.Upsample(size=(13, 11)), x(2, 3, 5, 6)),
    module("Upsample, linear", lambda: nn.Upsample(scale_factor=1.7, mode="linear"), x(2, 3, 15)),
    module("Upsample, bilinear", lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), x(2, 3, 5, 6)),
    module("Upsample, bilinear, align_corners", lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), x(2, 3, 5, 6)),
    module("Upsample, bilinear, size", lambda: nn.Upsample(size=(13, 11), mode="bilinear"), x(2, 3, 5, 6)),
    module("Upsample, bicubic", lambda: nn.Upsample(scale_factor=1.7, mode="bicubic"), x(2, 3, 5, 6)),
    module("Upsample, trilinear", lambda: nn.Upsample(scale_factor=1.5, mode="trilinear"), x(2, 3, 5, 6, 4)),
]  # fmt: skip

ACTIVATIONS = [
    *of_each(x(6, 4, 10), ELU=nn.ELU, SELU=nn.SELU, Hardshrink=nn.Hardshrink, Hardtanh=nn.Hardtanh, LeakyReLU=lambda: nn.LeakyReLU(0.2),
             LogSigmoid=nn.LogSigmoid, Softmax=lambda: nn.Softmax(-1), Softmin=lambda: nn.Softmin(-1), LogSoftmax=lambda: nn.LogSoftmax(-1),
             PReLU=nn.PReLU, ReLU=nn.ReLU, ReLU6=nn.ReLU6, RReLU=nn.RReLU, CELU=nn.CELU, GLU=nn.GLU, GELU=nn.GELU, SiLU=nn.SiLU, Mish=nn.Mish,
             Sigmoid=nn.Sigmoid, Softplus=nn.Softplus, Softshrink=nn.Softshrink, Softsign=nn.Softsign, Tanh=nn.Tanh, Tanhshrink=nn.Tanhshrink,
             Threshold=lambda: nn.Threshold(0.1, 20), Dropout=lambda: nn.Dropout(0.3), AlphaDropout=lambda: nn.AlphaDropout(0.3)),
    module("GELU, tanh", lambda: nn.GELU(approximate="tanh"), x(6, 4, 10)),
    module("Softmax2d", nn.Softmax2d, x(4, 6, 9, 8)),
    module("PReLU, channels", lambda: nn.PReLU(6), x(4, 6, 10)),
    module("Dropout2d", lambda: nn.Dropout2d(0.3), x(4, 6, 9, 8)),
    module("Dropout3d", lambda: nn.Dropout3d(0.3), x(2, 6, 6, 5, 4)),
    module("FeatureAlphaDropout", lambda: nn.FeatureAlphaDropout(0.3), x(4, 6, 9, 8)),
    module("CosineSimilarity", nn.CosineSimilarity, x(9, 12), x(9, 12)),
    module("PairwiseDistance", nn.PairwiseDistance, x(9, 12), x(9, 12)),
]  # fmt: skip


LOSSES = [
    *(module(name, make, x(9, 12), x(9, 12)) for name, make in {
        "L1Loss": nn.L1Loss, "MSELoss": nn.MSELoss, "MSELoss, none": lambda: nn.MSELoss(reduction="none"), "SmoothL1Loss": nn.SmoothL1Loss,
        "SmoothL1Loss, beta": lambda: nn.SmoothL1Loss(reduction="sum", beta=0.3), "HuberLoss": lambda: nn.HuberLoss(delta=0.7)}.items()),
    module("BCELoss", nn.BCELoss, unit(9, 12), unit(9, 12)),
    module("BCEWithLogitsLoss", nn.BCEWithLogitsLoss, x(9, 12), unit(9, 12)),
    module("BCEWithLogitsLoss, pos_weight", lambda: nn.BCEWithLogitsLoss(pos_weight=torch.linspace(0.2, 2, 12)), x(9, 12), unit(9, 12)),
    module("BCELoss, weight", lambda: nn.BCELoss(torch.linspace(0.2, 2, 12)), unit(9, 12), unit(9, 12)),
    module("KLDivLoss", lambda: nn.KLDivLoss(reduction="batchmean"), log_unit(9, 12), unit(9, 12)),
    module("KLDivLoss, log_target", lambda: nn.KLDivLoss(log_target=True), log_unit(9, 12), log_unit(9, 12)),
    module("PoissonNLLLoss", nn.PoissonNLLLoss, x(9, 12), unit(9, 12)),
    module("PoissonNLLLoss, full", lambda: nn.PoissonNLLLoss(full=True, log_input=False), unit(9, 12), unit(9, 12)),
    module("MarginRankingLoss", lambda: nn.MarginRankingLoss(margin=0.2), x(9), x(9), signs(9)),
    module("HingeEmbeddingLoss", nn.HingeEmbeddingLoss, x(9, 12), signs(9, 12)),
    module("CosineEmbeddingLoss", lambda: nn.CosineEmbeddingLoss(margin=0.1), x(9, 12), x(9, 12), signs(9)),
    module("SoftMarginLoss", nn.SoftMarginLoss, x(9, 12), signs(9, 12)),
    module("TripletMarginLoss", nn.TripletMarginLoss, x(9, 12), x(9, 12), x(9, 12)),
    module("TripletMarginLoss, swap", lambda: nn.TripletMarginLoss(swap=True, p=1), x(9, 12), x(9, 12), x(9, 12)),
    module("TripletMarginWithDistanceLoss", nn.TripletMarginWithDistanceLoss, x(9, 12), x(9, 12), x(9, 12)),
    module("NLLLoss", nn.NLLLoss, log_unit(9, 12), indices(12, 9)),
    *shapes("CrossEntropyLoss", nn.CrossEntropyLoss, ("classes", x(9, 12), indices(12, 9)), ("probabilities", x(9, 12), unit(9, 12)),
            ("pictures", x(2, 12, 5, 4), indices(12, 2, 5, 4))),
    module("CrossEntropyLoss, sum", lambda: nn.CrossEntropyLoss(reduction="sum"), x(9, 12), indices(12, 9)),
    *shapes("CrossEntropyLoss, label_smoothing", lambda: nn.CrossEntropyLoss(label_smoothing=0.1), ("classes", x(9, 12), indices(12, 9)),
            ("probabilities", x(9, 12), unit(9, 12))),
    module("CrossEntropyLoss, weight", lambda: nn.CrossEntropyLoss(torch.linspace(0.2, 2, 12), ignore_index=1), x(9, 12), indices(12, 9)),
    module("NLLLoss, weight", lambda: nn.NLLLoss(torch.linspace(0.2, 2, 12)), log_unit(9, 12), indices(12, 9)),
    module("MultiMarginLoss", nn.MultiMarginLoss, x(9, 12), indices(12, 9)),
    module("MultiLabelMarginLoss", nn.MultiLabelMarginLoss, x(9, 12), lambda g: torch.tensor([[3, 1, -1] + [0] * 9] * 9)),
    module("MultiLabelSoftMarginLoss", nn.MultiLabelSoftMarginLoss, x(9, 12), indices(2, 9, 12)),
    module("CTCLoss", nn.CTCLoss, log_unit(15, 3, 8), lambda g: torch.randint(1, 8, (3, 5), generator=g), lambda g: torch.tensor([15, 14, 12]),
           lambda g: torch.tensor([5, 3, 4])),
    module("AdaptiveLogSoftmaxWithLoss", lambda: nn.AdaptiveLogSoftmaxWithLoss(48, 20, [5, 12]), x(30, 48), indices(20, 30),
           call=lambda m, a, b: m(a, b).output),
    module("AdaptiveLogSoftmaxWithLoss, head_bias", lambda: nn.AdaptiveLogSoftmaxWithLoss(48, 20, [5, 12], head_bias=True), x(30, 48),
           call=lambda m, a: m.log_prob(a)),
]  # fmt: skip

MHA = nn.MultiheadAttention


def on_itself(**options):
    return lambda m, a: m(a, a, a, **options)


ATTENTION = [
    *shapes("MultiheadAttention", lambda: MHA(48, 4), ("3-D", x(5, 3, 48), x(7, 3, 48), x(7, 3, 48)), ("2-D", x(5, 48), x(7, 48), x(7, 48))),
    module("MultiheadAttention, one memory", lambda: MHA(48, 4), x(5, 3, 48), x(7, 3, 48), call=lambda m, a, b: m(a, b, b, need_weights=False)),
    *(Case(f"MultiheadAttention, self{name}", lambda: MHA(48, 4), inputs(kind), on_itself(**options), shape)
      for name, options in (("", {}), (", need_weights=False", {"need_weights": False}), (", average_attn_weights=False", {"average_attn_weights": False}))
      for shape, kind in (("3-D", x(5, 3, 48)), ("2-D", x(5, 48)))),
    module("MultiheadAttention, self, bias=False", lambda: MHA(48, 4, bias=False), x(5, 3, 48), call=on_itself()),
    module("MultiheadAttention, dropout", lambda: MHA(48, 4, dropout=0.2), x(5, 3, 48), call=on_itself(need_weights=False)),
    module("MultiheadAttention, dropout, weights", lambda: MHA(48, 4, dropout=0.2), x(5, 3, 48), call=on_itself()),
    module("MultiheadAttention, kdim, vdim", lambda: MHA(48, 4, kdim=12, vdim=16), x(5, 3, 48), x(7, 3, 12), x(7, 3, 16)),
    module("MultiheadAttention, add_bias_kv", lambda: MHA(48, 4, add_bias_kv=True), x(5, 3, 48), call=on_itself()),
    module("MultiheadAttention, add_zero_attn", lambda: MHA(48, 4, add_zero_attn=True), x(5, 3, 48), call=on_itself()),
    *(Case("MultiheadAttention, attn_mask" + (", weights" if weights else ""), lambda: MHA(48, 4), inputs(x(5, 3, 48), kind),
           lambda m, a, b, weights=weights: m(a, a, a, need_weights=weights, attn_mask=b.detach()), shape)
      for weights in (False, True) for shape, kind in (("floats", x(5, 5)), ("bool", mask(5, 5)), ("of each head", x(12, 5, 5)))),
    *(Case("MultiheadAttention, key_padding_mask" + (", weights" if weights else ""), lambda: MHA(48, 4), inputs(x(5, 3, 48), mask(3, 5)),
           lambda m, a, b, weights=weights: m(a, a, a, key_padding_mask=b, need_weights=weights)) for weights in (False, True)),
]  # fmt: skip


TRANSFORMERS = [
    module("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(48, 4, 64), x(5, 3, 48)),
    module("TransformerEncoderLayer, gelu", lambda: nn.TransformerEncoderLayer(48, 4, 64, dropout=0, activation="gelu"), x(5, 3, 48)),
    *(Case("TransformerEncoderLayer, mask", lambda: nn.TransformerEncoderLayer(48, 4, 64), inputs(x(5, 3, 48), kind), lambda m, a, b: m(a, b.detach()), shape)
      for shape, kind in (("floats", x(5, 5)), ("bool", mask(5, 5)))),
    module("TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(48, 4, 64), x(5, 3, 48), x(7, 3, 48)),
    module("TransformerEncoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 64, dropout=0), 2, nn.LayerNorm(48)), x(5, 3, 48)),
    module("TransformerDecoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(48, 4, 64, dropout=0), 2), x(5, 3, 48), x(7, 3, 48)),
    module("Transformer", lambda: nn.Transformer(48, 4, 2, 2, 64), x(5, 3, 48), x(7, 3, 48)),
]  # fmt: skip


def causal(size, like=None):
    made = nn.Transformer.generate_square_subsequent_mask(size)
    return made if like is None else made.to(like.dtype)


def batch_first(name, call, *kinds):
    """With and without weights."""
    return [module(f"ddp batch_first{name}{', weights' if weights else ''}", lambda: MHA(48, 4, batch_first=True), x(3, 5, 48), *kinds,
                   call=lambda *given, weights=weights: call(*given, need_weights=weights)) for weights in (False, True)]  # fmt: skip


def small(kind, **options):
    return lambda: kind(48, 4, 64, batch_first=True, **options)


def left_aligned(g):
    return torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])


def on_itself_detached(m, a):
    a = a.detach()
    return m(a, a, a)


def frozen_but_for_a_norm():
    layer = small(ENCODER_LAYER)().requires_grad_(False)
    layer.norm2.weight.requires_grad_(True)
    return layer


def in_bfloat16(m, a):
    with torch.autocast("cpu"):
        a = a.bfloat16()
        return m(a, a, a)


def parametrized(name, make, *shape):
    """A layer that is called once, or twice, as a discriminator is on real and on generated samples."""
    return [module(f"ddp {name}", make, x(*shape)),
            module(f"ddp {name}, twice", make, x(*shape), x(*shape), call=lambda m, a, b: m(a) - m(b))]  # fmt: skip


PARAMETRIZED = [
    *parametrized("weight_norm Linear", lambda: weight_norm(nn.Linear(48, 40)), 5, 7, 48),
    *parametrized("weight_norm Linear, whole", lambda: weight_norm(nn.Linear(48, 40), dim=None), 20, 48),
    *parametrized("weight_norm Conv2d, dim 1", lambda: weight_norm(nn.Conv2d(4, 6, 3, bias=False), dim=1), 2, 4, 7, 9),
    *parametrized("weight_norm ConvTranspose1d, last dim", lambda: weight_norm(nn.ConvTranspose1d(4, 6, 3), dim=2), 2, 4, 9),
    *parametrized("weight_norm Linear, frozen", lambda: weight_norm(nn.Linear(48, 40).requires_grad_(False)), 20, 48),
    *parametrized("spectral_norm Linear", lambda: spectral_norm(nn.Linear(48, 40)), 5, 7, 48),
    *parametrized("spectral_norm Conv2d, 3 iterations", lambda: spectral_norm(nn.Conv2d(4, 6, 3), n_power_iterations=3, eps=1e-3), 2, 4, 7, 9),
    *parametrized("spectral_norm Conv1d, dim -1", lambda: spectral_norm(nn.Conv1d(4, 6, 3), dim=-1), 2, 4, 9),
    *parametrized("spectral_norm ConvTranspose2d", lambda: spectral_norm(nn.ConvTranspose2d(4, 6, 3)), 2, 4, 5, 6),
    *parametrized("spectral_norm LayerNorm", lambda: spectral_norm(nn.LayerNorm(12)), 20, 12),
    *parametrized("spectral_norm of a layer in eval mode", lambda: spectral_norm(nn.Linear(48, 40).eval()), 20, 48),
]  # fmt: skip
ENCODER_LAYER, DECODER_LAYER = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
OURS = [
    *batch_first("", lambda m, a, **more: m(a, a, a, **more)),
    *batch_first(", key_padding_mask", lambda m, a, b, **more: m(a, a, a, key_padding_mask=b, **more), mask(3, 5)),
    *batch_first(", attn_mask", lambda m, a, b, **more: m(a, a, a, attn_mask=b.detach(), **more), mask(5, 5)),
    *(dataclasses.replace(case, shape="floats") for case in
      batch_first(", attn_mask", lambda m, a, b, **more: m(a, a, a, attn_mask=b.detach(), **more), x(5, 5))),
    *(dataclasses.replace(case, shape="of each head") for case in
      batch_first(", attn_mask", lambda m, a, b, **more: m(a, a, a, attn_mask=b.detach(), **more), x(12, 5, 5))),
    *batch_first(", both masks", lambda m, a, b, c, **more: m(a, a, a, attn_mask=b, key_padding_mask=c, **more), mask(5, 5), mask(3, 5)),
    *batch_first(", memory", lambda m, a, b, **more: m(a, b, b, **more), x(3, 7, 48)),
    *batch_first(", is_causal", lambda m, a, **more: m(a, a, a, attn_mask=causal(a.size(1)), is_causal=True, **more)),
    module("ddp odd heads", lambda: MHA(48, 3, batch_first=True), x(3, 5, 48), call=on_itself()),
    *shapes("ddp encoder layer", small(ENCODER_LAYER), ("3-D", x(3, 5, 48)), ("2-D", x(5, 48))),
    module("ddp encoder layer, norm_first", small(ENCODER_LAYER, norm_first=True), x(3, 5, 48)),
    module("ddp encoder layer, gelu", small(ENCODER_LAYER, activation="gelu", dropout=0.3), x(3, 5, 48)),
    module("ddp encoder layer, elu", small(ENCODER_LAYER, activation=F.elu, layer_norm_eps=1e-3), x(3, 5, 48)),
    module("ddp encoder layer, padding", small(ENCODER_LAYER), x(3, 5, 48), mask(3, 5), call=lambda m, a, b: m(a, src_key_padding_mask=b)),
    *(Case("ddp encoder layer, both masks", small(ENCODER_LAYER), inputs(x(3, 5, 48), one, other),
           lambda m, a, b, c: m(a, b.detach(), c.detach()), shape)
      for shape, one, other in (("bool", mask(5, 5), mask(3, 5)), ("floats", x(5, 5), x(3, 5)), ("of each head", mask(12, 5, 5), mask(3, 5)))),
    module("ddp frozen attention", lambda: MHA(48, 4, batch_first=True).requires_grad_(False), x(3, 5, 48), call=on_itself_detached),
    module("ddp frozen encoder layer", lambda: small(ENCODER_LAYER)().requires_grad_(False), x(3, 5, 48), call=lambda m, a: m(a.detach())),
    module("ddp frozen but for a norm", frozen_but_for_a_norm, x(3, 5, 48), call=lambda m, a: m(a.detach())),
    module("ddp other dtype", lambda: MHA(48, 4, batch_first=True), x(3, 5, 48), call=in_bfloat16),
    module("ddp decoder layer", small(DECODER_LAYER), x(3, 5, 48), x(3, 7, 48)),
    module("ddp decoder layer, norm_first, masks", small(DECODER_LAYER, norm_first=True), x(3, 5, 48), x(3, 7, 48), mask(5, 5), mask(3, 7),
           call=lambda m, a, b, c, d: m(a, b, tgt_mask=c, memory_key_padding_mask=d)),
    *(Case("ddp encoder, padding", lambda: nn.TransformerEncoder(small(ENCODER_LAYER)(), 2), inputs(x(3, 5, 48), kind),
           lambda m, a, b: m(a, src_key_padding_mask=b), shape) for shape, kind in (("at the ends", left_aligned), ("anywhere", mask(3, 5)))),
    module("ddp encoder, causal mask", lambda: nn.TransformerEncoder(small(ENCODER_LAYER)(), 2), x(3, 5, 48), call=lambda m, a: m(a, causal(5, a))),
    module("ddp encoder, mask of bool", lambda: nn.TransformerEncoder(small(ENCODER_LAYER)(), 1), x(3, 5, 48), mask(5, 5)),
    module("ddp transformer", lambda: nn.Transformer(48, 4, 1, 2, 64, batch_first=True, norm_first=True), x(3, 7, 48), x(3, 5, 48), mask(3, 7),
           call=lambda m, a, b, c: m(a, b, tgt_mask=causal(5, b), src_key_padding_mask=c, memory_key_padding_mask=c)),
    module("ddp Sequential", lambda: nn.Sequential(nn.Linear(48, 40), nn.Linear(40, 8)), x(3, 5, 48)),
]  # fmt: skip

SEQUENCES = [
    *shapes("RNN", lambda: nn.RNN(12, 16, num_layers=2), ("3-D", x(7, 4, 12)), ("2-D", x(7, 12))),
    module("RNN, relu, bidirectional", lambda: nn.RNN(12, 16, nonlinearity="relu", bidirectional=True), x(7, 4, 12)),
    *shapes("LSTM", lambda: nn.LSTM(12, 16, num_layers=2, dropout=0.2), ("3-D", x(7, 4, 12)), ("2-D", x(7, 12))),
    module("LSTM, batch_first, bidirectional", lambda: nn.LSTM(12, 16, batch_first=True, bidirectional=True), x(4, 7, 12)),
    module("LSTM, proj_size", lambda: nn.LSTM(12, 16, proj_size=6), x(7, 4, 12)),
    *shapes("GRU", lambda: nn.GRU(12, 16, num_layers=2), ("3-D", x(7, 4, 12)), ("2-D", x(7, 12))),
    module("GRU, no bias", lambda: nn.GRU(12, 16, bias=False), x(7, 4, 12)),
    *(module(name, lambda name=name: getattr(nn, name)(12, 16), x(4, 12)) for name in ("RNNCell", "LSTMCell", "GRUCell")),
    *ATTENTION,
    *TRANSFORMERS,
]  # fmt: skip


def clip(*tensors):
    leaves = [torch.zeros_like(tensor).requires_grad_() for tensor in tensors]
    for leaf, tensor in zip(leaves, tensors):
        leaf.grad = tensor.detach().clone()
    nn.utils.clip_grad_norm_(leaves, 1.0)
    return tuple(leaf.grad for leaf in leaves)


FUNCTIONS = [
    *(Case("functional.linear", lambda: None, inputs(kind, x(40, 48), x(40)), lambda _, a, b, c: F.linear(a, b, c), shape) for shape, kind in LINEAR_SHAPES),
    Case("functional.linear", lambda: None, inputs(x(16, 20, 300), x(260, 300), x(260)), lambda _, a, b, c: F.linear(a, b, c), "3-D, wide"),
    *(Case("functional.linear, no bias", lambda: None, inputs(kind, x(40, 48)), lambda _, a, b: F.linear(a, b), shape) for shape, kind in LINEAR_SHAPES),
    function("functional.normalize", F.normalize, x(9, 12)),
    function("functional.gumbel_softmax", F.gumbel_softmax, x(9, 12)),
    function("functional.gumbel_softmax, hard", lambda a: F.gumbel_softmax(a, hard=True), x(9, 12)),
    function("functional.one_hot", lambda a: F.one_hot(a, 20), indices(20, 9)),
    function("functional.pdist", F.pdist, x(9, 12)),
    function("functional.grid_sample", lambda a, b: F.grid_sample(a, b, align_corners=False), x(2, 3, 5, 6), x(2, 4, 4, 2)),
    function("functional.affine_grid", lambda a: F.affine_grid(a, (2, 3, 5, 6), align_corners=False), x(2, 2, 3)),
    function("functional.interpolate, area", lambda a: F.interpolate(a, size=(5, 4), mode="area"), x(2, 3, 10, 8)),
    function("functional.interpolate, nearest-exact", lambda a: F.interpolate(a, scale_factor=1.7, mode="nearest-exact"), x(2, 3, 5, 6)),
    function("functional.interpolate, antialias", lambda a: F.interpolate(a, size=(5, 4), mode="bilinear", antialias=True), x(2, 3, 10, 8)),
    function("functional.interpolate, recompute_scale_factor",
             lambda a: F.interpolate(a, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), x(2, 3, 5, 6)),
    function("functional.pad, circular", lambda a: F.pad(a, (1, 2, 2, 1), mode="circular"), x(2, 3, 5, 6)),
    function("utils.clip_grad_norm_", clip, x(20, 12), x(7)),
    function("utils.parameters_to_vector", lambda *t: nn.utils.parameters_to_vector(t), x(20, 12), x(7)),
]  # fmt: skip


def filled(fill):
    def call(tensor):
        copied = tensor.detach().clone()
        fill(copied)
        return copied

    return call


INIT = [
    *(Case(f"init.{name}", lambda: None, inputs(kind), lambda _, t, fill=fill: filled(fill)(t), shape)
      for name, fill, alternatives in (
          ("uniform_", lambda t: nn.init.uniform_(t, -0.3, 0.7), (("", x(20, 12)),)),
          ("normal_", lambda t: nn.init.normal_(t, 0.1, 0.02), (("", x(20, 12)),)),
          ("constant_", lambda t: nn.init.constant_(t, 0.3), (("", x(20, 12)),)),
          ("eye_", nn.init.eye_, (("", x(20, 12)),)),
          ("dirac_", nn.init.dirac_, (("3-D", x(6, 4, 3)), ("4-D", x(4, 6, 3, 3)), ("5-D", x(4, 6, 3, 3, 2)))),
          ("xavier_uniform_", lambda t: nn.init.xavier_uniform_(t, 1.3), (("2-D", x(20, 12)), ("4-D", x(4, 6, 3, 3)))),
          ("xavier_normal_", nn.init.xavier_normal_, (("2-D", x(20, 12)), ("4-D", x(4, 6, 3, 3)))),
          ("kaiming_uniform_", nn.init.kaiming_uniform_, (("2-D", x(20, 12)), ("4-D", x(4, 6, 3, 3)))),
          ("kaiming_normal_", nn.init.kaiming_normal_, (("2-D", x(20, 12)), ("4-D", x(4, 6, 3, 3)))),
          ("kaiming_normal_, fan_out, relu", lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), (("", x(4, 6, 3, 3)),)),
          ("orthogonal_", nn.init.orthogonal_, (("wide", x(12, 20)), ("tall", x(20, 12)), ("4-D", x(4, 6, 3, 3)))),
          ("sparse_", lambda t: nn.init.sparse_(t, 0.4), (("", x(20, 12)),)),
      ) for shape, kind in alternatives),
    function("init.calculate_gain", lambda: torch.tensor([nn.init.calculate_gain(*a) for a in (
        ("linear",), ("tanh",), ("relu",), ("leaky_relu", 0.2), ("sigmoid",))], dtype=torch.float64)),
]  # fmt: skip


def steps(optimizer, **options):
    def call(start, a, b):
        with torch.enable_grad():
            weight = start.detach().clone().requires_grad_()
            stepper = optimizer([weight], **options)

            def closure():
                stepper.zero_grad()
                loss = (torch.tanh(a.detach().mm(weight)) - b.detach()).square().mean()
                loss.backward()
                return loss

            for _ in range(5):
                stepper.step(closure)
        return weight.detach()

    return call


OPTIMIZERS = [
    function(f"optim.{name}", call, x(24, 12), x(9, 24), x(9, 12)) for name, call in {
        "SGD": steps(torch.optim.SGD, lr=0.1),
        "SGD, momentum, weight_decay": steps(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
        "SGD, nesterov": steps(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
        "Adam": steps(torch.optim.Adam, lr=0.01),
        "Adam, amsgrad, weight_decay": steps(torch.optim.Adam, lr=0.01, amsgrad=True, weight_decay=0.01),
        "AdamW": steps(torch.optim.AdamW, lr=0.01),
        "RMSprop": steps(torch.optim.RMSprop, lr=0.01),
        "RMSprop, centered, momentum": steps(torch.optim.RMSprop, lr=0.01, centered=True, momentum=0.9, weight_decay=0.01),
        "Adagrad": steps(torch.optim.Adagrad, lr=0.01, lr_decay=0.01),
        "LBFGS": steps(torch.optim.LBFGS, lr=0.5, max_iter=4),
        "LBFGS, strong_wolfe": steps(torch.optim.LBFGS, lr=1, max_iter=4, line_search_fn="strong_wolfe"),
    }.items()
]  # fmt: skip

CASES = LINEAR + LAYERS + ACTIVATIONS + LOSSES + SEQUENCES + FUNCTIONS + INIT + OPTIMIZERS


# Those that the library has modules of its own for.
DROP_INS = [dataclasses.replace(case, subject=f"ddp {case.subject}") for case in LINEAR + ATTENTION + TRANSFORMERS] + OURS + PARAMETRIZED


def random_case(generator):
    """Attention or an encoder of options, sizes and masks that are drawn."""
    draw = generator.randrange
    heads = generator.choice([1, 2, 3, 4, 8])
    embed = heads * generator.choice([1, 3, 8, 16])
    batch, length, batch_first = generator.choice([1, 2, 5]), generator.choice([1, 4, 17, 40]), draw(2)
    options = {"embed": embed, "heads": heads, "batch_first": batch_first, "dropout": generator.choice([0, 0, 20])}
    given = [x(*((batch, length) if batch_first else (length, batch)), embed)]
    if draw(2):
        given.append(mask(batch, length))
    if draw(2):
        options |= {"bias": int(draw(4) > 0), "add_bias_kv": int(draw(4) == 0), "add_zero_attn": int(draw(4) == 0), "need_weights": draw(2)}
        make = lambda: MHA(embed, heads, options["dropout"] / 100, bool(options["bias"]), bool(options["add_bias_kv"]), bool(options["add_zero_attn"]),
                           batch_first=bool(batch_first))  # noqa: E731
        call = lambda m, a, b=None: m(a, a, a, b, bool(options["need_weights"]))  # noqa: E731
        kind = "attention"
    else:
        options |= {"hidden": generator.choice([8, 64]), "norm_first": draw(2), "gelu": draw(2), "layers": 1 + draw(2)}
        make = lambda: nn.TransformerEncoder(  # noqa: E731
            nn.TransformerEncoderLayer(embed, heads, options["hidden"], options["dropout"] / 100, ["relu", "gelu"][options["gelu"]],
                                       batch_first=bool(batch_first), norm_first=bool(options["norm_first"])), options["layers"])
        call = lambda m, a, b=None: m(a, src_key_padding_mask=b)  # noqa: E731
        kind = "encoder"
    words = " ".join(f"{name}={value}" for name, value in options.items())
    return Case(f"random {kind} {words}", make, inputs(*given), call, f"batch {batch}, length {length}, {len(given)} inputs")  # fmt: skip


def flat(outputs):
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [tensor for item in outputs if item is not None for tensor in flat(item)]


def run(case, circumstance, seed=1):
    """(what the program needs, what it should give): dicts with tensors. None: Python refuses this case."""
    dtype, training, grad, autocast = CIRCUMSTANCES[circumstance]
    kind = getattr(torch, dtype)
    torch.manual_seed(seed)
    module = case.make()
    result = {}
    weights = {}
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    if module is not None:
        result["generator after construction"] = torch.get_rng_state()
        result |= {f"initial {name}": tensor.detach().clone() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
        module.to(kind).train(training)
        for name, tensor in module.named_parameters():
            weights[name] = (torch.randn(tensor.shape, generator=generator) * 0.3).to(kind)
            tensor.data.copy_(weights[name])
    given = [tensor.to(kind) if tensor.is_floating_point() else tensor for tensor in case.inputs(generator)]
    tensors = [tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor for tensor in given]
    gradients = []
    with torch.set_grad_enabled(grad):
        torch.manual_seed(seed + 1)
        try:
            with torch.autocast("cpu", enabled=autocast):
                outputs = flat(case.call(module, *tensors) if case.call else module(*tensors))
            roots = [output for output in outputs if grad and output.requires_grad]
            gradients = [torch.randn(output.shape, generator=generator).to(output.dtype) for output in roots]
            if roots:
                torch.autograd.backward(roots, gradients)
        except (RuntimeError, NotImplementedError) as error:
            return None, str(error)
    result["generator after forward"] = torch.get_rng_state()
    result |= {f"output {i}": output for i, output in enumerate(outputs)}
    result |= {f"gradient of input {i}": tensor.grad for i, tensor in enumerate(tensors) if tensor.grad is not None}
    if module is not None:
        result |= {f"gradient of {name}": p.grad.to_dense() for name, p in module.named_parameters() if p.grad is not None}
        result |= {f"buffer {name}": buffer for name, buffer in module.named_buffers()}
    needed = {"subject": case.subject, "seed": seed, "dtype": dtype, "training": training, "grad": grad, "autocast": autocast,
              "weights": weights, "inputs": [tensor.detach().clone() for tensor in given], "gradients": gradients}  # fmt: skip
    return needed, {name: tensor.detach().contiguous().clone() for name, tensor in result.items()}

