// A call of an operator within deferred_init(), or of one that gets tensors of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <vector>

#include "fsdp/deferred/deferred_storage.h"
#include "fsdp/deferred/recorded_operator.h"

namespace ddp::fsdp {

/// The tensor has all bytes of the storage, in order.
bool is_whole(const at::Tensor& tensor, const DeferredStorage& storage);

/// A dense tensor whose values are those in its memory.
bool is_plain(const at::Tensor& tensor);

struct OperatorCall {
  struct Argument {
    at::Tensor tensor;
    TensorPlace place;
    DeferredStorage* storage;  ///< of the recorder; else null
    bool is_written;
    bool is_overwritten;          ///< no value of its storage is needed
    size_t storage_bytes;         ///< before the call
    bool has_new_memory = false;  ///< without values
  };

  OperatorCall(const Recorder& recorder, const c10::OperatorHandle& handle, torch::jit::Stack& on_stack);

  /// The recorder can repeat it.
  bool is_recordable() const;
  /// It writes into a tensor of the recorder.
  bool writes() const;
  std::vector<DeferredStorage*> storages() const;

  const c10::OperatorHandle& op;
  c10::ArrayRef<c10::IValue> values;
  std::vector<Argument> arguments;
  std::vector<DeferredStorage*> foreign;  ///< of other recorders
};

}  // namespace ddp::fsdp
