#include "comm/reducer/reducer_engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "comm/core/engine_text.h"
#include "comm/reducer/hook_transport.h"
#include "comm/reducer/option_rules.h"
#include "comm/reducer/reducer_group.h"
#include "comm/versions/autograd_node.h"
#include "comm/versions/reducer_options.h"

namespace ddp::detail {
namespace {

// What the Reducer is given as its communication hook.
class ReducerHook final : public c10d::CommHookInterface {
 public:
  ReducerHook(CommHook hook, std::shared_ptr<const ReductionContext> context, const ReducerEngine& engine)
      : hook_(std::move(hook)), context_(std::move(context)), engine_(engine) {}

  TensorFuture runHook(c10d::GradBucket& bucket) override {
    // Its own list of parameters is not that of regrouped buckets.
    GradientBucket view(bucket, engine_.bucket_parameters(bucket.getIndex()));
    return context_->reduce(view.buffer(),
                            std::make_shared<HookTransport>(hook_, view, context_->failure(), context_->rank()));
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  const CommHook hook_;
  const std::shared_ptr<const ReductionContext> context_;
  const ReducerEngine& engine_;  // it owns this
};

// Passes warnings on to the handler before, with options in C++ spelling.
class CppWarnings final : public c10::WarningHandler {
 public:
  CppWarnings() = default;

 private:
  void process(const c10::Warning& warning) override {
    before_->process(c10::Warning(warning.type(), warning.source_location(), with_cpp_option_names(warning.msg()),
                                  warning.verbatim()));
  }

