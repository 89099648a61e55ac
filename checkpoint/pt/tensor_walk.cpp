#include "checkpoint/pt/tensor_walk.h"

#include <algorithm>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/rank_prefix.h"

namespace ddp::pt {
namespace {

bool is_tensor(const Value& value) {
  return value.is(Kind::kTensor) || value.is(Kind::kOtherTensor) || value.is(Kind::kStorage);
}

// As Python shows a key that is no name.
std::string describe_key(const Value& key, int depth = 0) {
  constexpr int kMaxDepth = 3;
  switch (key.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return key.boolean() ? "True" : "False";
    case Kind::kFloat:
      return number_text(key.real());
    case Kind::kText:
    case Kind::kBytes:
      return safetensors::quote_name(key.text());
    case Kind::kInt:
      return std::to_string(key.integer());
    case Kind::kGlobal:
    case Kind::kOtherValue:
    case Kind::kOtherTensor:
      return key.text();
    case Kind::kTuple: {
      if (depth == kMaxDepth || key.items().size() > 8) return "(…)";
      std::string text = "(";
      for (const auto& item : key.items())
        text.append(text.size() > 1 ? ", " : "").append(describe_key(item, depth + 1));
      return text.append(key.items().size() == 1 ? ",)" : ")");
    }
    default:
      return "…";
  }
}

class Walker {
 public:
  Walker(StateDict& result, Budget& budget) : result_(result), budget_(budget) {}

  void walk(const Value& value, const std::string& prefix, int depth = 0) {
    constexpr int kMaxDepth = 100;
    if (depth > kMaxDepth) throw FormatError("its containers are nested too deeply");
    if (value.is(Kind::kTensor)) {
      budget_.spend(prefix.size() + value.tensor().sizes.size() * 2 * sizeof(int64_t));
      result_.tensors[prefix] = value.tensor();
      result_.skipped.erase(prefix);
      return;
    }
    if (is_tensor(value)) {
      skip(prefix, value.is(Kind::kStorage) ? "a storage; save the tensor instead" : value.text());
      result_.tensors.erase(prefix);
      return;
    }
    const auto* dict = as_dict(value);
    if (dict == nullptr) return;
    const auto& items = dict->items();
    budget_.spend(prefix.size() + items.size());
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto& item = items[i + 1];
      const auto name = [&](const std::string& key) { return prefix.empty() ? key : prefix + "." + key; };
      const auto key = key_text(items[i]);
      if (is_tensor(item) || as_dict(item) != nullptr) {
        if (key) {
          walk(item, name(*key), depth + 1);
        } else if (holds_tensor(item)) {
          skip(name(describe_key(items[i])), "below a key that is no text");
        }
      } else if (holds_tensor(item)) {
        skip(name(key ? *key : describe_key(items[i])), "a list or tuple; only tensors in dicts have names");
      }
    }
  }

 private:
  void skip(const std::string& name, const std::string& what) {
    budget_.spend(name.size() + what.size());
    result_.skipped[name] = what;
  }

  // One level deep: a dict or a list that may well be full of them.
  bool holds_tensor(const Value& value) {
    if (is_tensor(value)) return true;
    const auto* dict = as_dict(value);
    if (dict == nullptr && !value.is(Kind::kList) && !value.is(Kind::kTuple)) return false;
    const auto& items = dict != nullptr ? dict->items() : value.items();
    budget_.spend(items.size());
    return std::any_of(items.begin(), items.end(), is_tensor);
  }

  StateDict& result_;
  Budget& budget_;
};

}  // namespace

const Value* as_dict(const Value& value) {
  if (value.is(Kind::kDict)) return &value;
  if (value.is(Kind::kObject) && value.object().state.is(Kind::kDict)) return &value.object().state;
  return nullptr;
}

std::optional<std::string> key_text(const Value& key) {
  if (key.is(Kind::kText) || key.is(Kind::kBytes)) return key.text();
  if (key.is(Kind::kInt)) return std::to_string(key.integer());
  return std::nullopt;
}

void add_tensors(const Value& value, StateDict& result, Budget& budget) {
  Walker(result, budget).walk(value, "");
}

}  // namespace ddp::pt
