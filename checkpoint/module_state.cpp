#include "checkpoint/module_state.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

namespace ddp {
namespace {

using safetensors::quote_name;
using safetensors::TensorEntry;

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

std::vector<Assignment> read_matching(const SafetensorsFile& file, const TensorMap& expected,
                                      const std::set<std::string>& ignored) {
  std::map<std::string, const TensorEntry*> stored;
  for (const auto& entry : file.header().tensors) {
    if (ignored.count(entry.name) == 0) stored.emplace(entry.name, &entry);
  }
  // The metadata that says which names share a tensor may be prefixed too, like the tensors' own names.
  std::string prefix;
  {
    std::vector<std::string> names;
    for (const auto& [name, entry] : stored) names.push_back(name);
    if (const auto length = shared_wrapper_prefix(names); length > 0) prefix = names.front().substr(0, length);
  }
  const auto find = [&](const std::string& name) {
    auto found = stored.find(prefix + name);
    if (found != stored.end()) return found;
    const auto alias = file.header().metadata.find(prefix + name);
    return alias == file.header().metadata.end() ? stored.end() : stored.find(alias->second);
  };

  struct Match {
    at::Tensor target;
    const TensorEntry* entry;
  };
  std::vector<Match> matches;
  std::vector<std::string> missing, unexpected, different;
  std::set<std::string> used;
  for (const auto& [name, tensor] : expected) {
    const auto found = find(name);
    if (found == stored.end()) {
      missing.push_back(quote_name(name));
      continue;
    }
    const auto& entry = *found->second;
    used.insert(entry.name);
    if (tensor.sizes() != at::IntArrayRef(entry.shape) || tensor.scalar_type() != scalar_type(entry)) {
      different.push_back(quote_name(name) + " is " + describe(tensor.scalar_type(), tensor.sizes()) +
                          " in the model, but " + describe(scalar_type(entry), entry.shape) + " in the file");
    }
    matches.push_back({tensor, &entry});
  }
  for (const auto& [name, entry] : stored) {
    if (used.count(name) == 0) unexpected.push_back(quote_name(name));
  }

  std::vector<std::string> parts;
  append_list(parts, "missing", missing);
  append_list(parts, "unexpected", unexpected);
  append_list(parts, "different:", different);
  if (!parts.empty()) {
    std::string message = file.path().string() + " does not fit the model: ";
    for (size_t i = 0; i < parts.size(); ++i) message += (i > 0 ? "; " : "") + parts[i];
    throw std::runtime_error(message);
  }

  std::vector<Assignment> assignments;
  for (const auto& match : matches) assignments.push_back({match.target, file.read(*match.entry)});
  return assignments;
}

void assign(const std::vector<Assignment>& assignments) {
  const at::NoGradGuard no_grad;
  for (const auto& [target, value] : assignments) target.copy_(value);
}

}  // namespace ddp