  c10::WarningHandler* before_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

// What `call` returns. Its errors and warnings name options as DdpOptions does.
template <typename Call>
auto in_cpp_spelling(Call call) {
  const CppWarnings warnings;
  try {
    return call();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    std::string translated = with_cpp_option_names(text);
    if (translated == text) throw;
    throw std::runtime_error(translated);
  }
}

// Has edges for a search through the graph only.
class PlaceholderNode final : public torch::autograd::Node {
 public:
  explicit PlaceholderNode(torch::autograd::edge_list edges) : Node(std::move(edges)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override {
    throw std::logic_error("internal error: a node without backward was run");
  }
};

}  // namespace

bool ReducerEngine::rebuild_buckets() {
  return in_cpp_spelling([this] { return Reducer::rebuild_buckets(); });
}

void ReducerEngine::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  in_cpp_spelling([&] { Reducer::prepare_for_backward(outputs); });
}

void ReducerEngine::autograd_hook(size_t parameter) {
  in_cpp_spelling([&] { Reducer::autograd_hook(parameter); });
}

void ReducerEngine::use_hook(CommHook hook, std::shared_ptr<const ReductionContext> context) {
  register_comm_hook(std::make_unique<ReducerHook>(std::move(hook), std::move(context), *this));
}

std::vector<c10d::GradBucket> ReducerEngine::zero_buckets() const {
  std::vector<c10d::GradBucket> all;
  all.reserve(buckets_.size());
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const auto& bucket = buckets_[i];
    const at::Tensor first = bucket.variables.front().detach();
    at::Tensor zeros;
    if (bucket.expect_sparse_gradient) {  // as an embedding's, whose rows are the indices
      std::vector<int64_t> no_rows = first.sizes().vec();
      no_rows.front() = 0;
      zeros = at::sparse_coo_tensor(at::zeros({1, 0}, first.options().dtype(at::kLong)),
                                    at::zeros(no_rows, first.options()), first.sizes());
    } else if (bucket.gradients.defined()) {
      zeros = at::zeros_like(bucket.gradients);
    } else {  // with lazy_bucket_allocation
      int64_t length = 0;
      for (const at::Tensor& variable : bucket.variables) length += variable.numel();
      zeros = at::zeros({length}, first.options());
    }
    all.emplace_back(i, buckets_.size(), std::move(zeros), bucket.offsets, bucket.lengths, bucket.sizes_vec,
                     bucket.variables, std::nullopt);
  }
  return all;
}

// A rank that has joined says what c10d has of its last backward, as Python's join() does.
at::Tensor ReducerEngine::sum_of_used_flags() const {
  std::vector<at::Tensor> used{get_local_used_map_on_device()};
  process_group_->allreduce(used)->wait();
  return used.front();
}

void ReducerEngine::begin_foreign_step() {
  const std::lock_guard lock(mutex_);
  expect_autograd_hooks_ = false;
  if (should_collect_runtime_stats()) record_backward_compute_start_time();
}

void ReducerEngine::note(Moment moment) {
  const std::lock_guard lock(mutex_);
  if (!should_collect_runtime_stats()) return;
  switch (moment) {
    case Moment::kFirstBucket:
      return record_backward_comm_start_time();
    case Moment::kComputed:
      return record_backward_compute_end_time();
    case Moment::kReduced:
      return record_backward_comm_end_time();
  }
}

void ReducerEngine::mark_ready_without_reduction(const std::vector<size_t>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> contents;
  for (const auto& bucket : buckets_) contents.push_back(bucket.gradients.clone());
  const auto group = std::exchange(
      process_group_, c10::make_intrusive<NullProcessGroup>(process_group_->getRank(), process_group_->getSize()));
  const auto restore = c10::make_scope_exit([&] {
    process_group_ = group;
    for (size_t i = 0; i < contents.size(); ++i) buckets_[i].gradients.copy_(contents[i]);
  });
  prepare_for_backward({});
  for (const size_t parameter : parameters) autograd_hook(parameter);
}

bool ReducerEngine::is_in_bucket(size_t parameter, const at::Tensor& view) const {
  const Bucket& bucket = buckets_.at(variable_locators_.at(parameter).bucket_index);
  if (bucket.gradients.defined()) {
    return bucket.gradients.layout() == at::kStrided && bucket.gradients.is_alias_of(view);
  }
  // With lazy_bucket_allocation c10d has released the bucket's memory, and its views have it.
  const size_t length = std::accumulate(bucket.lengths.begin(), bucket.lengths.end(), size_t{0});
  return view._base().dim() == 1 && static_cast<size_t>(view._base().numel()) == length;
}

void ReducerEngine::renew_bucket(size_t number) {
  const std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_.at(number);
  // Otherwise they would be moved into the new views.
  std::vector<at::Tensor> gradients;
  for (at::Tensor& variable : bucket.variables) {
    gradients.push_back(std::exchange(variable.mutable_grad(), at::Tensor()));
  }
  const auto restore = c10::make_scope_exit([&] {
    for (size_t i = 0; i < gradients.size(); ++i) bucket.variables[i].mutable_grad() = std::move(gradients[i]);
  });
  bucket.gradients = at::empty_like(bucket.gradients);
  bucket.future_work = nullptr;  // it holds the memory
  bucket.bucket_views_in.clear();
  bucket.bucket_views_out.clear();
  initialize_bucket_views(bucket);
}

// c10d looks for unused parameters in the graph of outputs.
at::Tensor ReducerEngine::output_of_all_parameters() const {
  torch::autograd::edge_list edges;
  for (const at::Tensor& parameter : params_) edges.push_back(torch::autograd::impl::gradient_edge(parameter));
  at::Tensor output = at::zeros({});
  torch::autograd::set_history(output, versions::make_node<PlaceholderNode>(std::move(edges)));
  return output;
}

void ReducerEngine::prepare_again() {
  if (find_unused_parameters_ && !static_graph_) return prepare_for_backward({output_of_all_parameters()});
  prepare_for_backward({});
}

void ReducerEngine::fix_gradient_order() {
  const std::lock_guard lock(mutex_);
  if (rebuilt_params_.size() <= params_.size()) return;
  rebuilt_params_.resize(params_.size());
  rebuilt_param_indices_.resize(params_.size());
}

void ReducerEngine::note_use(size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (params_[parameter].grad().defined()) local_used_map_.mutable_data_ptr<int>()[parameter] = 1;
}

void ReducerEngine::forget_reset_gradients() {
  const std::lock_guard lock(mutex_);
  auto* used = local_used_map_.mutable_data_ptr<int>();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!params_[i].grad().defined()) used[i] = 0;
  }
}

void ReducerEngine::mark_ready_without_gradient(size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (should_rebuild_buckets()) push_rebuilt_params(parameter);
  mark_variable_ready(parameter);
}

void ReducerEngine::refuse_unfinished() {
  const std::lock_guard lock(mutex_);
  in_cpp_spelling([this] { ensure_prior_reduction_finished(); });
}

void ReducerEngine::restart_static_count() {
  const std::lock_guard lock(mutex_);
  for (auto& [parameter, count] : numGradHooksTriggeredMap_) count = 0;
}

