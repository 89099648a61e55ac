#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "comm/collectives/begin.h"
#include "comm/collectives/collective_call.h"
#include "comm/collectives/real_view.h"
#include "comm/collectives/tensor_packing.h"
#include "comm/collectives/tensor_shape.h"
#include "comm/group/argument_checks.h"
#include "comm/versions/single_tensor_collectives.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace {

using detail::call_options;
using detail::check_tensor;
using detail::start;
using detail::Started;

at::Tensor one_row_per_rank(const at::Tensor& tensor, int size) {
  std::vector<int64_t> shape{size};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::empty(shape, tensor.options().requires_grad(false));
}

std::vector<at::Tensor> rows_of(const at::Tensor& stacked) {
  std::vector<at::Tensor> rows;
  for (int64_t rank = 0; rank < stacked.size(0); ++rank) rows.push_back(stacked.select(0, rank));
  return rows;
}

void check_parts(const at::Tensor& tensor, const std::vector<at::Tensor>& parts, const GroupHandle& group) {
  if (parts.size() != static_cast<size_t>(group.size())) {
    detail::refuse(
        group, "scatter",
        "expected one part per rank, " + std::to_string(group.size()) + ", got " + std::to_string(parts.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    check_tensor(parts[i], group, "scatter");
    if (parts[i].sizes() == tensor.sizes() && parts[i].scalar_type() == tensor.scalar_type()) continue;
    detail::refuse(group, "scatter",
                   "expected parts like the " + detail::describe(tensor) + " to scatter into, but part " +
                       std::to_string(i) + " is a " + detail::describe(parts[i]));
  }
}

}  // namespace

namespace detail {

Started begin_all_gather_into(at::Tensor output, const at::Tensor& tensor, const GroupHandle& group,
                              const BeginOptions& begin) {
  const char* const name = begin.name("all_gather");
  check_tensor(tensor, group, name);
  // Backends take both as flat lists of the group's size times the input.
  at::Tensor flat_input = detail::real_view(tensor).view({-1});
  at::Tensor flat_output = detail::real_view(output).view({-1});
  const auto settings = call_options<c10d::AllgatherOptions>(begin.options, begin.async, group, name);
  return start({.operation = name,
                .how = with_note("", begin),
                .tensors = {tensor},
                .results = {std::move(output)},
                .is_waited_for = !begin.async},
               group, [&](c10d::ProcessGroup& c10d) {
                 return versions::all_gather_single(c10d, flat_output, flat_input, settings);
               });
}

StartedWithOutput begin_all_gather(const at::Tensor& tensor, const GroupHandle& group, const BeginOptions& begin) {
  check_tensor(tensor, group, begin.name("all_gather"));
  at::Tensor output = one_row_per_rank(tensor, group.size());
  Started started = begin_all_gather_into(output, tensor, group, begin);
  return {std::move(started), std::move(output)};
}

StartedWithOutputs begin_all_gather_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                              const BeginOptions& begin) {
  constexpr const char* kName = "all_gather_coalesced";
  if (!runs_as_one_backend_call(tensors, group)) {
    const BeginOptions as_part = begin.as_part_of(kName);
    return begin_each(tensors, [&](const at::Tensor& tensor) { return begin_all_gather(tensor, group, as_part); });
  }
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> flat_inputs;
  std::vector<at::Tensor> flat_outputs;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, group, kName);
    outputs.push_back(one_row_per_rank(tensor, group.size()));
    flat_inputs.push_back(real_view(tensor).view({-1}));
    flat_outputs.push_back(real_view(outputs.back()).view({-1}));
  }
  const auto settings = call_options<c10d::AllgatherOptions>(begin.options, begin.async, group, kName);
  auto started = start({.operation = kName,
                        .how = with_note("", begin),
                        .tensors = tensors,
                        .results = outputs,
                        .is_waited_for = !begin.async},
                       group, [&](c10d::ProcessGroup& c10d) {
                         return versions::all_gather_list(c10d, flat_outputs, flat_inputs, settings);
                       });
  return {std::move(started), std::move(outputs)};
}

StartedWithOutput begin_gather(const at::Tensor& tensor, int root, const GroupHandle& group,
                               const BeginOptions& begin) {
  const char* const name = begin.name("gather");
  check_tensor(tensor, group, name);
  detail::check_rank(root, "root", group, name);
  at::Tensor output;
  std::vector<std::vector<at::Tensor>> outputs;
  if (group.rank() == root) {
    output = one_row_per_rank(tensor, group.size());
    outputs.push_back(rows_of(detail::real_view(output)));
  }
  std::vector<at::Tensor> inputs{detail::real_view(tensor)};
  auto settings = call_options<c10d::GatherOptions>(begin.options, begin.async, group, name);
  settings.rootRank = root;
  auto started = start({.operation = name,
                        .how = with_note("root " + std::to_string(root), begin),
                        .tensors = {tensor},
                        .results = {output},
                        .is_waited_for = !begin.async},
                       group, [&](c10d::ProcessGroup& c10d) { return c10d.gather(outputs, inputs, settings); });
  return {std::move(started), std::move(output)};
}

