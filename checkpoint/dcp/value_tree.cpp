#include "checkpoint/dcp/value_tree.h"

#include <utility>

namespace ddp::dcp {

using pt::Kind;
using pt::Value;

ValueTree::ValueTree(size_t max_bytes, size_t max_items)
    : root_(pickle_.container(Kind::kDict)), budget_(max_bytes), max_items_(max_items) {}

bool ValueTree::put(const Path& path, size_t begin, const Value& value) {
  return put_constructed(path, begin, copy(value, 0));
}

bool ValueTree::put_tensor(const Path& path, size_t begin, pt::TensorEntry tensor) {
  return put_constructed(path, begin, pickle_.tensor(std::move(tensor)));
}

Value ValueTree::other(std::string_view what) {
  return pickle_.other_value(std::string(what));
}

Value ValueTree::copy(const Value& value, int depth) {
  constexpr int kMaxDepth = 32;
  budget_.spend(0);
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return value;
    case Kind::kText:
      budget_.spend(value.text().size());
      return pickle_.text(value.text());
    case Kind::kBytes:
      budget_.spend(value.text().size());
      return pickle_.bytes(value.text());
    case Kind::kForeign:
      budget_.spend(value.text().size());
      return pickle_.foreign(value.text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict: {
      if (depth == kMaxDepth) return other("a value that is nested too deeply");
      std::vector<Value> items;
      for (const auto& item : value.items()) items.push_back(copy(item, depth + 1));
      return pickle_.container(value.kind(), std::move(items));
    }
    case Kind::kTensor:
    case Kind::kStorage:
      return other("a tensor in a value that was saved as one object");
    default:
      return other("a value of another kind");
  }
}

bool ValueTree::put_constructed(const Path& path, size_t begin, const Value& value) {
  if (begin >= path.size()) return false;
  auto container = root_;
  std::string name;
  for (size_t i = begin; i < path.size(); ++i) {
    // Numbers and texts are different keys.
    const auto* text = std::get_if<std::string>(&path[i]);
    name.append(text != nullptr ? "k" : "i").append(flat_key({path[i]})).append(1, '\0');
    const bool is_last = i + 1 == path.size();
    const auto found = known_.find(name);
    if (found != known_.end()) {
      if (is_last) return false;
      container = found->second;
      continue;
    }
    const bool is_list = !is_last && std::holds_alternative<int64_t>(path[i + 1]);
    const auto made = is_last ? value : pickle_.container(is_list ? Kind::kList : Kind::kDict);
    if (!put_into(container, path, i, made)) return false;
    budget_.spend(name.size());
    known_.emplace(name, is_last ? Value() : made);
    container = made;
  }
  return true;
}

bool ValueTree::put_into(Value& container, const Path& path, size_t index, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&path[index])) {
    if (!container.is(Kind::kDict)) return false;
    container.items().push_back(pickle_.text(*text));
    container.items().push_back(value);
    return true;
  }
  const auto place = std::get<int64_t>(path[index]);
  if (!container.is(Kind::kList) || place < 0 || static_cast<uint64_t>(place) >= max_items_) return false;
  auto& items = container.items();
  if (items.size() <= static_cast<size_t>(place)) {
    budget_.spend((static_cast<size_t>(place) - items.size()) * sizeof(Value));
    items.resize(static_cast<size_t>(place) + 1);
  }
  items[static_cast<size_t>(place)] = value;
  return true;
}

}  // namespace ddp::dcp
