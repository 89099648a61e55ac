#include "comm/reducer/gradient_router.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "base/joined.h"
#include "comm/reducer/unfinished_reduction.h"

namespace ddp::detail {

GradientRouter::GradientRouter(std::shared_ptr<ReductionContext> context, std::shared_ptr<ParameterGradients> gradients,
                               std::shared_ptr<ReducerEngine> engine, std::shared_ptr<CpuReducer> cpu_reducer)
    : context_(std::move(context)),
      gradients_(std::move(gradients)),
      engine_(std::move(engine)),
      cpu_reducer_(std::move(cpu_reducer)),
      is_static_(context_->options().static_graph),
      finds_unused_(context_->options().find_unused_parameters && !is_static_),
      in_buckets_(context_->options().gradient_as_bucket_view),
      held_gradients_(context_->model().parameters, gradients_, engine_),
      taken_(context_->model().parameters.size(), 0),
      absent_(context_->model()) {}

GradientRouter::~GradientRouter() {
  classifier_.refuse_backwards(
      context_->model().parameters,
      context_->rank() +
          ": DistributedDataParallel: this backward belongs to a forward of a wrapper that does not exist any more, so "
          "its gradients would not be averaged over the ranks. Keep the wrapper until its last backward has run");
}

void GradientRouter::begin_forward() {
  const std::lock_guard lock(mutex_);
  classifier_.begin_forward();
}

bool GradientRouter::begin_reducing_forward() {
  const std::lock_guard lock(mutex_);
  if (!is_static_ || knows_static_graph_) return true;
  return !std::exchange(has_static_iteration_, true);
}

void GradientRouter::expect_reduction(const std::vector<at::Tensor>& outputs, bool are_known,
                                      bool counts_active_ranks) {
  const std::lock_guard lock(mutex_);
  mode_ = Mode::kIdle;  // also after a backward that threw
  held_gradients_.drop();
  has_refused_ = false;
  frozen_.clear();
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (!context_->model().parameters[i].requires_grad()) frozen_.push_back(i);
  }
  ++reduction_;
  classifier_.add_forward(/*reduces=*/true, outputs, are_known);
  counts_active_ranks_ = counts_active_ranks;
  is_repeating_ = false;
  missing_.clear();
  if (is_static_ && !knows_static_graph_) engine_->restart_static_count();
  // Inside join() only c10d's engine knows the number of ranks to divide by.
  if (cpu_reducer_ && counts_active_ranks_) cpu_reducer_->skip_step();
  if (cpu_reducer_ && !counts_active_ranks_ && cpu_reducer_->begin_step()) return;
  std::vector<at::Tensor> looked_at;
  if (finds_unused_) {
    std::ranges::copy_if(outputs, std::back_inserter(looked_at), [](const auto& output) { return output.defined(); });
  }
  engine_->prepare_for_backward(looked_at);
}

void GradientRouter::expect_local_backward(const std::vector<at::Tensor>& outputs, bool are_known) {
  const std::lock_guard lock(mutex_);
  classifier_.add_forward(/*reduces=*/false, outputs, are_known);
}

void GradientRouter::begin(size_t parameter) {
  switch (classifier_.classify(sync_enabled_)) {
    case BackwardKind::kLocal:
      mode_ = Mode::kLocal;
      return;
    case BackwardKind::kReduce:
      // c10d has looked for unused parameters in the outputs of the last forward only.
      if (finds_unused_ && !classifier_.is_of_last_reducing_only()) engine_->prepare_again();
      break;
    case BackwardKind::kReduceAgain:
      prepare_again(parameter);
      break;
    case BackwardKind::kWithoutForward:
      throw std::logic_error(
          context_->rank() + ": DistributedDataParallel: parameter " + name_of(parameter) +
          " got a gradient in a backward that belongs to no forward of the wrapper (or to one whose gradients were "
          "already reduced and whose output type is not known), so it would not be averaged over the ranks. A loss of "
          "the model: "
          "compute it from model(x), not from net(x), and call model(x) once for each backward. A loss of the "
          "parameters alone, such as a penalty on the weights: add it to the loss of the model, or call its "
          "backward under model->no_sync(), since it is the same on all ranks. Gradients that are meant to stay on "
          "one rank: run forward and backward under model->no_sync()");
  }
  // c10d averages their values and not their graphs, refuses most of them, and divides some twice.
  if (at::GradMode::is_enabled()) {
    throw std::logic_error(context_->rank() + ": DistributedDataParallel: parameter " + name_of(parameter) +
                           " got a gradient that has its own autograd graph (create_graph) and cannot be averaged over "
                           "the ranks. Compute such gradients with autograd::grad(), or under model->no_sync()");
  }
  mode_ = Mode::kReducing;
  watch_.begin(context_->model().parameters);
  renew_buckets();
  // c10d moves all gradients of a bucket when it allocates that.
  if (in_buckets_ && context_->options().lazy_bucket_allocation) held_gradients_.remember_all();
  if (!finds_unused_) return complete_frozen();
  engine_->forget_reset_gradients();
  if (!in_buckets_) return;
  // c10d moves them into buckets when the first gradient comes.
  for (const size_t unused : engine_->unused_parameters()) {
    if (held_gradients_.is_held(unused, {})) held_gradients_.remember(unused);
  }
}

