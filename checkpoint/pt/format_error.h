// What readers of PyTorch's .pt files throw for bytes that they do not accept.
#pragma once

#include <stdexcept>

namespace ddp::pt {

/// The message says what is wrong, not in which file.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp::pt
