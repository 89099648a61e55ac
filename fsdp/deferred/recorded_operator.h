// A call of an operator that can be repeated: what it was called with, and the random generator as it was before.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::fsdp {

struct RecordedOperator;

/// Where a tensor is among the arguments or results of a call: by itself, or in a list.
struct TensorPlace {
  size_t index = 0;
  std::optional<size_t> element{};
};

/// A tensor of deferred_init() among the arguments: how it lies in its storage.
struct RecordedTensor {
  TensorPlace place{};
  uint64_t storage = 0;  ///< its number
  size_t storage_bytes = 0;
  std::shared_ptr<const RecordedOperator> last_writer{};  ///< null: the call needs no values of it
  std::vector<int64_t> sizes{};
  std::vector<int64_t> strides{};
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
};

/// A result with the memory of a storage of deferred_init().
struct RecordedResult {
  TensorPlace place{};
  uint64_t storage = 0;
};

struct RecordedOperator {
  explicit RecordedOperator(const c10::OperatorHandle& handle) : op(handle) {}

  c10::OperatorHandle op;
  uint64_t number = 0;                   ///< calls are repeated in this order
  std::vector<c10::IValue> arguments{};  ///< without the tensors of deferred_init()
  std::vector<RecordedTensor> tensors{};
  std::vector<RecordedResult> results{};
  std::optional<size_t> generator_index{};
  at::Generator generator{};             ///< as it was before the call
  bool leaves_values_undefined = false;  ///< such as at::empty(): its results are filled with zeros
  int depth = 1;                         ///< of calls that have to be repeated one after the other
};

/// The memory of storages, by number, while calls are repeated.
using ReplayMemory = std::map<uint64_t, c10::Storage>;

/// Repeats `call` on the memory of its tensors, and adds the memory of its results to `memory`; memory that a tensor
/// lacks is allocated. Draws no random numbers from the program's generators.
void repeat(const RecordedOperator& call, ReplayMemory& memory);

/// All defined tensors among `values` and in their lists.
std::vector<std::pair<TensorPlace, at::Tensor>> tensors_in(c10::ArrayRef<c10::IValue> values);

/// Puts `tensor` into its place among `values`; a list there is copied, since others may have it.
void put_tensor(std::vector<c10::IValue>& values, const TensorPlace& place, const at::Tensor& tensor);

/// Whether all values are of kinds that a repeated call may use again.
bool are_repeatable(c10::ArrayRef<c10::IValue> values);

/// Puts zeros into the memory of a dense tensor.
void fill_with_zeros(const at::Tensor& tensor);

}  // namespace ddp::fsdp
