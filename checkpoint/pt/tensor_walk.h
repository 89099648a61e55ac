// Names the tensors below a dict as a state dict does: nested keys with dots between them. No LibTorch.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

// A pickle can refer to one container or text many times, so that a small one describes exponentially many tensors.
class Budget {
 public:
  /// By default 32 MiB: of 60,000 tensors, or 75,000 parameters of an Adam.
  explicit Budget(size_t most = size_t{32} << 20) : max_(most) {}

  /// Pays for one thing and `bytes` beside it. Throws FormatError when too much was spent.
  void spend(size_t bytes) {
    constexpr size_t kCostPerItem = 64;
    spent_ += kCostPerItem + bytes;
    if (spent_ > max_) throw FormatError("its containers name the same values too often");
  }

 private:
  size_t max_;
  size_t spent_ = 0;
};

/// A dict, or the attributes of a TorchScript object; else null.
const Value* as_dict(const Value& value);

/// A dict's key as part of a name: a text, bytes or an integer.
std::optional<std::string> key_text(const Value& key);

/// The values of a dict whose keys are texts, bytes or integers, by those as texts; of equal keys the last, as in
/// Python. Throws FormatError naming a text that two other keys share: 1 and "1".
std::map<std::string, const Value*> named_items(const Value& dict);

/// The keys of the dicts below `root` that have tensors among their own items, with dots between the levels, in the
/// file's order: "ema", "state.model". Optimizers do not count. At most the first 12; a file of too many dicts is not
/// searched to its end.
std::vector<std::string> entries_with_tensors(const Value& root);

/// Adds the tensors below `value` to `result`, and to `result.skipped` what is a tensor and cannot be named or read,
/// and the objects that are not read. Throws FormatError naming the name that two tensors have, as in {"a": {"b": …},
/// "a.b": …}.
void add_tensors(const Value& value, StateDict& result, Budget& budget);

}  // namespace ddp::pt
