#include "comm/reducer/reducer.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/progress/own_page.h"
#include "comm/collectives/pending_work.h"
#include "comm/core/bucket_text.h"
#include "comm/core/graph_capture.h"
#include "comm/group/group_state.h"
#include "comm/reducer/bucket_tuning.h"
#include "comm/reducer/cpu_reducer.h"
#include "comm/reducer/gradient_router.h"
#include "comm/reducer/held_gradients.h"
#include "comm/reducer/option_rules.h"
#include "comm/reducer/parameter_gradients.h"
#include "comm/reducer/reducer_engine.h"
#include "comm/reducer/reduction_context.h"
#include "comm/reducer/shadow_backward.h"
#include "comm/reducer/unfinished_reduction.h"

namespace ddp::detail {
namespace {

// c10d moves gradients of before into its buckets.
std::shared_ptr<ReducerEngine> make_engine_beside_held_gradients(const std::shared_ptr<ReductionContext>& context) {
  if (!context->options().gradient_as_bucket_view) return make_engine(context);
  const ScopedGradientRemoval held(context->model().parameters);
  return make_engine(context);
}

}  // namespace

GradientReducer::GradientReducer(ReducedModel model, const GroupHandle& group, const DdpOptions& options)
    : context_(std::make_shared<ReductionContext>(std::move(model), group, options)),
      bucket_ends_(indices_of_bucket_ends()),
      tuning_(options.bucket_cap_bytes.is_automatic() ? std::make_shared<BucketTuning>(context_) : nullptr),
      gradients_(std::make_shared<ParameterGradients>(context_->model().parameters, options.gradient_as_bucket_view,
                                                      tuning_,
                                                      copies_in_batches(options, context_->model(), group.size()))),
      engine_(make_engine_beside_held_gradients(context_)) {
  logger_ = std::make_shared<c10d::Logger>(engine_);
  engine_->set_logger(logger_);
  logger_->set_construction_data_and_log(context_->model().name, {}, -1, syncs_buffers_in_forward(options),
                                         /*has_sync_bn=*/false, options.static_graph);
  if (options.static_graph) {
    engine_->set_static_graph();
    engine_->get_local_used_map_on_device().zero_();  // a rank that joins before its first backward sends them
    logger_->set_static_graph();
  }
  const std::string beyond = unsupported_by_cpu_reducer(options, context_->model());
  if (options.own_engine.value_or(false)) refuse_own_reduction(beyond);
  if (options.own_engine.value_or(beyond.empty()))
    cpu_reducer_ = std::make_shared<CpuReducer>(context_, engine_, gradients_);
  // One hook for each parameter, in place of the engine's own, which would be a second one.
  engine_->remove_autograd_hooks();
  router_ = std::make_shared<GradientRouter>(context_, gradients_, engine_, cpu_reducer_);
  gradients_->follow_backward(router_);
  gradients_->replace_views();  // of gradients of before, which are in buckets now
  if (options.comm_hook) register_comm_hook(options.comm_hook, "");
}

void GradientReducer::register_comm_hook(CommHook hook, const std::string& name) {
  HookAgreement& agreement = *context_->hook();
  if (!agreement.name().empty()) {
    throw std::logic_error(context_->rank() + ": a communication hook can be registered once; there is already '" +
                           agreement.name() + "'");
  }
  agreement.set(name.empty() ? hook_name(hook) : name);
  if (context_->options().own_engine.value_or(false)) refuse_own_reduction("comm_hook");
  engine_->use_hook(std::move(hook), context_);
  logger_->set_comm_hook(agreement.name());
}

void GradientReducer::before_forward(const ForwardSettings& forward) {
  context_->group().state().group("DistributedDataParallel forward");  // throws when closed
  context_->refuse_after_failure();
  if (forward.records_gradients && is_capturing()) check_capture(forward);
  gradients_->before_forward();
  if (forward.records_gradients) router_->refuse_after_missing_gradients();
  if (forward.will_reduce) {
    logger_->set_runtime_stats_and_log();
    if (router_->begin_reducing_forward()) engine_->prepare_for_forward();
    ++reducing_forwards_;
  }
  if (forward.active_ranks) {
    engine_->set_forward_pass_work_handle(forward.active_ranks->work, forward.divide_by_initial_world_size);
    counts_active_ranks_ = true;
  } else if (std::exchange(counts_active_ranks_, false)) {
    engine_->set_forward_pass_work_handle(nullptr, /*useStaticWorldSize=*/true);
  }
  if (forward.records_gradients) {
    rebuild();
    router_->begin_forward();
  }
  if (!forward.will_reduce || !tuning_) return;
  const auto held = remove_held_gradients();
  if (tuning_->before_forward(*engine_)) regrouped();
}

void GradientReducer::after_forward(const std::vector<at::Tensor>& outputs, bool are_known, bool will_reduce) {
  if (!will_reduce) return router_->expect_local_backward(outputs, are_known);
  router_->expect_reduction(outputs, are_known, counts_active_ranks_);
  expect_step();
  if (tuning_) tuning_->after_forward(*engine_);
}

void GradientReducer::set_sync_enabled(bool enabled) {
  router_->set_sync_enabled(enabled);
}

bool GradientReducer::is_in_reduced_backward() const {
  return router_->is_in_reduced_backward();
}

bool GradientReducer::reduces_backward() const {
  return router_->reduces_backward();
}

void GradientReducer::begin_backward() {
  gradients_->begin_backward();
}

bool GradientReducer::has_trainable_parameters() const {
  return std::ranges::any_of(context_->model().parameters,
                             [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

bool GradientReducer::knows_static_graph() const {
  return router_->knows_static_graph();
}

std::string GradientReducer::unfinished() const {
  return router_->unfinished();
}

void GradientReducer::shadow_forward() {
  context_->refuse_after_failure();
  rebuild();
}

void GradientReducer::shadow_backward(bool keep_gradients) {
  const bool is_first_static = router_->awaits_static_backward();
  const at::Tensor flags = detail::shadow_backward(*engine_, *context_, keep_gradients, is_first_static);
  if (is_first_static) router_->skip_static_backward(flags);
}

void GradientReducer::stop_tuning() {
  logger_->set_uneven_input_join();
  if (!tuning_) return;
  const auto held = remove_held_gradients();
  if (tuning_->stop(*engine_)) regrouped();
}

std::string GradientReducer::bucket_layout() const {
  // Automatic sizes are found anew in each run. Where parameters are named that end buckets these are known when the
  // buckets are.
  const bool is_unknown = tuning_ || (!bucket_ends_.empty() && engine_->should_rebuild_buckets());
  const DdpOptions& options = context_->options();
  return to_text(is_unknown ? BucketIndices() : engine_->next_assignment(bucket_limits(options)));
}

void GradientReducer::use_bucket_layout(const std::string& text) {
  BucketIndices buckets = buckets_from(text, context_->model().parameters.size());
  if (buckets.empty() || tuning_ || reducing_forwards_ > 0 || engine_->has_rebuilt()) return;
  if (!engine_->can_have(buckets)) {
    throw std::invalid_argument(context_->rank() +
                                ": the gradient buckets belong to another model: they hold parameters " +
                                "of several dtypes or devices");
  }
  const auto held = remove_held_gradients();
  gradients_->forget();
  engine_->initialize_buckets(std::move(buckets));
  regrouped();
}

DdpLoggingData GradientReducer::logging_data() const {
  DdpLoggingData data = detail::logging_data(context_->options(), context_->model(), context_->group());
  data.comm_hook = context_->hook()->name();
  if (tuning_) {
    data.bucket_cap_bytes = tuning_->bytes();
    data.bucket_cap_settled = tuning_->is_finished();
  }
  data.bucket_bytes = engine_->bucket_bytes();
  data.renewed_buckets = router_->held_gradients().renewed_buckets();
  data.has_rebuilt_buckets = engine_->has_rebuilt();
  data.error = context_->failure()->get();
  for (const size_t index : engine_->unused_parameters())
    data.unused_parameters.push_back(context_->model().names.at(index));
  read_logger(*logger_, data);
  return data;
}

// While the stream is being captured. Warm-up as in Python: regrouping the buckets and taking the first times, all of
// which the host has to wait for, end after 11 iterations.
void GradientReducer::check_capture(const ForwardSettings& forward) const {
  constexpr int64_t kWarmUp = 11;
  const auto refuse = [&](const std::string& why) {
    refuse_capture(context_->rank() + ": DistributedDataParallel's forward", why);
  };
  const BackendTraits* backend = context_->group().state().backends().cuda;
  if (backend != nullptr && backend->wait_blocks) {
    refuse("backend " + backend->name + " reduces gradients through the host's memory. Use backend 'nccl'");
  }
  const DdpOptions& options = context_->options();
  if (options.find_unused_parameters) refuse("find_unused_parameters reads on the host which parameters were used");
  if (options.check_gradients) refuse("check_gradients reads every bucket on the host");
  if (forward.active_ranks) refuse("join() determines on the host which ranks still have inputs");
  if (tuning_ && !tuning_->is_finished()) refuse("the size of the buckets is still being measured");
  const int64_t done = reducing_forwards_;
  if (done < kWarmUp) {
    refuse("it needs " + std::to_string(kWarmUp) +
           " iterations on a non-default stream before the capture, and has had " + std::to_string(done));
  }
  const int64_t rate = engine_->sample_rate();
  if (done % rate == 0 || (done + 1) % rate == 0) {
    refuse("c10d measures times in each iteration whose number is a multiple of " + std::to_string(rate) +
           ", and this is number " + std::to_string(done + 1) + ". Run two more iterations before the capture");
  }
}

void GradientReducer::rebuild() {
  bool rebuilt = false;
  std::unique_ptr<ScopedGradientRemoval> held;
  if (engine_->will_rebuild()) {
    held = remove_held_gradients();
    gradients_->forget();  // aliases would keep the old buckets in memory beside the new ones
  }
  try {
    if (cpu_reducer_) cpu_reducer_->report_ready_gradients();
    rebuilt = engine_->rebuild_buckets();
  } catch (const std::exception& error) {
    if (!context_->failure()->get().empty()) throw;
    throw std::runtime_error(context_->rank() + ": " + with_parameter_names(error, context_->model().names));
  }
  if (!rebuilt) return;
  if (!bucket_ends_.empty()) engine_->regroup_after(bucket_ends_);
  regrouped();
}

std::unique_ptr<ScopedGradientRemoval> GradientReducer::remove_held_gradients() const {
  if (!context_->options().gradient_as_bucket_view) return nullptr;
  return std::make_unique<ScopedGradientRemoval>(router_->held_gradients());
}

// Gradients that were there are in the new buckets now.
void GradientReducer::regrouped() {
  router_->held_gradients().forget();
  gradients_->replace_views();
  if (cpu_reducer_) cpu_reducer_->forget();
}

void GradientReducer::refuse_own_reduction(const std::string& beyond) const {
  if (beyond.empty()) return;
  throw std::invalid_argument(context_->rank() + ": DistributedDataParallel: own_engine cannot be combined with " +
                              beyond + ": leave own_engine out to reduce with c10d's engine");
}

std::vector<size_t> GradientReducer::indices_of_bucket_ends() const {
  const std::vector<std::string>& names = context_->model().names;
  std::vector<size_t> ends;
  for (const std::string& name : context_->options().bucket_ends) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      throw std::invalid_argument(context_->rank() + ": DistributedDataParallel: bucket_ends names '" + name +
                                  "', which is not a parameter of the model that requires a gradient");
    }
    ends.push_back(static_cast<size_t>(found - names.begin()));
  }
  return ends;
}

}  // namespace ddp::detail
