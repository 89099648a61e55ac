#include "checkpoint/pt/value.h"

namespace ddp::pt {

const Value* Value::find(std::string_view key) const {
  if (kind_ != Kind::kDict) return nullptr;
  // The last of equal keys counts, as in Python.
  const auto& all = items();
  for (size_t i = all.size(); i >= 2; i -= 2) {
    const auto& name = all[i - 2];
    if ((name.is(Kind::kText) || name.is(Kind::kBytes)) && name.text() == key) return &all[i - 1];
  }
  return nullptr;
}

}  // namespace ddp::pt
