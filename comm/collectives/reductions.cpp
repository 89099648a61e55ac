#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "comm/backends/all_reduce_backend.h"
#include "comm/collectives/begin.h"
#include "comm/collectives/collective_call.h"
#include "comm/collectives/tensor_packing.h"
#include "comm/group/argument_checks.h"
#include "comm/group/planned_all_reduce.h"
#include "comm/versions/single_tensor_collectives.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace {

using detail::call_options;
using detail::check_tensor;
using detail::name_of;
using detail::PendingCall;
using detail::refuse;
using detail::start;

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op, bool is_bool) {
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kProduct:
      return is_bool ? c10d::ReduceOp::MIN : c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  throw std::invalid_argument("unknown ReduceOp " + std::to_string(static_cast<int>(op)));
}

void check_reducible(const at::Tensor& tensor, ReduceOp op, const GroupHandle& group, const char* operation) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (op == ReduceOp::kAvg && !at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    refuse(group, operation,
           "the average needs a floating-point dtype, got a " + detail::describe(tensor) +
               ": convert it, or use ReduceOp::kSum");
  }
  if (at::isComplexType(dtype) && op != ReduceOp::kSum && op != ReduceOp::kAvg) {
    refuse(group, operation,
           std::string(name_of(op)) + " is not defined for complex numbers, got a " + detail::describe(tensor));
  }
}

// Backends have no bool: its bytes are 0 and 1, whose maximum is "any" and whose minimum is "all".
at::Tensor as_numbers(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  return tensor.scalar_type() == at::kBool ? plain.view(at::kByte) : plain;
}

detail::CallShape shape_of(const at::Tensor& tensor, const char* operation, const char* how) {
  detail::CallShape shape{.operation = operation,
                          .how = how,
                          .dtype = static_cast<int>(tensor.scalar_type()),
                          .dimensions = static_cast<size_t>(tensor.dim())};
  std::ranges::copy(tensor.sizes(), shape.sizes.begin());
  return shape;
}

void check_scatterable(const at::Tensor& tensor, ReduceOp op, const GroupHandle& group, const char* operation) {
  check_tensor(tensor, group, operation);
  check_reducible(tensor, op, group, operation);
  if (tensor.dim() > 0 && tensor.size(0) % group.size() == 0) return;
  refuse(group, operation,
         "expected a first dimension that is a multiple of the group's size " + std::to_string(group.size()) +
             ", got a " + detail::describe(tensor));
}

// A tensor for this rank's rows of the result.
at::Tensor own_rows(const at::Tensor& tensor, const GroupHandle& group) {
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] /= group.size();
  return at::empty(shape, tensor.options().requires_grad(false));
}

// Records the call. This is done while the other ranks arrive, so it costs no extra time.
class AllReduceRecord final : public shm::WaitObserver {
 public:
  AllReduceRecord(const at::Tensor& tensor, const char* how, detail::CallLog& log)
      : tensor_(tensor), how_(how), log_(log), is_brief_(tensor.nbytes() <= kMaxBriefBytes), is_exact_(!is_brief_) {}

  void announced() noexcept override {
    // Reading the exact time would take longer than some of these sums.
    const auto now = is_brief_ ? Clock::time_point(std::chrono::microseconds(detail::page_tick())) : Clock::now();
    const auto append = [this](std::string& text) { detail::append_signature(text, kOperation, how_, tensor_); };
    call_ = log_.begin_next(now, shape_of(tensor_, kOperation, how_), append, /*has_ended=*/is_brief_);
    is_open_ = !is_brief_ || call_->is_recorded;
    wait_.emplace(kOperation, call_->time);
  }
  void late() noexcept override {
    if (!call_) announced();
    if (is_brief_) log_.reopen(*call_, Clock::now());
    is_open_ = true;
    is_exact_ = true;
  }
  void end() {
    if (is_open_) log_.end(call_->number, is_exact_ ? std::optional(call_->time) : std::nullopt);
  }
  // The number of a call that has failed.
  uint64_t number() {
    if (!is_open_) late();
    return call_->number;
  }

 private:
  using Clock = detail::CallLog::Clock;
  static constexpr const char* kOperation = "all_reduce";
  static constexpr size_t kMaxBriefBytes = 4096;  // a sum of so few bytes takes less than a microsecond

