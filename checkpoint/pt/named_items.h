// The items of a dict of a pickle by the texts of their keys. No LibTorch.
#pragma once

#include <map>
#include <string>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/tensor_walk.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Calls `use(key, value)` for each item whose key is a text or a whole number; of equal keys for the last, as in
// Python, where 1 and "1" differ: those are refused.
template <typename Use>
void for_each_item(const Value& dict, Use&& use) {
  const auto& items = dict.items();
  std::map<std::string, size_t> last;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const auto key = key_text(items[i]);
    if (!key) continue;
    auto& known = last.try_emplace(*key, i).first->second;
    if (items[known].kind() != items[i].kind()) {
      throw FormatError("one of its dicts has two keys that read " + safetensors::quote_name(*key));
    }
    known = i;
  }
  for (const auto& [key, i] : last) use(key, items[i + 1]);
}

}  // namespace ddp::pt
