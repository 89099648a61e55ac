#include "checkpoint/module_state.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "checkpoint/name_pattern.h"
#include "checkpoint/skipped_items.h"

namespace ddp {
namespace {

using safetensors::quote_name;

constexpr std::string_view kWrapperPrefix = "module.";

// How many characters of wrapper prefix all names share: a model wrapped n times has n of them.
template <typename Names>
size_t shared_wrapper_prefix(const Names& names) {
  size_t length = 0;
  const auto all_have_one_more = [&] {
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.compare(length, kWrapperPrefix.size(), kWrapperPrefix) == 0;
    });
  };
  while (!names.empty() && all_have_one_more()) length += kWrapperPrefix.size();
  return length;
}

std::string describe(at::ScalarType dtype, at::IntArrayRef shape) {
  std::ostringstream text;
  text << c10::toString(dtype) << " " << shape;
  return text.str();
}

// "missing 'a', 'b' and 3 more"
void append_list(std::vector<std::string>& parts, const char* title, const std::vector<std::string>& items) {
  constexpr size_t kShown = 6;
  if (items.empty()) return;
  std::string text = title;
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) text += (i > 0 ? ", " : " ") + items[i];
  if (items.size() > kShown) text += " and " + std::to_string(items.size() - kShown) + " more";
  parts.push_back(text);
}

}  // namespace

TensorMap module_state(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> named;
  const auto collect = [&](const auto& items) {
    for (const auto& item : items) {
      if (item.value().defined()) named.emplace_back(item.key(), item.value().detach());
    }
  };
  collect(module.named_parameters());
  collect(module.named_buffers());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  const auto prefix = shared_wrapper_prefix(names);
  TensorMap state;
  for (auto& [name, tensor] : named) state.emplace(name.substr(prefix), std::move(tensor));
  return state;
}

MatchResult read_matching(const StoredTensors& stored, const TensorMap& expected, const std::set<std::string>& ignored,
                          const MatchOptions& options) {
  std::map<std::string, at::Tensor> candidates;
  for (const auto& [name, tensor] : stored.tensors) {
    if (ignored.count(name) == 0) candidates.emplace(name, tensor);
  }
  // The metadata that says which names share a tensor may be prefixed too, like the tensors' own names.
  std::string prefix;
  {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : candidates) names.push_back(name);
    if (const auto length = shared_wrapper_prefix(names); length > 0) prefix = names.front().substr(0, length);
  }
  const auto find = [&](const std::string& name) {
    auto found = candidates.find(prefix + name);
    if (found != candidates.end()) return found;
    const auto alias = stored.metadata.find(prefix + name);
    return alias == stored.metadata.end() ? candidates.end() : candidates.find(alias->second);
  };
  const auto wanted = [&](const std::string& name) {
    return (options.only.empty() || matches_any(name, options.only)) && !matches_any(name, options.skip);
  };

  MatchResult result;
  std::vector<std::string> missing, unexpected, different;
  std::set<std::string> used;
  for (const auto& [name, tensor] : expected) {
    if (!wanted(name)) continue;
    const auto found = find(name);
    if (found == candidates.end()) {
      result.missing.push_back(name);
      missing.push_back(quote_name(name) + skipped_reason(stored, prefix + name));
      continue;
    }
    const auto& value = found->second;
    used.insert(found->first);
    if (tensor.sizes() != value.sizes() || tensor.scalar_type() != value.scalar_type()) {
      different.push_back(quote_name(name) + " is " + describe(tensor.scalar_type(), tensor.sizes()) +
                          " in the model, but " + describe(value.scalar_type(), value.sizes()) + " in the file");
    }
    result.assignments.push_back({tensor, value});
  }
  for (const auto& [name, tensor] : candidates) {
    const auto plain = name.substr(prefix.size());
    if (used.count(name) != 0 || !wanted(plain)) continue;
    result.unexpected.push_back(plain);
    unexpected.push_back(quote_name(name));
  }

  const bool takes_nothing = result.assignments.empty() && !expected.empty();
  std::vector<std::string> parts;
  if (options.strict || takes_nothing) {
    append_list(parts, "missing", missing);
    append_list(parts, "unexpected", unexpected);
  }
  append_list(parts, "different:", different);
  if (parts.empty() && takes_nothing) parts.push_back("no name of the model is among those to load");
  if (!parts.empty()) {
    std::string message = stored.source + " does not fit the model: ";
    for (size_t i = 0; i < parts.size(); ++i) message += (i > 0 ? "; " : "") + parts[i];
    throw std::runtime_error(message);
  }
  return result;
}

void assign(const std::vector<Assignment>& assignments) {
  const at::NoGradGuard no_grad;
  for (const auto& [target, value] : assignments) target.copy_(value);
}

}  // namespace ddp