Started begin_scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& parts, int root,
                      const GroupHandle& group, const BeginOptions& begin) {
  const char* const name = begin.name("scatter");
  check_tensor(tensor, group, name);
  detail::check_rank(root, "root", group, name);
  std::vector<std::vector<at::Tensor>> inputs;
  if (group.rank() == root) {
    check_parts(tensor, parts, group);
    inputs.push_back(detail::real_views(parts));
  }
  std::vector<at::Tensor> outputs{detail::real_view(tensor)};
  auto settings = call_options<c10d::ScatterOptions>(begin.options, begin.async, group, name);
  settings.rootRank = root;
  return start(
      {.operation = name,
       .how = with_note("root " + std::to_string(root), begin),
       .tensors = {tensor},
       .is_waited_for = !begin.async},
      group, [&](c10d::ProcessGroup& c10d) { return c10d.scatter(outputs, inputs, settings); }, [inputs] {});
}

}  // namespace detail

namespace {

// Each rank's rows are padded to the most that any rank has; the parts are views without the padding.
std::pair<Started, std::vector<at::Tensor>> begin_all_gather_uneven(const at::Tensor& tensor, const GroupHandle& group,
                                                                    const CollectiveOptions& options, bool async) {
  check_tensor(tensor, group, "all_gather_uneven");
  detail::check_wait(options, group, "all_gather_uneven");
  const auto shapes = detail::all_gather_shapes(tensor, "all_gather_uneven", group, options);
  int64_t longest = 0;
  for (const detail::TensorShape& shape : shapes) longest = std::max(longest, shape.sizes[0]);
  at::Tensor padded = tensor.detach();
  if (padded.size(0) != longest) {
    std::vector<int64_t> padded_shape = tensor.sizes().vec();
    padded_shape[0] = longest;
    padded = at::zeros(padded_shape, padded.options());
    padded.narrow(0, 0, tensor.size(0)).copy_(tensor.detach());
  }
  auto [started, all] = detail::begin_all_gather(padded, group, {.options = options, .async = async});
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < shapes.size(); ++rank) {
    parts.push_back(all.select(0, static_cast<int64_t>(rank)).narrow(0, 0, shapes[rank].sizes[0]));
  }
  return {std::move(started), std::move(parts)};
}

}  // namespace

at::Tensor all_gather(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options) {
  auto [started, output] = detail::begin_all_gather(tensor, group, {.options = options, .async = false});
  started->wait();
  return output;
}

Pending<at::Tensor> all_gather_async(const at::Tensor& tensor, const GroupHandle& group,
                                     const CollectiveOptions& options) {
  auto [started, output] = detail::begin_all_gather(tensor, group, {.options = options});
  return {std::move(started), std::move(output)};
}

std::vector<at::Tensor> all_gather_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                             const CollectiveOptions& options) {
  constexpr const char* kName = "all_gather_coalesced";
  detail::check_wait(options, group, kName);
  static_cast<void>(group.state().group(kName));  // throws if the group is closed
  for (const at::Tensor& tensor : tensors) detail::check_packable(tensor, group, kName);
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors) results.push_back(one_row_per_rank(tensor, group.size()));
  for (const detail::TensorPack& pack : detail::pack_by_dtype(tensors)) {
    const auto [started, all] =
        detail::begin_all_gather(pack.flat, group, {.options = options, .async = false, .caller = kName});
    started->wait();
    int64_t offset = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].scalar_type() != pack.flat.scalar_type() || tensors[i].device() != pack.flat.device()) continue;
      results[i].copy_(all.narrow(1, offset, tensors[i].numel()).view(results[i].sizes()));
      offset += tensors[i].numel();
    }
  }
  return results;
}

std::vector<at::Tensor> all_gather_uneven(const at::Tensor& tensor, const GroupHandle& group,
                                          const CollectiveOptions& options) {
  auto [started, parts] = begin_all_gather_uneven(tensor, group, options, /*async=*/false);
  started->wait();
  return parts;
}

Pending<std::vector<at::Tensor>> all_gather_uneven_async(const at::Tensor& tensor, const GroupHandle& group,
                                                         const CollectiveOptions& options) {
  auto [started, parts] = begin_all_gather_uneven(tensor, group, options, /*async=*/true);
  return {std::move(started), std::move(parts)};
}

at::Tensor gather(const at::Tensor& tensor, int root, const GroupHandle& group, const CollectiveOptions& options) {
  auto [started, output] = detail::begin_gather(tensor, root, group, {.options = options, .async = false});
  started->wait();
  return output;
}

Pending<at::Tensor> gather_async(const at::Tensor& tensor, int root, const GroupHandle& group,
                                 const CollectiveOptions& options) {
  auto [started, output] = detail::begin_gather(tensor, root, group, {.options = options});
  return {std::move(started), std::move(output)};
}

void scatter(at::Tensor tensor, const std::vector<at::Tensor>& parts, int root, const GroupHandle& group,
             const CollectiveOptions& options) {
  detail::begin_scatter(tensor, parts, root, group, {.options = options, .async = false})->wait();
}

Pending<void> scatter_async(at::Tensor tensor, const std::vector<at::Tensor>& parts, int root, const GroupHandle& group,
                            const CollectiveOptions& options) {
  return Pending<void>(detail::begin_scatter(tensor, parts, root, group, {.options = options}));
}

}  // namespace ddp
