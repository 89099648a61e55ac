#include "checkpoint/pt/tensor_walk.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/rank_prefix.h"

namespace ddp::pt {
namespace {

bool is_tensor(const Value& value) {
  return value.is(Kind::kTensor) || value.is(Kind::kOtherTensor) || value.is(Kind::kStorage);
}

// As Python shows a key that is not a name.
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
    case Kind::kForeign:
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

// A tensor that a TorchScript module holds as a plain attribute, which its state_dict() does not have.
bool is_other_attribute(const Value& owner, const std::string& name) {
  const auto* weights = owner.is(Kind::kObject) ? owner.object().weights : nullptr;
  return weights != nullptr && !weights->contains(name);
}

// Optimizers that a program saves beside its models, under keys of its own: their tensors do not belong to a model.
bool is_python_optimizer(const Value& value) {
  if (!is_optimizer(value)) return false;
  const auto* groups = value.find("param_groups");
  return groups != nullptr && groups->is(Kind::kList);
}

class Walker {
 public:
  explicit Walker(Budget& budget) : budget_(budget) {}

  void walk(const Value& value, const std::string& prefix, int depth = 0) {
    constexpr int kMaxDepth = 100;
    if (depth > kMaxDepth) throw FormatError("its containers are nested too deeply");
    if (value.is(Kind::kTensor)) {
      // A reader needs about half a kilobyte of memory for each tensor, and a pickle may name a tensor in 7 bytes.
      constexpr size_t kTensorCost = 448;
      budget_.spend(kTensorCost + prefix.size() + value.tensor().sizes.size() * 2 * sizeof(int64_t));
      claim(prefix);
      found_.tensors.emplace(prefix, value.tensor());
      return;
    }
    if (is_tensor(value) || value.is(Kind::kForeign)) {
      skip(prefix, value.is(Kind::kStorage) ? "a storage; save the tensor instead" : value.text());
      return;
    }
    const auto* dict = as_dict(value);
    if (dict == nullptr || is_python_optimizer(value)) return;
    budget_.spend(prefix.size() + dict->items().size());
    for_each_last(dict->items(), [&](const Value& key, const Value& item) {
      const auto name = [&](const std::string& own) { return prefix.empty() ? own : prefix + "." + own; };
      const auto text = key_text(key);
      if (text && is_tensor(item) && is_other_attribute(value, *text)) {
        list(name(*text), "a TorchScript module's attribute that is neither a parameter nor a buffer");
      } else if (is_tensor(item) || item.is(Kind::kForeign) || as_dict(item) != nullptr) {
        if (text) {
          walk(item, name(*text), depth + 1);
        } else if (holds_tensor(item)) {
          list(name(describe_key(key)), "below a key that is neither text nor integer");
        }
      } else if (holds_tensor(item)) {
        list(name(text ? *text : describe_key(key)), "a list or tuple; only tensors in dicts have names");
      }
    });
  }

  const StateDict& found() const { return found_; }

 private:
  // Calls `use(key, item)` for each item. Of equal keys only the last one counts, since a dict in Python has each key
  // once.
  template <typename Use>
  void for_each_last(const std::vector<Value>& items, Use&& use) {
    std::map<std::pair<Kind, std::string>, size_t> last;
    size_t bytes = 0;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto text = key_text(items[i]);
      if (!text) continue;
      bytes += text->size();
      last[{items[i].kind(), *text}] = i;
    }
    budget_.spend(bytes);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto text = key_text(items[i]);
      if (!text || last.at({items[i].kind(), *text}) == i) use(items[i], items[i + 1]);
    }
  }

  // {"a": {"b": …}, "a.b": …} has two tensors of the same name, and it would be undefined which of them a reader gets.
  void claim(const std::string& name) const {
    if (!found_.tensors.contains(name) && !found_.skipped.contains(name)) return;
    throw FormatError("it holds two tensors of the name " + safetensors::quote_name(name) +
                      ", as names are keys with dots between them: rename one");
  }

  void skip(const std::string& name, const std::string& what) {
    claim(name);
    list(name, what);
  }

  void list(const std::string& name, const std::string& what) {
    budget_.spend(name.size() + what.size());
    found_.skipped[name] = what;
  }

  // Looks one level deep: a dict or a list of tensors.
  bool holds_tensor(const Value& value) {
    if (is_tensor(value)) return true;
    const auto* dict = as_dict(value);
    if (dict == nullptr && !value.is(Kind::kList) && !value.is(Kind::kTuple)) return false;
    const auto& items = dict != nullptr ? dict->items() : value.items();
    budget_.spend(items.size());
    return std::any_of(items.begin(), items.end(), is_tensor);
  }

  StateDict found_;
  Budget& budget_;
};

class EntryFinder {
 public:
  void search(const Value& dict, const std::string& prefix, int depth = 0) {
    constexpr int kMaxDepth = 4;
    constexpr size_t kMax = 12;
    const auto& items = dict.items();
    for (size_t i = 0; i + 1 < items.size() && entries_.size() < kMax && steps_left_ > 0; i += 2, --steps_left_) {
      const auto key = key_text(items[i]);
      const auto* below = as_dict(items[i + 1]);
      if (!key || below == nullptr || is_optimizer(items[i + 1])) continue;
      const auto name = prefix.empty() ? *key : prefix + "." + *key;
      if (has_tensor(*below)) {
        entries_.push_back(name);
      } else if (depth < kMaxDepth) {
        search(*below, name, depth + 1);
      }
    }
  }

  std::vector<std::string> take() { return std::move(entries_); }

 private:
  bool has_tensor(const Value& dict) {
    const auto& items = dict.items();
    for (size_t i = 1; i < items.size() && steps_left_ > 0; i += 2, --steps_left_) {
      if (is_tensor(items[i])) return true;
    }
    return false;
  }

  std::vector<std::string> entries_;
  int64_t steps_left_ = 100'000;
};

}  // namespace

std::vector<std::string> entries_with_tensors(const Value& root) {
  EntryFinder finder;
  if (const auto* dict = as_dict(root)) finder.search(*dict, "");
  return finder.take();
}

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

std::map<std::string, const Value*> named_items(const Value& dict) {
  const auto& items = dict.items();
  std::map<std::string, const Value*> named;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const auto key = key_text(items[i]);
    if (!key) continue;
    const auto [known, is_new] = named.try_emplace(*key, &items[i + 1]);
    if (!is_new && (known->second - 1)->kind() != items[i].kind()) {
      throw FormatError("one of its dicts has two keys that both read " + safetensors::quote_name(*key));
    }
    known->second = &items[i + 1];
  }
  return named;
}

void add_tensors(const Value& value, StateDict& result, Budget& budget) {
  Walker walker(budget);
  walker.walk(value, "");
  for (const auto& [name, entry] : walker.found().tensors) {
    result.tensors[name] = entry;
    result.skipped.erase(name);
  }
  for (const auto& [name, what] : walker.found().skipped) {
    result.skipped[name] = what;
    result.tensors.erase(name);
  }
}

}  // namespace ddp::pt