  const at::Tensor& tensor_;
  const char* const how_;
  detail::CallLog& log_;
  const bool is_brief_;
  bool is_open_ = false;  // whether the log shows the call as open
  bool is_exact_;         // whether the time of its begin is exact
  std::optional<detail::CallLog::StartedCall> call_;
  std::optional<detail::ScopedWaitEvent> wait_;
};

// Used for a plan of kInCall. It avoids Work objects and lists, whose construction takes longer than a small sum.
void all_reduce_in_call(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op) {
  detail::GroupState& state = group.state();
  state.check_open("all_reduce");
  const char* const how = name_of(op);
  AllReduceRecord record(tensor, how, state.log());
  try {
    state.in_call_backend()->all_reduce_in_call(tensor, c10d_op(op, /*is_bool=*/false), record);
  } catch (const std::exception& error) {
    detail::fail({.operation = "all_reduce", .how = how, .tensors = {tensor}}, group, record.number(), error);
  }
  record.end();
}

}  // namespace

namespace detail {

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  throw std::invalid_argument("unknown ReduceOp " + std::to_string(static_cast<int>(op)));
}

Started begin_all_reduce(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op, const BeginOptions& begin,
                         std::function<void()> after) {
  const char* const name = begin.name("all_reduce");
  check_tensor(tensor, group, name);
  check_reducible(tensor, op, group, name);
  auto settings = call_options<c10d::AllreduceOptions>(begin.options, begin.async, group, name);
  settings.reduceOp = c10d_op(op, tensor.scalar_type() == at::kBool);
  std::vector<at::Tensor> tensors{as_numbers(tensor)};
  const auto plan = detail::plan_all_reduce(group.state(), tensors[0], {.waiter = detail::AllReduceWaiter::kHandle});
  return start(
      {.operation = name, .how = with_note(name_of(op), begin), .tensors = {tensor}, .is_waited_for = !begin.async},
      group,
      [&](c10d::ProcessGroup& c10d) { return detail::start_all_reduce(plan, group.state(), c10d, tensors, settings); },
      std::move(after));
}

Started begin_all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group, ReduceOp op,
                                   const BeginOptions& begin) {
  constexpr const char* kName = "all_reduce_coalesced";
  detail::check_wait(begin.options, group, kName);
  static_cast<void>(group.state().group(kName));  // throws if the group is closed
  for (const at::Tensor& tensor : tensors) {
    detail::check_unpackable(tensor, group, kName);
    check_reducible(tensor, op, group, kName);
  }
  std::vector<Started> started;
  for (const detail::TensorPack& pack : detail::pack_by_dtype(tensors)) {
    started.push_back(begin_all_reduce(pack.flat, group, op, begin.as_part_of(kName), [pack] { pack.unpack(); }));
  }
  return detail::all_of(std::move(started));
}

Started begin_reduce(const at::Tensor& tensor, int root, const GroupHandle& group, ReduceOp op,
                     const BeginOptions& begin) {
  check_tensor(tensor, group, "reduce");
  check_reducible(tensor, op, group, "reduce");
  detail::check_rank(root, "root", group, "reduce");
  auto settings = call_options<c10d::ReduceOptions>(begin.options, begin.async, group, "reduce");
  settings.reduceOp = c10d_op(op, tensor.scalar_type() == at::kBool);
  settings.rootRank = root;
  std::vector<at::Tensor> tensors{as_numbers(tensor)};
  return start({.operation = "reduce",
                .how = with_note(std::string(name_of(op)) + ", root " + std::to_string(root), begin),
                .tensors = {tensor},
                .is_waited_for = !begin.async},
               group, [&](c10d::ProcessGroup& c10d) { return c10d.reduce(tensors, settings); });
}

StartedWithOutput begin_reduce_scatter(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op,
                                       const BeginOptions& begin) {
  const char* const name = begin.name("reduce_scatter");
  check_scatterable(tensor, op, group, name);
  at::Tensor output = own_rows(tensor, group);
  at::Tensor raw_output = as_numbers(output);
  at::Tensor input = as_numbers(tensor);
  auto settings = call_options<c10d::ReduceScatterOptions>(begin.options, begin.async, group, name);
  settings.reduceOp = c10d_op(op, tensor.scalar_type() == at::kBool);
  auto started = start({.operation = name,
                        .how = with_note(name_of(op), begin),
                        .tensors = {tensor},
                        .results = {output},
                        .is_waited_for = !begin.async},
                       group, [&](c10d::ProcessGroup& c10d) {
                         return versions::reduce_scatter_single(c10d, raw_output, input, settings);
                       });
  return {std::move(started), std::move(output)};
}