// c10d's search for unused parameters passes over them; without it nothing shows that they receive no gradient.
void GradientRouter::complete_frozen() {
  if (is_static_) return;
  std::vector<size_t> frozen;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (context_->model().parameters[i].requires_grad()) continue;
    frozen.push_back(i);
    taken_[i] = reduction_;
    if (in_buckets_ && held_gradients_.is_held(i, {})) held_gradients_.remember(i);
  }
  mark_ready_without_gradient(frozen);
}

bool GradientRouter::is_in_reduced_backward() const {
  const std::lock_guard lock(mutex_);
  return mode_ == Mode::kReducing;
}

bool GradientRouter::reduces_backward() const {
  const std::lock_guard lock(mutex_);
  if (mode_ != Mode::kIdle) return mode_ == Mode::kReducing;
  const BackwardKind kind = classifier_.classify(sync_enabled_);
  return kind == BackwardKind::kReduce || kind == BackwardKind::kReduceAgain;
}

// The gradients of this backward are added to the means of the last one, and the mean over the ranks of a mean is
// itself: the result is that of two forwards whose backwards accumulate.
void GradientRouter::prepare_again(size_t parameter) {
  if (counts_active_ranks_) {
    throw std::logic_error(
        context_->rank() + ": DistributedDataParallel: parameter " + name_of(parameter) +
        " got a gradient in a second backward of one forward inside join(). Ranks without inputs take "
        "part in one reduction for each forward: add the losses and call backward() once");
  }
  ++reduction_;
  is_repeating_ = true;
  if (!cpu_reducer_ || !cpu_reducer_->begin_step()) engine_->prepare_again();
}

void GradientRouter::renew_buckets() {
  if (!in_buckets_ || !held_gradients_.renew_buckets()) return;
  if (cpu_reducer_) cpu_reducer_->rebind_buckets();
}

bool GradientRouter::take(size_t parameter, const at::Tensor& incoming) {
  const std::lock_guard lock(mutex_);
  if (mode_ == Mode::kIdle) begin(parameter);
  if (mode_ == Mode::kLocal) {
    if (finds_unused_) engine_->note_use(parameter);
    return false;
  }
  if (!context_->model().parameters[parameter].requires_grad()) return false;  // autograd has accumulated nothing
  // The loss does not depend on the output that this use belongs to: the use does not count.
  if (is_static_ && !incoming.defined()) return false;
  taken_[parameter] = reduction_;
  missing_.erase(parameter);
  if (is_repeating_static()) return false;  // c10d would count it as another use of the parameter
  const bool is_held = in_buckets_ && !at::GradMode::is_enabled() && held_gradients_.is_held(parameter, incoming);
  if (is_held) held_gradients_.remember(parameter);
  if (cpu_reducer_ && cpu_reducer_->take(parameter, is_held)) return true;
  engine_->autograd_hook(parameter);
  return false;
}

bool GradientRouter::is_reducing() const {
  return engine_->is_reducing() || (cpu_reducer_ && cpu_reducer_->is_in_step());
}

bool GradientRouter::end_backward(bool is_outermost) {
  const std::lock_guard lock(mutex_);
  if (mode_ == Mode::kReducing) {
    if (!is_reducing()) {
      finish();
      mode_ = Mode::kIdle;
      refuse_changed_parameters();
    } else if (is_outermost && try_complete_reduction()) {
      return true;
    }
  }
  mode_ = Mode::kIdle;
  return false;
}

// Returns true when that has been started or done, and the end of backward has to be looked at again.
bool GradientRouter::try_complete_reduction() {
  if (is_static_ && (!knows_static_graph_ || is_repeating_)) {
    if (in_buckets_) held_gradients_.remember_all_held();
    context_->finishing_at_once([this] { engine_->finish_static_backward(is_repeating_static()); });
    return true;
  }
  const std::vector<size_t> missing = find_missing();
  if (!finds_unused_ && !is_repeating_) {
    std::vector<size_t> unexplained;
    std::ranges::set_difference(missing, frozen_, std::back_inserter(unexplained));
    if (is_static_ || (!unexplained.empty() && classifier_.uses_all_outputs())) refuse_unfinished();
    // Another backward may bring them, as in Python. The optimizer may step before, on gradients that are averaged
    // then.
    missing_.insert(unexplained.begin(), unexplained.end());
  }
  mark_ready_without_gradient(missing);
  return true;
}