// A parameter is used where there is a gradient to be averaged, also one from an earlier no_sync().
void ReducerEngine::finish_static_backward(bool is_repeated) {
  const at::Tensor known = is_repeated ? local_used_map_.clone() : at::Tensor();
  const bool is_known = local_used_map_reduced_;
  {
    const std::lock_guard lock(mutex_);
    auto* used = local_used_map_.mutable_data_ptr<int>();
    for (size_t i = 0; i < params_.size(); ++i) used[i] = params_[i].grad().defined() ? 1 : 0;
    local_used_map_reduced_ = false;
  }
  delay_all_reduce();
  if (!is_repeated) return;
  const std::lock_guard lock(mutex_);
  if (!local_used_map_reduced_) local_used_work_->wait();
  local_used_map_.copy_(known);
  local_used_map_dev_.copy_(known);
  local_used_map_reduced_ = is_known;
}

void ReducerEngine::set_used_flags(at::Tensor sum) {
  dynamic_cast<ReducerProcessGroup&>(*process_group_).set_used_flags(std::move(sum));
}

std::vector<std::vector<size_t>> ReducerEngine::assignment() const {
  std::vector<std::vector<size_t>> indices;
  indices.reserve(buckets_.size());
  for (const auto& bucket : buckets_) indices.push_back(bucket.variable_indices);
  return indices;
}

std::vector<std::vector<size_t>> ReducerEngine::next_assignment(const std::vector<size_t>& limits) const {
  if (!should_rebuild_buckets()) return assignment();
  if (rebuilt_param_indices_.size() != params_.size()) return {};
  return std::get<0>(c10d::compute_bucket_assignment_by_size(rebuilt_params_, limits, expect_sparse_gradients_,
                                                             rebuilt_param_indices_));
}

bool ReducerEngine::can_share(size_t parameter, size_t other) const {
  return !expect_sparse_gradients_[parameter] && !expect_sparse_gradients_[other] &&
         params_[parameter].dtype() == params_[other].dtype() && params_[parameter].device() == params_[other].device();
}

bool ReducerEngine::can_have(const std::vector<std::vector<size_t>>& buckets) const {
  return std::ranges::all_of(buckets, [&](const std::vector<size_t>& bucket) {
    return std::all_of(bucket.begin() + 1, bucket.end(),
                       [&](size_t parameter) { return can_share(parameter, bucket.front()); });
  });
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
    if (!open || !can_share(index, buckets.back().front())) buckets.emplace_back();
    buckets.back().push_back(index);
    open = !is_end.contains(index);
  }
  initialize_buckets(std::move(buckets));
}

std::shared_ptr<ReducerEngine> make_engine(const std::shared_ptr<const ReductionContext>& context) {
  const ReducedModel& model = context->model();
  const DdpOptions& options = context->options();
  std::vector<bool> expect_sparse = model.sparse_gradients;
  expect_sparse.resize(model.parameters.size(), false);
  const bool has_list = !options.bucket_cap_bytes_list.empty();
  const int64_t cap = largest_bucket_bytes(options);
  const int64_t first_cap = has_list ? cap : first_bucket_bytes(options);
  // As in Python's DDP: a single bucket until the first backward has shown the order in which gradients become ready,
  // unless that order is never asked for, or single caps are given.
  const bool begins_with_one = !has_list && (options.static_graph || !options.find_unused_parameters);
  const std::vector<size_t> limits = begins_with_one
                                         ? std::vector<size_t>{static_cast<size_t>(std::numeric_limits<int64_t>::max())}
                                         : bucket_limits(options);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(model.parameters, limits, expect_sparse));
  std::reverse(buckets.begin(), buckets.end());
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < model.names.size(); ++i) names.emplace(i, model.names[i]);
  auto engine = versions::make_reducer<ReducerEngine>(
      {.batched_grad_copy = copies_in_batches(options, model, context->group().size()),
       .lazy_bucket_allocation = options.lazy_bucket_allocation},
      model.parameters, std::move(buckets), c10::make_intrusive<ReducerProcessGroup>(context), expect_sparse, cap,
      options.find_unused_parameters, options.gradient_as_bucket_view, std::move(names), first_cap,
      options.skip_all_reduce_unused_params, /*use_python_reducer=*/false, options.bucket_cap_bytes_list);
  // c10d leaves them to what was in memory until the first backward, which a rank that joins before never has.
  if (const at::Tensor flags = engine->get_local_used_map_on_device(); flags.defined()) flags.zero_();
  return engine;
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
