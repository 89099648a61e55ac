"""Where LibTorch's own C++ has other bits than Python's PyTorch, or Python has no judge of bits. All of it is generated, and counted by itself.

exact(case): the judge computes as the C++ side does (libtorch_arithmetic.py), and every bit must still be equal. near(case): values
must be equal within a tolerance.
"""

# Weights and losses are of the size of 1.
TOLERANCE, AUTOCAST_TOLERANCE = 2e-3, 5e-2
# Python's DDP averages the first backward of these only, or none, or throws.
COMPUTED = ("retain_graph", "forwards_then_backwards", "static_no_sync", "create_graph")


def tolerance(case):
    return AUTOCAST_TOLERANCE if case["autocast"] else TOLERANCE


def layers_of(layers):
    for layer in layers:
        yield layer
        for inner in [layer.get("layers", []), *layer.get("branches", [])]:
            yield from layers_of(inner)


def is_computed(case):
    """Python's DDP does not average the gradients of these unusual steps: the judge is the sum of averages, computed by hand."""
    kind = case["unusual"]
    return kind in COMPUTED or kind == "gradient_penalty" and (case["ddp"]["find_unused"] or case["ddp"]["static"])


def first_momentum_is_unset(case):
    """Python's fused SGD leaves its momentum as the memory was where the first step overflows; then the judge sets zeros."""
    optimizer, scaler = case["optimizer"], case["scaler"]
    return bool(optimizer["name"] == "SGD" and optimizer["library"] == "ddp" and "momentum" in optimizer["options"] and scaler
                and 1 in scaler["overflow_at"])


def averages_by_mul_and_add(case):
    optimizer = case["optimizer"]
    return optimizer["library"] == "torch" and (optimizer["name"] in ("Adam", "AdamW") or bool(optimizer["options"].get("centered")))


def clips_by_libtorch(case):
    return bool(case["clip"] and case["clip"]["kind"] == "norm" and case["clip"]["by"] == "torch")


def divides_by_three_of_four(case):
    """DdpOptions::batched_grad_copy, which is chosen for 4 ranks, has other bits where join() divides by those that are left."""
    return bool(case["ranks"] == 4 and case["join"] and not case["join"]["divide_by_initial"] and case["ddp"]["batched_grad_copy"] is None)


def exact(case):
    found = []
    if averages_by_mul_and_add(case):
        found.append("torch::optim::Adam, AdamW and centered RMSprop average by mul_() and add_(), Python's by lerp_()")
    if clips_by_libtorch(case):
        found.append("torch::nn::utils::clip_grad_norm_() divides by the norm, Python's multiplies by its reciprocal")
    if first_momentum_is_unset(case):
        found.append("Python's fused SGD leaves its momentum unset where the first step overflows: the judge sets it to 0")
    if divides_by_three_of_four(case):
        found.append("batched_grad_copy is chosen for 4 ranks, and rounds otherwise where join() divides by 3 that are left: the judge has it too")
    return found


def near(case):
    layers = list(layers_of(case["layers"]))
    ops = {layer["op"] for layer in layers}
    linears = [layer for layer in layers if layer["op"] == "torch_linear"]
    found = []
    if any(layer["dimensions"] == 3 or not layer["bias"] for layer in linears):
        found.append("torch::nn::Linear with 3-D inputs or without bias multiplies by weight.t(), Python's calls linear()")
    if linears and case["autocast"]:
        found.append("torch::nn::Linear under autocast calls addmm() with weight.t(), Python's calls linear()")
    if "attention" in ops:
        found.append("torch::nn::MultiheadAttention computes with bmm(), Python's with scaled_dot_product_attention()")
    if "encoder_layer" in ops:
        found.append("torch::nn::TransformerEncoderLayer has torch::nn::MultiheadAttention and torch::nn::Linear")
    if case["kind"] == "sync_bn":
        found.append("Python's SyncBatchNorm needs a GPU: the judge computes in float64")
    if is_computed(case):
        found.append("Python's DDP does not average these gradients, or throws: the judge is the sum of averages, computed by hand")
    return found
