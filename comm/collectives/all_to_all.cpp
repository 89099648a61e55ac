#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/joined.h"
#include "comm/collectives/begin.h"
#include "comm/collectives/collective_call.h"
#include "comm/collectives/real_view.h"
#include "comm/collectives/tensor_shape.h"
#include "comm/group/argument_checks.h"
#include "comm/versions/single_tensor_collectives.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace {

using detail::Started;
using Counts = std::vector<int64_t>;

// Every backend has this form of all-to-all. `how` and `equal` are used in error messages.
Started exchange(at::Tensor output, at::Tensor input, Counts output_counts, Counts input_counts, bool equal,
                 const GroupHandle& group, const detail::BeginOptions& begin) {
  const auto settings = detail::call_options<c10d::AllToAllOptions>(begin.options, begin.async, group, "all_to_all");
  return detail::start({.operation = "all_to_all",
                        .how = detail::with_note("", begin),
                        .tensors = {input},
                        .results = {output},
                        .equal_tensors = equal,
                        .is_waited_for = !begin.async},
                       group, [&](c10d::ProcessGroup& c10d) {
                         at::Tensor received = detail::real_view(output);
                         at::Tensor sent = detail::real_view(input);
                         return versions::all_to_all_single(c10d, received, sent, output_counts, input_counts,
                                                            settings);
                       });
}

void check_list(const std::vector<at::Tensor>& tensors, const char* name, const at::Tensor& like,
                const GroupHandle& group) {
  if (tensors.size() != static_cast<size_t>(group.size())) {
    detail::refuse(group, "all_to_all",
                   "expected one tensor per rank, " + std::to_string(group.size()) + ", got " +
                       std::to_string(tensors.size()) + " " + name);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    detail::check_tensor(tensors[i], group, "all_to_all");
    if (tensors[i].scalar_type() == like.scalar_type() && tensors[i].device() == like.device()) continue;
    detail::refuse(group, "all_to_all",
                   "expected one dtype and device, that of a " + detail::describe(like) + ", but " + name + "[" +
                       std::to_string(i) + "] is a " + detail::describe(tensors[i]));
  }
}

Counts elements(const std::vector<at::Tensor>& tensors) {
  Counts counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  return counts;
}

// Compares by subtraction, since a sum could overflow.
bool sums_to(const Counts& counts, int64_t rows) {
  for (const int64_t count : counts) {
    if (count < 0 || count > rows) return false;
    rows -= count;
  }
  return rows == 0;
}

at::Tensor in_one_row(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) rows.push_back(tensor.detach().view({-1}));
  return at::cat(rows);
}

}  // namespace

namespace detail {

StartedWithOutput begin_all_to_all(const at::Tensor& tensor, const GroupHandle& group, const BeginOptions& begin) {
  detail::check_tensor(tensor, group, "all_to_all");
  if (tensor.dim() == 0 || tensor.size(0) % group.size() != 0) {
    detail::refuse(group, "all_to_all",
                   "expected a first dimension that is a multiple of the group's size " + std::to_string(group.size()) +
                       ", got a " + detail::describe(tensor));
  }
  at::Tensor output = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
  Started started = exchange(output, tensor.detach(), {}, {}, /*equal=*/true, group, begin);
  return {std::move(started), std::move(output)};
}

StartedWithOutput begin_all_to_all(const at::Tensor& tensor, const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts, const GroupHandle& group,
                                   const BeginOptions& begin) {
  check_tensor(tensor, group, "all_to_all");
  const auto size = static_cast<size_t>(group.size());
  const auto is_count = [](int64_t count) { return count >= 0; };
  if (tensor.dim() == 0 || input_counts.size() != size || !sums_to(input_counts, tensor.size(0))) {
    refuse(group, "all_to_all",
           "expected " + std::to_string(size) + " input counts of at least 0 that add up to the rows of a " +
               describe(tensor) + ", got (" + joined(input_counts) + ")");
  }
  if (output_counts.size() != size || !std::ranges::all_of(output_counts, is_count)) {
    refuse(group, "all_to_all",
           "expected " + std::to_string(size) + " output counts of at least 0, got (" + joined(output_counts) + ")");
  }
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = std::accumulate(output_counts.begin(), output_counts.end(), int64_t{0});
  at::Tensor output = at::empty(shape, tensor.options().requires_grad(false));
  Started started = exchange(output, tensor.detach(), output_counts, input_counts, /*equal=*/false, group, begin);
  return {std::move(started), std::move(output)};
}

}  // namespace detail

at::Tensor all_to_all(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options) {
  auto [started, output] = detail::begin_all_to_all(tensor, group, {.options = options, .async = false});
  started->wait();
  return output;
}

Pending<at::Tensor> all_to_all_async(const at::Tensor& tensor, const GroupHandle& group,
                                     const CollectiveOptions& options) {
  auto [started, output] = detail::begin_all_to_all(tensor, group, {.options = options});
  return {std::move(started), std::move(output)};
}

UnevenParts all_to_all_uneven(const at::Tensor& tensor, const std::vector<int64_t>& counts, const GroupHandle& group,
                              const CollectiveOptions& options) {
  detail::check_tensor(tensor, group, "all_to_all_uneven");
  detail::check_wait(options, group, "all_to_all_uneven");
  if (tensor.dim() == 0 || counts.size() != static_cast<size_t>(group.size()) || !sums_to(counts, tensor.size(0))) {
    detail::refuse(group, "all_to_all_uneven",
                   "expected " + std::to_string(group.size()) + " counts of at least 0 that add up to the rows of a " +
                       detail::describe(tensor) + ", got (" + detail::joined(counts) + ")");
  }
  detail::all_gather_shapes(tensor, "all_to_all_uneven", group, options);
  const at::Tensor to_send = at::tensor(counts, at::kLong).to(detail::host_value_device(group));
  const at::Tensor received = all_to_all(to_send, group, options).cpu();

  UnevenParts result;
  result.counts.assign(received.data_ptr<int64_t>(), received.data_ptr<int64_t>() + group.size());
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = std::accumulate(result.counts.begin(), result.counts.end(), int64_t{0});
  result.tensor = at::empty(shape, tensor.options().requires_grad(false));
  exchange(result.tensor, tensor.detach(), result.counts, counts, /*equal=*/false, group,
           {.options = options, .async = false})
      ->wait();
  return result;
}

void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                const CollectiveOptions& options) {
  if (inputs.empty() || !inputs[0].defined()) detail::refuse(group, "all_to_all", "the first input is missing");
  check_list(inputs, "inputs", inputs[0], group);
  check_list(outputs, "outputs", inputs[0], group);
  const at::NoGradGuard no_grad;
  const at::Tensor output = in_one_row(outputs);
  exchange(output, in_one_row(inputs), elements(outputs), elements(inputs), /*equal=*/false, group,
           {.options = options, .async = false})
      ->wait();
  int64_t offset = 0;
  for (const at::Tensor& part : outputs) {
    part.detach().copy_(output.narrow(0, offset, part.numel()).view(part.sizes()));
    offset += part.numel();
  }
}

}  // namespace ddp
