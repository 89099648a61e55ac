#include "fsdp/deferred/operator_call.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "fsdp/deferred/call_traits.h"

namespace ddp::fsdp {
namespace {

// Copies of smaller tensors are kept for repeated calls.
constexpr size_t kMaxConstantBytes = size_t{64} << 10;
// A call is repeated together with the calls that it depends on.
constexpr int kMaxDepth = 1000;

}  // namespace

bool is_whole(const at::Tensor& tensor, const DeferredStorage& storage) {
  return tensor.is_contiguous() && tensor.nbytes() == storage.nbytes();
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized() && !tensor.is_conj() &&
         !tensor.is_neg();
}

OperatorCall::OperatorCall(const Recorder& recorder, const c10::OperatorHandle& handle, torch::jit::Stack& on_stack)
    : op(handle), values(torch::jit::last(on_stack, handle.schema().arguments().size())) {
  const bool overwrites = overwrites_first_argument(op.schema());
  for (auto& [place, tensor] : tensors_in(values)) {
    DeferredStorage* storage = deferred_storage_of(*tensor.unsafeGetTensorImpl());
    if (storage != nullptr && &storage->recorder() != &recorder) foreign.push_back(storage);
    const bool is_own = storage != nullptr && &storage->recorder() == &recorder;
    const bool is_written = writes_argument(op.schema(), place.index);
    const bool is_overwritten = is_own && overwrites && place.index == 0 && is_whole(tensor, *storage);
    arguments.push_back(
        {tensor, place, is_own ? storage : nullptr, is_written, is_overwritten, is_own ? storage->nbytes() : 0});
  }
  // If the operator reads the storage through another argument too, the old values are needed.
  for (Argument& one : arguments) {
    if (!one.is_overwritten) continue;
    one.is_overwritten =
        std::ranges::count_if(arguments, [&](const Argument& other) { return other.storage == one.storage; }) == 1;
  }
}

bool OperatorCall::is_recordable() const {
  const bool is_autocast = std::ranges::any_of(
      arguments, [](const Argument& one) { return at::autocast::is_autocast_enabled(one.tensor.device().type()); });
  if (is_autocast || !foreign.empty() || !are_repeatable(values)) return false;
  return std::ranges::all_of(arguments, [](const Argument& one) {
    if (!is_plain(one.tensor)) return false;
    if (one.storage == nullptr) return !one.is_written && one.tensor.nbytes() <= kMaxConstantBytes;
    if (one.is_overwritten) return true;
    return one.storage->log.has_value() && one.storage->log->last_writer->depth < kMaxDepth;
  });
}

bool OperatorCall::writes() const {
  return std::ranges::any_of(arguments, [](const Argument& one) { return one.is_written && one.storage != nullptr; });
}

std::vector<DeferredStorage*> OperatorCall::storages() const {
  std::vector<DeferredStorage*> used;
  for (const Argument& one : arguments) {
    if (one.storage != nullptr) used.push_back(one.storage);
  }
  return used;
}

}  // namespace ddp::fsdp
