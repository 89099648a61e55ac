#include "comm/reducer/reducer_engine.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ddp::detail {

std::vector<std::vector<size_t>> ReducerEngine::assignment() const {
  std::vector<std::vector<size_t>> indices;
  indices.reserve(buckets_.size());
  for (const auto& bucket : buckets_) indices.push_back(bucket.variable_indices);
  return indices;
}

std::vector<int64_t> ReducerEngine::bucket_bytes() const {
  std::vector<int64_t> bytes;
  bytes.reserve(buckets_.size());
  for (const auto& bucket : buckets_) {
    int64_t sum = 0;
    for (const at::Tensor& variable : bucket.variables) sum += static_cast<int64_t>(variable.nbytes());
    bytes.push_back(sum);
  }
  return bytes;
}

std::vector<size_t> ReducerEngine::order() const {
  std::vector<size_t> indices;
  for (const auto& bucket : buckets_)
    indices.insert(indices.end(), bucket.variable_indices.begin(), bucket.variable_indices.end());
  return indices;
}

void ReducerEngine::regroup(int64_t first_bytes, int64_t cap_bytes) {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> indices;
  for (const size_t index : order()) {
    tensors.push_back(params_[index]);
    indices.push_back(static_cast<int64_t>(index));
  }
  const std::vector<size_t> limits{static_cast<size_t>(first_bytes), static_cast<size_t>(cap_bytes)};
  initialize_buckets(
      std::get<0>(c10d::compute_bucket_assignment_by_size(tensors, limits, expect_sparse_gradients_, indices)));
}

void ReducerEngine::regroup_after(const std::vector<size_t>& ends) {
  const std::unordered_set<size_t> is_end(ends.begin(), ends.end());
  std::vector<std::vector<size_t>> buckets;
  bool open = false;
  for (const size_t index : order()) {
    const bool fits = open && !expect_sparse_gradients_[index] && !expect_sparse_gradients_[buckets.back().front()] &&
                      params_[index].dtype() == params_[buckets.back().front()].dtype() &&
                      params_[index].device() == params_[buckets.back().front()].device();
    if (!fits) buckets.emplace_back();
    buckets.back().push_back(index);
    open = !is_end.contains(index);
  }
  initialize_buckets(std::move(buckets));
}

std::shared_ptr<ReducerEngine> make_engine(const std::vector<at::Tensor>& parameters,
                                           const std::vector<std::string>& names,
                                           c10::intrusive_ptr<c10d::ProcessGroup> group,
                                           const GradientReducerOptions& options) {
  std::vector<bool> expect_sparse = options.expect_sparse;
  expect_sparse.resize(parameters.size(), false);
  // As in Python's DDP: a single bucket until the first backward has told the order in which gradients become ready,
  // unless that order is never asked for.
  const bool rebuilds = options.static_graph || !options.find_unused_parameters;
  const std::vector<size_t> limits = rebuilds
                                         ? std::vector<size_t>{static_cast<size_t>(std::numeric_limits<int64_t>::max())}
                                         : std::vector<size_t>{static_cast<size_t>(options.first_bucket_bytes),
                                                               static_cast<size_t>(options.bucket_cap_bytes)};
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits, expect_sparse));
  std::reverse(buckets.begin(), buckets.end());
  std::unordered_map<size_t, std::string> names_by_index;
  for (size_t i = 0; i < names.size(); ++i) names_by_index.emplace(i, names[i]);
  return std::make_shared<ReducerEngine>(
      parameters, std::move(buckets), std::move(group), expect_sparse, options.bucket_cap_bytes,
      options.find_unused_parameters, options.gradient_as_bucket_view, std::move(names_by_index),
      options.first_bucket_bytes, options.skip_all_reduce_unused_params, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

void read_logger(c10d::Logger& logger, DdpLoggingData& data) {
  const auto facts = logger.get_ddp_logging_data();
  const auto number = [&](const char* key) {
    const auto found = facts.ints_map.find(key);
    return found == facts.ints_map.end() ? int64_t{0} : found->second;
  };
  const auto text = [&](const char* key) {
    const auto found = facts.strs_map.find(key);
    return found == facts.strs_map.end() ? std::string() : found->second;
  };
  const auto time = [&](const std::string& key) { return std::chrono::nanoseconds(number(key.c_str())); };
  const auto times = [&](const std::string& prefix) {
    return DdpLoggingData::Times{.forward = time(prefix + "forward_compute_time"),
                                 .backward = time(prefix + "backward_compute_time"),
                                 .communication = time(prefix + "backward_comm_time"),
                                 .overlap = time(prefix + "backward_compute_comm_overlap_time")};
  };
  data.iteration = number("iteration");
  data.can_set_static_graph = number("can_set_static_graph") != 0;
  data.last = times("");
  data.average = times("avg_");
  if (data.error.empty()) data.error = text("error");
}

}  // namespace ddp::detail
