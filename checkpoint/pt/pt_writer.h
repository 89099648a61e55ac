// Writes .pt files that a plain torch.load reads. No LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::pt {

/// A contiguous tensor.
struct PtTensor {
  std::string name{};
  std::string dtype{};  ///< as in Python, without "torch."
  std::vector<int64_t> sizes{};
  std::string_view bytes{};  ///< must outlive the call
};

/// What a file shall hold.
struct PtContents {
  std::vector<PtTensor> model{};
  /// The groups of an optimizer as this project stores them (JSON), empty for none, and its tensors under
  /// `state.<parameter>.<field>`.
  std::string optimizer{};
  std::vector<PtTensor> optimizer_tensors{};
  /// JSON object of further values; empty for none.
  std::string values{};
};

/// With a model alone the file is its state dict; else a dict of `model`, `optimizer` (as Python's own optimizers write
/// their state_dict()) and the values. Tensors with the same bytes in memory share a storage. Throws
/// std::invalid_argument when a dtype or the JSON is none that it knows.
void write_pt(storage::ByteSink& sink, const PtContents& contents);

}  // namespace ddp::pt
