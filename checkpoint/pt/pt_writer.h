// Writes .pt files that a plain torch.load reads. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::pt {

/// Elements that are not in memory.
struct PtStream {
  uint64_t size = 0;                                      ///< in bytes
  std::function<void(storage::ByteSink& sink)> writer{};  ///< puts them into the sink
  const void* identity = nullptr;                         ///< what has the same one shares a storage
};

/// A contiguous tensor.
struct PtTensor {
  std::string name{};
  std::string dtype{};  ///< as in Python, without "torch."
  std::vector<int64_t> sizes{};
  std::string_view bytes{};  ///< must outlive the call
  PtStream stream{};         ///< in place of `bytes`, where it has a writer

  uint64_t size() const { return stream.writer ? stream.size : bytes.size(); }
};

/// An optimizer's groups as this project stores them (JSON), and its tensors under `state.<parameter>.<field>`.
struct PtOptimizer {
  std::string groups{};
  std::vector<PtTensor> tensors{};
};

/// What a file shall hold.
struct PtContents {
  std::vector<PtTensor> model{};
  std::map<std::string, PtOptimizer> optimizers{};             ///< by name; the main one's is empty
  std::vector<std::vector<PtTensor>> rng{};                    ///< of each rank: its generators' states, by device
  std::vector<std::map<std::string, std::string>> per_rank{};  ///< of each rank: objects as bytes, by name
  std::map<std::string, std::string> shared{};                 ///< objects as bytes, by name
  std::map<std::string, std::string> objects{};                ///< the same, beside the model
  /// JSON object of further values; empty for none.
  std::string values{};
};

/// The keys under which the parts of `contents` go, its values not counted: "model", "optimizer" …
std::set<std::string> part_names(const PtContents& contents);

/// An optimizer's groups (JSON) with the options at their defaults that Python's class of that type has and LibTorch's
/// has not. Throws std::invalid_argument for other text.
std::string with_python_defaults(const std::string& groups);

/// With a model alone the file is its state dict; else a dict of `model`, `optimizer` (as Python's own optimizers write
/// their state_dict()), `optimizers` with those that have a name, and so on; values are beside them. Tensors of
/// one dtype with the same bytes in memory share a storage. Throws std::invalid_argument when a dtype or the JSON is
/// none that it knows, or a value has the name of a part.
void write_pt(storage::ByteSink& sink, const PtContents& contents);

}  // namespace ddp::pt
