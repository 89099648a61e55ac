#include "ddprun/comm/reducer.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/wrapped_parameters.h>

#include "comm/collectives/pending_work.h"
#include "comm/core/bucket_tuner.h"
#include "comm/core/graph_capture.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/watched_work.h"
#include "comm/reducer/comm_hook_adapter.h"
#include "comm/reducer/gradient_aliases.h"
#include "comm/reducer/reducer_engine.h"

namespace ddp {
namespace {

using detail::ReducerEngine;

// c10d names the parameters without gradient only at TORCH_DISTRIBUTED_DEBUG=INFO and above, else it gives indices.
std::string with_names(const std::string& text, const std::vector<std::string>& names) {
  const std::string before_indices = "Parameter indices which did not receive grad for rank ";
  const auto found = text.find(before_indices);
  if (found == std::string::npos || text.find("Parameters which did not receive grad") != std::string::npos) {
    return text;
  }
  const auto line_end = std::min(text.find('\n', found), text.size());
  const auto colon = text.find(':', found);
  if (colon >= line_end) return text;
  std::istringstream indices(text.substr(colon + 1, line_end - colon - 1));
  std::string list;
  for (size_t index = 0; indices >> index;) {
    if (index < names.size()) list += (list.empty() ? "" : ", ") + names[index];
  }
  const auto rank = text.substr(found + before_indices.size(), colon - found - before_indices.size());
  return text.substr(0, found) + "Parameters which did not receive grad for rank " + rank + ": " + list + "\n " +
         text.substr(found, line_end - found);
}

void synchronise(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace

class GradientReducer::Impl : public std::enable_shared_from_this<GradientReducer::Impl> {
 public:
  Impl(std::vector<at::Tensor> parameters, std::vector<std::string> names, const GroupHandle& group,
       GradientReducerOptions options)
      : group_(group),
        options_(std::move(options)),
        parameters_(std::move(parameters)),
        names_(std::move(names)),
        aliases_(parameters_),
        failure_(std::make_shared<detail::FailureNote>()) {
    if (options_.tune_bucket_cap) tuner_.emplace(total_bytes());
    engine_ = detail::make_engine(parameters_, names_, engine_group(), options_);
    // Gradients of before, if there are any, are now views of its buckets.
    if (options_.gradient_as_bucket_view) aliases_.replace_views();
    logger_ = std::make_shared<c10d::Logger>(engine_);
    engine_->set_logger(logger_);
    logger_->set_construction_data_and_log(options_.module_name, {}, -1, options_.broadcast_buffers,
                                           /*has_sync_bn=*/false, options_.static_graph);
    if (options_.static_graph) {
      engine_->set_static_graph();
      logger_->set_static_graph();
    }
  }

  ~Impl() {
    try {
      logger_.reset();  // it keeps the engine
      engine_->remove_autograd_hooks();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): destructors of c10d may throw, ours must not
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // After construction, since the hooks need a weak reference to this.
  void add_hooks() {
    std::function<void(size_t)> after_accumulate;
    if (options_.gradient_as_bucket_view || tuner_) {
      after_accumulate = [weak = weak_from_this()](size_t parameter) {
        if (const auto self = weak.lock()) self->after_accumulate(parameter);
      };
    }
    mark_ = std::make_unique<WrappedParameters>(parameters_, std::move(after_accumulate));
  }

  void register_comm_hook(CommHook hook, const std::string& name) {
    if (!hook_name_.empty()) {
      throw std::logic_error(who(group_.info()) + ": a communication hook can be registered once; there is already '" +
                             hook_name_ + "'");
    }
    engine_->register_comm_hook(std::make_unique<detail::CommHookAdapter>(
        std::move(hook), who(group_.info()), [this](const at::Tensor& bucket) { check_bucket(bucket); },
        [this](size_t bucket) { return engine_->bucket_parameters(bucket); }, failure_));
    hook_name_ = name.empty() ? "custom" : name;
    logger_->set_comm_hook(hook_name_);
  }

  void before_forward(const Forward& forward) {
    group_.state().group("DistributedDataParallel forward");  // throws when closed
    refuse_after_failure();
    if (forward.records_gradients && detail::is_capturing()) check_capture(forward);
    mark_->keep();
    end_queued_.store(false, std::memory_order_relaxed);
    if (forward.will_reduce) {
      logger_->set_runtime_stats_and_log();
      engine_->prepare_for_forward();
      ++reducing_forwards_;
    }
    if (forward.active_ranks) {
      engine_->set_forward_pass_work_handle(forward.active_ranks->work, forward.divide_by_initial_world_size);
      counts_active_ranks_ = true;
    } else if (std::exchange(counts_active_ranks_, false)) {
      engine_->set_forward_pass_work_handle(nullptr, /*useStaticWorldSize=*/true);
    }
    if (forward.records_gradients) rebuild();
    if (forward.will_reduce && tuner_ && !tuner_->is_finished()) tune();
  }

  void after_forward(const std::vector<at::Tensor>& outputs) {
    engine_->prepare_for_backward(outputs);
    if (is_measuring()) {
      synchronise(parameters_.front().device());
      measured_from_ = std::chrono::steady_clock::now();
    }
  }

  void reduce_after_backward() {
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->delay_all_reduce();
    });
  }

  void shadow_forward() {
    refuse_after_failure();
    rebuild();
  }

  void shadow_backward(bool keep_gradients) {
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reductions;
    auto buckets = engine_->get_grad_buckets(/*return_zero_tensors=*/true);
    for (c10d::GradBucket& bucket : buckets) reductions.push_back(engine_->run_comm_hook(bucket));
    for (const auto& reduction : reductions) reduction->waitAndThrow();
    at::Tensor used_anywhere;
    if (options_.find_unused_parameters) {
      std::vector<at::Tensor> used{engine_->get_local_used_map_on_device()};
      engine_group()->allreduce(used)->wait();
      used_anywhere = used.front();
    }
    if (keep_gradients) take_gradients(buckets, reductions, used_anywhere);
    engine_->push_rebuilt_params_for_all_indices();
  }

  void stop_tuning() {
    logger_->set_uneven_input_join();
    if (tuner_ && !tuner_->is_finished()) {
      tuner_->stop(options_.bucket_cap_bytes);
      apply_cap();
    }
  }

  std::vector<std::vector<size_t>> buckets() const { return engine_->assignment(); }

  DdpLoggingData logging_data() const {
    DdpLoggingData data{.module_name = options_.module_name,
                        .backend = group_.backend(),
                        .comm_hook = hook_name_,
                        .rank = group_.rank(),
                        .world_size = group_.size(),
                        .parameter_tensors = static_cast<int64_t>(parameters_.size()),
                        .parameter_bytes = total_bytes(),
                        .bucket_cap_bytes = tuner_ ? tuner_->bytes() : options_.bucket_cap_bytes,
                        .bucket_cap_settled = !tuner_ || tuner_->is_finished(),
                        .bucket_bytes = engine_->bucket_bytes(),
                        .has_rebuilt_buckets = engine_->has_rebuilt(),
                        .find_unused_parameters = options_.find_unused_parameters,
                        .static_graph = options_.static_graph,
                        .gradient_as_bucket_view = options_.gradient_as_bucket_view,
                        .broadcast_buffers = options_.broadcast_buffers,
                        .error = failure_->get()};
    for (const size_t index : engine_->unused_parameters()) data.unused_parameters.push_back(names_.at(index));
    detail::read_logger(*logger_, data);
    return data;
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> engine_group() {
    group_.state().group("DistributedDataParallel");  // throws when closed
    detail::BucketCheck check;
    if (options_.check_finite) check = [this](const at::Tensor& bucket) { check_bucket(bucket); };
    return detail::make_watched_group(
        group_, [failure = failure_](const std::string& message) { failure->set(message); },
        [this](std::function<void()> finish) { finish_before_engine(std::move(finish)); }, std::move(check));
  }

  // The Reducer queues its last step behind the last bucket's all-reduce, so what is queued in that call comes first.
  void finish_before_engine(std::function<void()> finish) const {
    if (torch::autograd::get_current_graph_task_id() >= 0 && !finishes_at_once_) {
      torch::autograd::Engine::get_default_engine().queue_callback(std::move(finish));
    } else {
      finish();
    }
  }

  // It reduces and finishes in one call.
  void delay_all_reduce() {
    finishes_at_once_ = true;
    const auto reset = c10::make_scope_exit([this] { finishes_at_once_ = false; });
    engine_->delay_all_reduce();
  }

  // While the stream is being captured. Warm-up as in Python: regrouping the buckets and taking the first times, all of
  // which the host has to wait for, are over after 11 iterations.
  void check_capture(const Forward& forward) {
    constexpr int64_t kWarmUp = 11;
    const auto refuse = [&](const std::string& why) {
      detail::refuse_capture(who(group_.info()) + ": DistributedDataParallel's forward", why);
    };
    const BackendTraits* backend = group_.state().backends().cuda;
    if (backend != nullptr && backend->wait_blocks) {
      refuse("backend " + backend->name + " reduces gradients through the host's memory. Use backend 'nccl'");
    }
    if (options_.find_unused_parameters) refuse("find_unused_parameters reads on the host which parameters were used");
    if (options_.check_finite) refuse("check_gradients reads every bucket on the host");
    if (forward.active_ranks) refuse("join() asks on the host which ranks still train");
    if (tuner_ && !tuner_->is_finished()) refuse("the size of the buckets is still being measured");
    const int64_t done = reducing_forwards_;
    if (done < kWarmUp) {
      refuse("it needs " + std::to_string(kWarmUp) +
             " iterations before, on a stream that is not the default one, and had " + std::to_string(done));
    }
    const int64_t rate = engine_->sample_rate();
    if (done % rate == 0 || (done + 1) % rate == 0) {
      refuse("c10d takes times in every iteration whose number is a multiple of " + std::to_string(rate) +
             ", and this is number " + std::to_string(done + 1) + ". Run two more before");
    }
  }

  int64_t total_bytes() const {
    int64_t bytes = 0;
    for (const at::Tensor& parameter : parameters_) bytes += static_cast<int64_t>(parameter.nbytes());
    return bytes;
  }

  void refuse_after_failure() const {
    const std::string failure = failure_->get();
    if (failure.empty()) return;
    throw std::runtime_error(who(group_.info()) +
                             ": an earlier backward failed, so the ranks' gradients differ and training cannot go on: "
                             "restart all ranks from a checkpoint. It was: " +
                             failure);
  }

  void check_bucket(const at::Tensor& bucket) {
    if (!options_.check_finite || !bucket.is_floating_point()) return;
    if (at::isfinite(bucket.is_sparse() ? bucket._values() : bucket).all().item<bool>()) return;
    std::string message = who(group_.info()) + ": a gradient is NaN or infinite before its reduction";
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& gradient = parameters_[i].grad();
      if (!gradient.defined() || gradient.is_sparse() || at::isfinite(gradient).all().item<bool>()) continue;
      message += ": parameter '" + names_[i] + "'";
      break;
    }
    failure_->set(message);
    throw std::runtime_error(message);
  }

  void rebuild() {
    bool rebuilt = false;
    // They would keep the old buckets in memory beside the new ones.
    if (engine_->should_rebuild_buckets()) aliases_.forget();
    try {
      rebuilt = engine_->rebuild_buckets();
    } catch (const std::exception& error) {
      if (!failure_->get().empty()) throw;
      throw std::runtime_error(who(group_.info()) + ": " + with_names(full_message(error), names_));
    }
    if (!rebuilt) return;
    if (!options_.bucket_ends.empty()) engine_->regroup_after(options_.bucket_ends);
    // Gradients that were there have become views of the new buckets.
    if (options_.gradient_as_bucket_view) aliases_.replace_views();
  }

  static std::string full_message(const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    return c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  }

  bool is_measuring() const {
    return tuner_ && !tuner_->is_finished() && (engine_->has_rebuilt() || !engine_->should_rebuild_buckets());
  }

  void tune() {
    if (tuner_->needs_decision()) {
      const at::Tensor times = at::tensor(tuner_->times(), at::kFloat).to(parameters_.front().device());
      all_reduce(times, group_, ReduceOp::kMax);
      const at::Tensor on_host = times.cpu().to(at::kDouble);
      const auto* first = on_host.const_data_ptr<double>();
      tuner_->decide(std::vector<double>(first, first + on_host.numel()));
    }
    if (is_measuring() || tuner_->is_finished()) apply_cap();
  }

  void apply_cap() {
    if (std::exchange(applied_cap_, tuner_->bytes()) == tuner_->bytes()) return;
    engine_->regroup(std::min(options_.first_bucket_bytes, tuner_->bytes()), tuner_->bytes());
    if (options_.gradient_as_bucket_view) aliases_.replace_views();
  }

  // The Reducer's bucket views are autograd views, which optimizer.zero_grad() refuses to detach. They are replaced one
  // by one, since the end of a backward that throws is never reached, and once more at the end: the Reducer's final
  // callback gives views to parameters that only other ranks have used.
  void after_accumulate(size_t parameter) {
    if (options_.gradient_as_bucket_view) aliases_.replace_view(parameter);
    queue_end_of_backward();
  }

  // That callback is queued late in backward: a callback that is queued from a callback runs after all earlier ones.
  void queue_end_of_backward() {
    if (end_queued_.exchange(true, std::memory_order_relaxed)) return;
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback([weak = weak_from_this()] {
      torch::autograd::Engine::get_default_engine().queue_callback([weak] {
        if (const auto self = weak.lock()) self->end_of_backward();
      });
    });
  }

  void end_of_backward() {
    end_queued_.store(false, std::memory_order_relaxed);
    if (options_.gradient_as_bucket_view) aliases_.replace_views();
    if (!measured_from_) return;
    synchronise(parameters_.front().device());
    tuner_->record(std::chrono::duration<double>(std::chrono::steady_clock::now() - *measured_from_).count());
    measured_from_.reset();
  }

  // What the other ranks have reduced becomes this rank's gradients, but for parameters that none of them has used.
  void take_gradients(std::vector<c10d::GradBucket>& buckets,
                      const std::vector<c10::intrusive_ptr<c10::ivalue::Future>>& reductions,
                      const at::Tensor& used_anywhere) {
    const at::NoGradGuard no_grad;
    std::unordered_set<const void*> unused;
    if (used_anywhere.defined()) {
      const at::Tensor used = used_anywhere.cpu().ne(0);
      for (size_t i = 0; i < parameters_.size(); ++i) {
        if (!used.const_data_ptr<bool>()[i]) unused.insert(parameters_[i].unsafeGetTensorImpl());
      }
    }
    for (size_t i = 0; i < buckets.size(); ++i) {
      at::Tensor reduced = c10d::detail::parseCppCommHookResult(reductions[i]->value());
      const auto bucket_parameters = buckets[i].getParameters();
      if (reduced.is_sparse()) {
        bucket_parameters.front().mutable_grad() = reduced.clone();
        continue;
      }
      buckets[i].setBuffer(reduced);
      const auto gradients = buckets[i].getGradients();
      for (size_t j = 0; j < gradients.size(); ++j) {
        if (unused.contains(bucket_parameters[j].unsafeGetTensorImpl())) continue;
        // A copy in the parameter's layout and dtype, as a backward would leave it.
        bucket_parameters[j].mutable_grad() = at::empty_like(bucket_parameters[j].detach()).copy_(gradients[j]);
      }
    }
  }

  const GroupHandle group_;
  const GradientReducerOptions options_;
  std::vector<at::Tensor> parameters_;
  const std::vector<std::string> names_;
  detail::GradientAliases aliases_;
  const std::shared_ptr<detail::FailureNote> failure_;
  std::string hook_name_;
  int64_t reducing_forwards_ = 0;
  bool counts_active_ranks_ = false;
  bool finishes_at_once_ = false;
  std::optional<detail::BucketTuner> tuner_;
  int64_t applied_cap_ = 0;
  std::optional<std::chrono::steady_clock::time_point> measured_from_;
  std::unique_ptr<WrappedParameters> mark_;
  std::atomic<bool> end_queued_{false};
  std::shared_ptr<ReducerEngine> engine_;  // late: it dies early, and its hooks refer to the parameters
  std::shared_ptr<c10d::Logger> logger_;
};

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names,
                                 const GroupHandle& group, const GradientReducerOptions& options)
    : impl_(std::make_shared<Impl>(std::move(parameters), names, group, options)) {
  impl_->add_hooks();
}

GradientReducer::~GradientReducer() = default;
void GradientReducer::register_comm_hook(CommHook hook, const std::string& name) {
  impl_->register_comm_hook(std::move(hook), name);
}
void GradientReducer::before_forward(const Forward& forward) {
  impl_->before_forward(forward);
}
void GradientReducer::after_forward(const std::vector<at::Tensor>& outputs) {
  impl_->after_forward(outputs);
}
void GradientReducer::reduce_after_backward() {
  impl_->reduce_after_backward();
}
void GradientReducer::shadow_forward() {
  impl_->shadow_forward();
}
void GradientReducer::shadow_backward(bool keep_gradients) {
  impl_->shadow_backward(keep_gradients);
}
void GradientReducer::stop_tuning() {
  impl_->stop_tuning();
}
std::vector<std::vector<size_t>> GradientReducer::buckets() const {
  return impl_->buckets();
}
DdpLoggingData GradientReducer::logging_data() const {
  return impl_->logging_data();
}

}  // namespace ddp
