#include "comm/reducer/gradient_aliases.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace ddp::detail {
namespace {

at::Tensor alias_of(const at::Tensor& view, at::Tensor& kept) {
  const bool fits = kept.defined() && kept.storage().is_alias_of(view.storage()) &&
                    kept.storage_offset() == view.storage_offset() && kept.sizes() == view.sizes() &&
                    kept.strides() == view.strides();
  if (!fits) {
    kept = at::empty({0}, view.options());
    kept.set_(view.storage(), view.storage_offset(), view.sizes(), view.strides());
  }
  return kept;
}

}  // namespace

GradientAliases::GradientAliases(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), aliases_(parameters_.size()) {}

void GradientAliases::replace_views() {
  for (size_t i = 0; i < parameters_.size(); ++i) replace_view(i);
}

void GradientAliases::replace_view(size_t parameter) {
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (gradient.defined() && gradient.layout() == at::kStrided && gradient.is_view()) {
    gradient = alias_of(gradient, aliases_[parameter]);
  }
}

void GradientAliases::forget() {
  std::ranges::fill(aliases_, at::Tensor());
}

}  // namespace ddp::detail