StartedWithOutputs begin_reduce_scatter_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                                  ReduceOp op, const BeginOptions& begin) {
  constexpr const char* kName = "reduce_scatter_coalesced";
  if (!runs_as_one_backend_call(tensors, group)) {
    const BeginOptions as_part = begin.as_part_of(kName);
    return begin_each(tensors,
                      [&](const at::Tensor& tensor) { return begin_reduce_scatter(tensor, group, op, as_part); });
  }
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> raw_outputs;
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& tensor : tensors) {
    check_scatterable(tensor, op, group, kName);
    outputs.push_back(own_rows(tensor, group));
    raw_outputs.push_back(as_numbers(outputs.back()));
    inputs.push_back(as_numbers(tensor));
  }
  auto settings = call_options<c10d::ReduceScatterOptions>(begin.options, begin.async, group, kName);
  settings.reduceOp = c10d_op(op, tensors.front().scalar_type() == at::kBool);
  auto started = start({.operation = kName,
                        .how = with_note(name_of(op), begin),
                        .tensors = tensors,
                        .results = outputs,
                        .is_waited_for = !begin.async},
                       group, [&](c10d::ProcessGroup& c10d) {
                         return versions::reduce_scatter_list(c10d, raw_outputs, inputs, settings);
                       });
  return {std::move(started), std::move(outputs)};
}

}  // namespace detail

void all_reduce(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op, const CollectiveOptions& options) {
  const auto plan = detail::plan_all_reduce(group.state(), tensor,
                                            {.waiter = detail::AllReduceWaiter::kCaller,
                                             .is_average = op == ReduceOp::kAvg,
                                             .has_own_timeout = options.timeout.has_value()});
  if (plan == detail::AllReducePlan::kInCall) return all_reduce_in_call(tensor, group, op);
  detail::begin_all_reduce(tensor, group, op, {.options = options, .async = false})->wait();
}

Pending<void> all_reduce_async(at::Tensor tensor, const GroupHandle& group, ReduceOp op,
                               const CollectiveOptions& options) {
  return Pending<void>(detail::begin_all_reduce(tensor, group, op, {.options = options}));
}

void all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group, ReduceOp op,
                          const CollectiveOptions& options) {
  detail::begin_all_reduce_coalesced(tensors, group, op, {.options = options, .async = false})->wait();
}

Pending<void> all_reduce_coalesced_async(const std::vector<at::Tensor>& tensors, const GroupHandle& group, ReduceOp op,
                                         const CollectiveOptions& options) {
  return Pending<void>(detail::begin_all_reduce_coalesced(tensors, group, op, {.options = options}));
}

void reduce(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op, const CollectiveOptions& options) {
  detail::begin_reduce(tensor, root, group, op, {.options = options, .async = false})->wait();
}

Pending<void> reduce_async(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op,
                           const CollectiveOptions& options) {
  return Pending<void>(detail::begin_reduce(tensor, root, group, op, {.options = options}));
}

at::Tensor reduce_scatter(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op,
                          const CollectiveOptions& options) {
  auto [started, output] = detail::begin_reduce_scatter(tensor, group, op, {.options = options, .async = false});
  started->wait();
  return output;
}

Pending<at::Tensor> reduce_scatter_async(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op,
                                         const CollectiveOptions& options) {
  auto [started, output] = detail::begin_reduce_scatter(tensor, group, op, {.options = options});
  return {std::move(started), std::move(output)};
}

at::Tensor reduce_value(at::Tensor value, const GroupHandle& group, bool average) {
  all_reduce(value, group, average ? ReduceOp::kAvg : ReduceOp::kSum);
  return value;
}

at::Tensor reduce_tensor(const at::Tensor& value, const GroupHandle& group, bool average) {
  return reduce_value(value.detach().clone(at::MemoryFormat::Contiguous), group, average);
}

}  // namespace ddp
