// Reads the pickles inside PyTorch's .pt files without running anything: tensors and plain values are made of the names
// that torch.load(weights_only=True) accepts and of those of LibTorch's own torch::save. What any other name makes is a
// value of Kind::kForeign. No LibTorch.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Longest pickle that is read; the tensors' data is not part of it.
inline constexpr size_t kMaxPickleBytes = size_t{64} << 20;

/// Throws FormatError naming the opcode's position and what is wrong: arguments that do not fit, values of the wrong
/// kind, a stack that runs empty, text that ends early. A pickle can ask for any function; none is ever called.
std::unique_ptr<Pickle> unpickle(std::string_view bytes);

/// The names that pickles of another kind may ask for, in place of those that torch.load() knows.
class Globals {
 public:
  virtual ~Globals() = default;

  /// Throws FormatError for a name ("module.name") that is not allowed.
  virtual void check(std::string_view name) const = 0;
  /// The value that `function` would return for the tuple `arguments`; it is not called.
  virtual Value call(Pickle& pickle, const std::string& function, const Value& arguments) const = 0;
  /// A new object of the class `type`, made with the tuple `arguments`; its state may follow.
  virtual Value make(Pickle& pickle, const std::string& type, const Value& arguments) const = 0;
};

/// The same for a pickle of at most `max_bytes` whose names are `globals`.
std::unique_ptr<Pickle> unpickle(std::string_view bytes, const Globals& globals, size_t max_bytes);

/// The same for the pickle that `bytes` begin with, which it takes off their front.
std::unique_ptr<Pickle> unpickle_first(std::string_view& bytes);

}  // namespace ddp::pt
