// A text as sequences of bytes, for language models.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ddprun/data/batch.h>

namespace ddp {

/// Sample i is the `length` bytes from i * length on, its target the bytes that follow each; bytes that are left at the
/// end are not used. Safe from several threads.
///
///     ddp::ByteText train(ddp::read_small_file("tale.txt", 1 << 30), 128);
class ByteText {
 public:
  /// Throws std::invalid_argument for a length below 1 and for a text that has no sequence of that length.
  ByteText(std::string text, int64_t length);

  int64_t size() const { return (static_cast<int64_t>(text_.size()) - 1) / length_; }

  /// data and target int64 (B, length), values 0 to 255. Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  std::string text_;
  int64_t length_;
};

}  // namespace ddp