void GradientRouter::mark_ready_without_gradient(const std::vector<size_t>& parameters) {
  for (const size_t parameter : parameters) {
    if (!finds_unused_) absent_.fill(parameter);
    if (!cpu_reducer_ || !cpu_reducer_->take(parameter, held_gradients_.is_remembered(parameter)))
      engine_->mark_ready_without_gradient(parameter);
  }
}

std::vector<size_t> GradientRouter::find_missing() {
  std::unordered_set<size_t> is_unused;
  if (finds_unused_) is_unused.insert(engine_->unused_parameters().begin(), engine_->unused_parameters().end());
  std::vector<size_t> missing;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] == reduction_ || is_unused.contains(i)) continue;
    missing.push_back(i);
    if (in_buckets_ && held_gradients_.is_held(i, {})) held_gradients_.remember(i);
  }
  return missing;
}

void GradientRouter::refuse_after_missing_gradients() {
  const std::lock_guard lock(mutex_);
  if (has_thrown_) {
    throw std::runtime_error(
        context_->rank() +
        ": DistributedDataParallel: the last backward has thrown while gradients were being reduced, so some are "
        "averaged over the ranks and some are not. A program may catch the exception of a backward and end, but "
        "must not continue: restart all ranks from a checkpoint");
  }
  if (missing_.empty()) return;
  has_refused_ = true;
  std::string indices;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (!missing_.contains(i)) continue;
    if (!indices.empty()) indices += ' ';
    indices += std::to_string(i);
  }
  const std::string rank = std::to_string(context_->group().rank());
  throw std::runtime_error(
      context_->rank() +
      ": Expected to have finished reduction in the prior iteration before starting a new one: the backward of "
      "the last forward gave some parameters of the model no gradient. Use every output of the forward in the loss, or "
      "set DdpOptions::find_unused_parameters = true if the loss does not depend on all parameters.\n"
      "Parameters which did not receive grad for rank " +
      rank + ": " + names_of_missing() + "\n Parameter indices which did not receive grad for rank " + rank + ": " +
      indices);
}

void GradientRouter::refuse_unfinished() {
  has_refused_ = true;
  try {
    if (cpu_reducer_) cpu_reducer_->report_ready_gradients();
    engine_->refuse_unfinished();
  } catch (const std::exception& error) {
    throw std::runtime_error(context_->rank() + ": " + with_parameter_names(error, context_->model().names));
  }
}

void GradientRouter::finish() {
  classifier_.finish_reduction();
  engine_->fix_gradient_order();
  absent_.take_back();
  held_gradients_.restore_gradients();
  if (!is_static_ || knows_static_graph_) return;
  knows_static_graph_ = true;
  // Ranks that took part from the beginning find the order of the gradients in the next backward.
  if (skipped_static_) engine_->push_rebuilt_params_for_all_indices();
}

void GradientRouter::skip_static_backward(at::Tensor used_flags) {
  const std::lock_guard lock(mutex_);
  skipped_static_ = true;
  engine_->set_used_flags(std::move(used_flags));
}

void GradientRouter::abandon_backward() {
  const std::lock_guard lock(mutex_);
  if (mode_ == Mode::kReducing && !has_refused_) has_thrown_ = true;
  mode_ = Mode::kIdle;
  held_gradients_.drop();
  absent_.drop();
}

// An optimizer that steps in a hook steps on the gradient of this rank.
void GradientRouter::refuse_changed_parameters() const {
  const auto changed = watch_.changed(context_->model().parameters);
  if (!changed) return;
  const std::string message =
      context_->rank() + ": DistributedDataParallel: parameter " + name_of(*changed) +
      " was changed in place while the backward ran, before its gradient was averaged over the ranks, so the ranks' "
      "parameters differ. An optimizer must not step in a hook of the backward: call step() after backward()";
  context_->failure()->set(message);
  throw std::runtime_error(message);
}

bool GradientRouter::is_in_bucket(size_t parameter, const at::Tensor& view) const {
  return !held_gradients_.has_restored(parameter) && engine_->is_in_bucket(parameter, view);
}

std::string GradientRouter::name_of(size_t parameter) const {
  return "'" + context_->model().names[parameter] + "'";
}

std::string GradientRouter::names_of_missing() const {
  std::string names;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (missing_.contains(i)) detail::append_item(names, context_->model().names[i]);
  }
  return names;
}

std::string GradientRouter::unfinished() const {
  const std::lock_guard lock(mutex_);
  if (has_refused_ || missing_.empty() || !context_->failure()->get().empty()) return "";
  return context_->rank() +
         ": DistributedDataParallel: the last backward gave no gradient to some parameters of the model: " +
         names_of_missing() + ". Set DdpOptions::find_unused_parameters = true for such models";
}

}  // namespace ddp::detail
