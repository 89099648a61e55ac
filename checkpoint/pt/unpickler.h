// Reads the pickles inside PyTorch's .pt files without running anything: tensors and plain values are made of the names
// that torch.load(weights_only=True) accepts and of those of LibTorch's own torch::save. What any other name makes is a
// value of Kind::kForeign. No LibTorch.
#pragma once

#include <memory>
#include <string_view>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Longest pickle that is read; the tensors' data is not part of it.
inline constexpr size_t kMaxPickleBytes = size_t{64} << 20;

/// Throws FormatError naming the opcode's position and what is wrong: arguments that do not fit, values of the wrong
/// kind, a stack that runs empty, text that ends early. A pickle can ask for any function; none is ever called.
std::unique_ptr<Pickle> unpickle(std::string_view bytes);

/// The same for the pickle that `bytes` begin with, which it takes off their front.
std::unique_ptr<Pickle> unpickle_first(std::string_view& bytes);

}  // namespace ddp::pt
