// Reads the little-endian fields of zip records from bytes in memory. No LibTorch.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "checkpoint/pt/format_error.h"

namespace ddp::pt::zip {

/// Reads from the front of `bytes`, whose end is checked. Throws FormatError saying that the zip file's `what` is
/// damaged.
class Fields {
 public:
  Fields(std::string_view bytes, const char* what) : bytes_(bytes), what_(what) {}

  template <typename Integer>
  Integer get() {
    Integer value{};
    const auto piece = take(sizeof(Integer));
    std::memcpy(&value, piece.data(), sizeof(Integer));
    return value;
  }

  template <typename Integer>
  void expect(Integer value) {
    if (get<Integer>() != value) fail();
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) fail();
    const auto piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

  bool is_empty() const { return bytes_.empty(); }

  [[noreturn]] void fail() const { throw FormatError(std::string("the zip file's ") + what_ + " is damaged"); }

 private:
  std::string_view bytes_;
  const char* what_;
};

}  // namespace ddp::pt::zip
