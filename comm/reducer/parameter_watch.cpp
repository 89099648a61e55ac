#include "comm/reducer/parameter_watch.h"

#include <algorithm>
#include <cstring>

namespace ddp::detail {
namespace {

constexpr size_t kMaxCheckedParameters = 8;

// In its middle, as bytes. An embedding's first row may be one that gets no gradient.
uint64_t middle_bytes(const at::Tensor& parameter) {
  if (!parameter.is_cpu() || parameter.layout() != at::kStrided || parameter.numel() == 0) return 0;
  const size_t size = parameter.element_size();
  const size_t place = parameter.is_contiguous() ? static_cast<size_t>(parameter.numel()) / 2 : 0;
  uint64_t number = 0;
  std::memcpy(&number, static_cast<const char*>(parameter.const_data_ptr()) + place * size,
              std::min(size, sizeof(number)));
  return number;
}

// Calls `look` with every parameter's index, or with those of kMaxCheckedParameters parameters from the first to the
// last.
template <typename Look>
void for_sampled_parameters(size_t count, Look look) {
  const size_t chosen = std::min(count, kMaxCheckedParameters);
  for (size_t i = 0; i < chosen; ++i) look(chosen < 2 ? 0 : i * (count - 1) / (chosen - 1));
}

}  // namespace

void ParameterWatch::begin(const std::vector<at::Tensor>& parameters) {
  versions_.clear();
  for (const at::Tensor& parameter : parameters) versions_.push_back(static_cast<uint32_t>(parameter._version()));
  numbers_.clear();
  for_sampled_parameters(parameters.size(), [&](size_t i) { numbers_.push_back(middle_bytes(parameters[i])); });
}

std::optional<size_t> ParameterWatch::changed(const std::vector<at::Tensor>& parameters) const {
  for (size_t i = 0; i < versions_.size(); ++i) {
    if (static_cast<uint32_t>(parameters[i]._version()) != versions_[i]) return i;
  }
  std::optional<size_t> found;
  auto before = numbers_.begin();
  if (before == numbers_.end()) return found;
  for_sampled_parameters(parameters.size(), [&](size_t i) {
    if (middle_bytes(parameters[i]) != *before++ && !found) found = i;
  });
  return found;
}

}  // namespace ddp::detail
