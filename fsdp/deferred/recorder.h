// Records the operators that make the tensors of a model of deferred_init(), and frees the memory of those that are not
// in use. Operators run at once with true values, so a constructor sees what it always sees; what was freed is computed
// again when an operator needs it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fsdp/deferred/deferred_storage.h"
#include "fsdp/deferred/operator_call.h"
#include "fsdp/deferred/recorded_operator.h"

namespace ddp::fsdp {

class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  /// Tensors of fewer than `smallest_bytes` are made as always. Up to `most_resident_bytes` stay in memory besides
  /// those of the operator that runs.
  Recorder(size_t smallest_bytes, size_t most_resident_bytes);

  /// Calls an operator that returns no view, of which tensors of deferred_init() are arguments or which runs within
  /// deferred_init(). `next`: the keys after the one that led here. Throws std::logic_error when the operator is not
  /// within deferred_init() and needs values of a named tensor that has no memory.
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet next, torch::jit::Stack* stack);

  /// Gives `tensor`, of deferred_init(), its final memory and takes the mark off it: an ordinary tensor. `computes`:
  /// with its values; else the memory has none.
  void materialize(const at::Tensor& tensor, bool computes);

  /// Frees what can be computed again.
  void free_all();

  /// A storage ends.
  void forget(DeferredStorage& storage) noexcept;

 private:
  static bool is_part_of_construction(const OperatorCall& call);
  std::shared_ptr<RecordedOperator> recorded(const OperatorCall& call) const;
  void check_allowed(const OperatorCall& call) const;
  void load_arguments(OperatorCall& call);
  std::vector<DeferredStorage*> note_results(const OperatorCall& call, const std::shared_ptr<RecordedOperator>& node,
                                             torch::jit::Stack& stack);
  void note_writes(const OperatorCall& call, const std::shared_ptr<RecordedOperator>& node);
  DeferredStorage* adopt(const at::Tensor& tensor, const std::shared_ptr<RecordedOperator>& node,
                         const TensorPlace& place, const std::string& name);
  void compute(DeferredStorage& storage);
  void use(DeferredStorage& storage);
  void keep(DeferredStorage& storage);
  void keep_always(DeferredStorage& storage);
  static void watch(DeferredStorage& storage);
  static void keep_all(c10::ArrayRef<c10::IValue> arguments);
  void keep_if_accessed_past_operators(DeferredStorage& storage);
  void note_checksum(DeferredStorage& storage);
  void unlist(DeferredStorage& storage);
  void free_least_used(const std::vector<DeferredStorage*>& but);

  std::recursive_mutex mutex_;
  size_t smallest_bytes_;
  size_t max_resident_bytes_;
  size_t resident_bytes_ = 0;             // of the list
  std::list<DeferredStorage*> resident_;  // have memory that may be freed; the one that was used last comes last
  uint64_t storages_ = 0;
  uint64_t calls_ = 0;
};

/// The recorder of the deferred_init() in which this thread is; null outside.
std::shared_ptr<Recorder>& thread_recorder();

/// The recorder of the first tensor of deferred_init() among `arguments`; null without one.
std::shared_ptr<Recorder> recorder_of(c10::ArrayRef<c10::IValue> arguments);

}  // namespace ddp::fsdp
