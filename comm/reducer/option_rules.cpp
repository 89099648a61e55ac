#include "comm/reducer/option_rules.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "base/joined.h"
#include "comm/versions/reducer_options.h"

namespace ddp::detail {
namespace {

constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;

template <typename Items>
std::string list_or_none(const Items& items) {
  return items.empty() ? "none" : joined(items);
}

std::string switch_line(const char* name, bool value) {
  return std::string("option ") + name + " = " + (value ? "true" : "false");
}

template <typename Refuse>
void check_bucket_list(const DdpOptions& options, const Refuse& refuse) {
  const std::vector<int64_t>& list = options.bucket_cap_bytes_list;
  if (list.empty()) return;
  if (std::ranges::min(list) <= 0) refuse("bucket_cap_bytes_list = " + joined(list) + ": all must be positive");
  const bool has_other_sizes = !options.bucket_cap_bytes.is_default() || options.first_bucket_bytes;
  if (has_other_sizes || !options.bucket_ends.empty()) {
    refuse(
        "bucket_cap_bytes_list cannot be combined with bucket_cap_bytes, first_bucket_bytes or bucket_ends: leave them "
        "out");
  }
}

}  // namespace

int64_t first_bucket_bytes(const DdpOptions& options) {
  const BucketCap& cap = options.bucket_cap_bytes;
  const int64_t by_rule = cap.is_default() || cap.is_automatic() ? kFirstBucketBytes : cap.bytes();
  return std::min(options.first_bucket_bytes.value_or(by_rule), cap.bytes());
}

int64_t largest_bucket_bytes(const DdpOptions& options) {
  const std::vector<int64_t>& list = options.bucket_cap_bytes_list;
  return list.empty() ? options.bucket_cap_bytes.bytes() : std::ranges::max(list);
}

std::vector<size_t> bucket_limits(const DdpOptions& options) {
  const std::vector<int64_t>& list = options.bucket_cap_bytes_list;
  if (!list.empty()) return {list.begin(), list.end()};
  return {static_cast<size_t>(first_bucket_bytes(options)), static_cast<size_t>(options.bucket_cap_bytes.bytes())};
}

bool syncs_buffers_at_start(const DdpOptions& options) {
  return options.forward_sync_buffers.has_value() || options.broadcast_buffers;
}

bool syncs_buffers_in_forward(const DdpOptions& options) {
  return options.forward_sync_buffers.value_or(options.broadcast_buffers);
}

void check_options(const DdpOptions& options, const std::string& rank) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(rank + ": DistributedDataParallel: " + why);
  };
  if (options.bucket_cap_bytes.bytes() <= 0 || options.first_bucket_bytes.value_or(1) <= 0) {
    refuse("bucket_cap_bytes=" + std::to_string(options.bucket_cap_bytes.bytes()) + " and first_bucket_bytes=" +
           std::to_string(options.first_bucket_bytes.value_or(first_bucket_bytes(options))) +
           ": both must be positive");
  }
  check_bucket_list(options, refuse);
  if (options.delayed.names.empty() != options.delayed.trigger.empty())
    refuse("delayed.names and delayed.trigger must be set together");
  if (std::ranges::find(options.delayed.names, options.delayed.trigger) != options.delayed.names.end())
    refuse("delayed.trigger '" + options.delayed.trigger +
           "' must not be one of delayed.names: their gradients are reduced before its own");
  if (options.skip_all_reduce_unused_params && !options.find_unused_parameters)
    refuse("skip_all_reduce_unused_params needs find_unused_parameters");
  if (const std::string why =
          versions::unsupported({options.batched_grad_copy.value_or(false), options.lazy_bucket_allocation});
      !why.empty()) {
    refuse(why);
  }
  if (options.bucket_cap_bytes.is_automatic() && !options.bucket_ends.empty())
    refuse("an automatic bucket_cap_bytes and bucket_ends cannot be combined");
}

bool copies_in_batches(const DdpOptions& options, const ReducedModel& model, int ranks) {
  constexpr int64_t kSmall = int64_t{16} << 10;  // bytes: what is larger has left the first-level cache by then
  if (options.batched_grad_copy) return *options.batched_grad_copy;
  if (!std::has_single_bit(static_cast<unsigned>(ranks))) return false;
  if (!versions::unsupported({.batched_grad_copy = true}).empty() || !options.delayed.names.empty()) return false;
  const bool is_on_cpu = std::ranges::all_of(model.parameters, &at::Tensor::is_cpu);
  return is_on_cpu && model.bytes() <= kSmall * static_cast<int64_t>(model.parameters.size());
}

std::string unsupported_by_cpu_reducer(const DdpOptions& options, const ReducedModel& model) {
  if (options.find_unused_parameters) return "find_unused_parameters";
  if (options.static_graph) return "static_graph";
  if (!options.gradient_as_bucket_view) return "gradient_as_bucket_view = false";
  if (options.batched_grad_copy.value_or(false)) return "batched_grad_copy";
  if (options.lazy_bucket_allocation) return "lazy_bucket_allocation";
  if (options.comm_hook) return "comm_hook";
  if (std::ranges::count(model.sparse_gradients, true) > 0) return "sparse gradients";
  for (const at::Tensor& parameter : model.parameters) {
    if (!parameter.is_cpu()) return "parameters on " + parameter.device().str();
    if (!parameter.is_floating_point())
      return std::string("parameters of dtype ") + c10::toString(parameter.scalar_type());
  }
  return "";
}

const char* option_not_in_python(const DdpOptions& options) {
  if (!options.bucket_ends.empty()) return "bucket_ends";
  return options.bucket_cap_bytes.is_automatic() ? "kAutoBucketCap" : nullptr;
}

std::vector<std::string> options_to_compare(const DdpOptions& options) {
  return {"option bucket_cap_bytes = " + (options.bucket_cap_bytes.is_automatic()
                                              ? std::string("auto")
                                              : std::to_string(options.bucket_cap_bytes.bytes())),
          "option first_bucket_bytes = " + std::to_string(first_bucket_bytes(options)),
          "option bucket_cap_bytes_list = " + list_or_none(options.bucket_cap_bytes_list),
          switch_line("find_unused_parameters", options.find_unused_parameters),
          switch_line("static_graph", options.static_graph),
          switch_line("broadcast_buffers", syncs_buffers_at_start(options)),
          switch_line("forward_sync_buffers", syncs_buffers_in_forward(options)),
          switch_line("skip_all_reduce_unused_params", options.skip_all_reduce_unused_params),
          "option comm_hook = " + (options.comm_hook ? hook_name(options.comm_hook) : "none"),
          "option bucket_ends = " + list_or_none(options.bucket_ends),
          "option delayed = " + list_or_none(options.delayed.names) + " with " + options.delayed.trigger};
}

DdpLoggingData logging_data(const DdpOptions& options, const ReducedModel& model, const GroupHandle& group) {
  return {.module_name = model.name,
          .backend = group.backend(),
          .rank = group.rank(),
          .world_size = group.size(),
          .parameter_tensors = static_cast<int64_t>(model.parameters.size()),
          .parameter_bytes = model.bytes(),
          .bucket_cap_bytes = largest_bucket_bytes(options),
          .find_unused_parameters = options.find_unused_parameters,
          .static_graph = options.static_graph,
          .gradient_as_bucket_view = options.gradient_as_bucket_view,
          .broadcast_buffers = syncs_buffers_in_forward(options)};
}

}  // namespace ddp::detail
