// Which rank writes what: tensors that several ranks hold are divided among them by bytes. Every rank finds the same
// division without asking the others. No LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/shards/box.h"

namespace ddp::shards {

/// What a rank holds of a tensor.
struct HeldTensor {
  std::string name{};
  std::string dtype{};  ///< as in Python, without "torch."
  std::vector<int64_t> shape{};
  Box box{};

  /// Whether it is the whole tensor.
  bool is_whole() const { return box.sizes == shape; }
};

/// A part of one of the tensors.
struct ShareItem {
  size_t tensor = 0;  ///< its place in the list
  Box box{};
};

/// What holder `index` of `holders`, which all hold the equal list `tensors`, writes: the tensors in order, each whole
/// but for those of 1 MiB or more, which are cut between rows where a share ends. Together the shares of all holders
/// are all elements, tensors without elements included, and each is the even part of the bytes with at most one such
/// row or smaller tensor more or less. Throws std::invalid_argument for a dtype that is not known, naming the tensor,
/// and for a holder that there is not.
std::vector<ShareItem> even_share(const std::vector<HeldTensor>& tensors, int index, int holders);

/// A number that differs between lists that differ, but for one case in 2^128: what ranks compare.
std::array<uint64_t, 2> digest(const std::vector<HeldTensor>& tensors);

/// A number that the lists of ranks which hold disjoint parts of tensors add up to (modulo 2^64) when the parts have as
/// many elements as the tensors; and what it must be for `tensors`, each counted once. Compared by ranks before a save.
uint64_t weight_of_parts(const std::vector<HeldTensor>& tensors);
uint64_t weight_of_wholes(const std::vector<HeldTensor>& tensors);

}  // namespace ddp::shards
