// A tensor's elements in its storage: how many, whether one after the other, and as they look from outside. No
// LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Elements of the tensor, and from its first to its last in the storage. Throws FormatError when either overflows.
std::pair<uint64_t, uint64_t> count_elements(const TensorEntry& tensor);

/// Whether the storage has the elements as they look: in row-major order, neither conjugated nor negated.
bool is_plain(const TensorEntry& tensor);

/// Bytes of the elements in row-major order.
uint64_t gathered_size(const TensorEntry& tensor);

/// What copies of a file's tensors may take together: a small file can describe many tensors, each expanded without
/// end.
class CopyAllowance {
 public:
  explicit CopyAllowance(uint64_t file_bytes) : remaining_((uint64_t{1} << 30) + 16 * file_bytes) {}

  /// Throws FormatError when a copy of `tensor` would take more than is left.
  void spend(const TensorEntry& tensor);

 private:
  uint64_t remaining_;
};

/// Writes the elements in row-major order, conjugated and negated as the tensor says, to `target`, which has
/// gathered_size() bytes. `bytes` is PtFile::bytes_of(tensor).
void gather_elements(const TensorEntry& tensor, std::string_view bytes, char* target);

/// The same as new bytes.
std::string gather_elements(const TensorEntry& tensor, std::string_view bytes);

}  // namespace ddp::pt
