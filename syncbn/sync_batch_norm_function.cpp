#include "syncbn/sync_batch_norm_function.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "syncbn/cpu_batch_norm_ops.h"

namespace ddp::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Lists the ranks for which `chosen` holds, for example "rank 2" or "ranks 0, 3".
template <typename Chosen>
std::string ranks_where(int64_t size, Chosen chosen) {
  std::string text;
  int count = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    if (!chosen(rank)) continue;
    text += (count++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

// Throws if the gathered rows show that the ranks cannot continue together. Does nothing if reading the rows would
// block the host.
void check_rows(const BatchNormOps& ops, const at::Tensor& rows, const at::Tensor& input, const SyncLayer& layer) {
  std::vector<RowSummary> all;
  for (int64_t rank = 0; rank < rows.size(0); ++rank) {
    all.push_back(ops.summary(rows, rank));
    if (!all.back().known) return;
  }
  const int64_t size = rows.size(0);
  const auto of = [&](int64_t rank) -> const RowSummary& { return all[static_cast<size_t>(rank)]; };
  const auto refused = [&](int64_t rank) { return of(rank).count == kRefused; };
  const auto records = [&](int64_t rank) { return of(rank).records_gradient; };
  const auto does_not_record = [&](int64_t rank) { return !of(rank).records_gradient && !of(rank).joined; };
  double count = 0;
  bool any_refused = false;
  bool any_records = false;
  bool any_does_not = false;
  for (int64_t rank = 0; rank < size; ++rank) {
    count += of(rank).count;
    any_refused = any_refused || refused(rank);
    any_records = any_records || records(rank);
    any_does_not = any_does_not || does_not_record(rank);
  }
  if (any_refused) {
    throw std::runtime_error(layer.describe() + ": " + ranks_where(size, refused) +
                             " got an input that does not fit the layer; see the error there");
  }
  if (any_records && any_does_not) {
    throw std::runtime_error(layer.describe() + ": " + ranks_where(size, records) +
                             " will need the gradient of this layer's input and " + ranks_where(size, does_not_record) +
                             " will not, so a backward would wait forever. Call the model on all ranks with the same "
                             "grad mode and the same requires_grad.");
  }
  if (count == 1) {
    throw std::invalid_argument(layer.describe() +
                                ": expected more than 1 value per channel over all ranks in training, got 1; its "
                                "input has the shape " +
                                shape_text(input));
  }
}

at::Tensor gather_rows(const at::Tensor& row, const SyncLayer& layer, const at::Tensor& input) {
  try {
    return all_gather(row, layer.group());
  } catch (const std::exception& error) {
    throw std::runtime_error(layer.describe() + ", input of shape " + shape_text(input) + ": " + error.what());
  }
}

// Autograd stores the values for the backward as IValues, and an IValue can hold an object of this class.
struct LayerReference final : torch::CustomClassHolder {
  explicit LayerReference(std::shared_ptr<SyncLayer> referred) : layer(std::move(referred)) {}
  const std::shared_ptr<SyncLayer> layer;
};

class SynchronizedBatchNorm final : public torch::autograd::Function<SynchronizedBatchNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const RunningStatistics& running, double eps,
                            bool records_gradient, const std::shared_ptr<SyncLayer>& layer) {
    const auto ops = batch_norm_ops_for(input.device());
    const int64_t channels = layer->channels();
    const at::Tensor x = input.contiguous(input.suggest_memory_format());
    const at::Tensor row =
        ops->local_row(x, {.channels = channels, .records_gradient = records_gradient, .refused = false});
    const at::Tensor rows = gather_rows(row, *layer, input);
    layer->record(/*gather=*/true, x);
    check_rows(*ops, rows, input, *layer);
    const BatchStatistics statistics = ops->merge(rows, channels, eps, running);

    context->save_for_backward(
        {x, weight.value_or(at::Tensor()), statistics.mean, statistics.invstd, statistics.count});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["records_gradient"] = records_gradient;
    context->saved_data["layer"] = c10::IValue::make_capsule(c10::make_intrusive<LayerReference>(layer));
    return ops->normalize(x, statistics, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const bool create_graph = at::GradMode::is_enabled();
    const auto layer =
        c10::static_intrusive_pointer_cast<LayerReference>(context->saved_data["layer"].toCapsule())->layer;
    variable_list results;
    {
      const at::NoGradGuard no_grad;
      const variable_list saved = context->get_saved_variables();
      const at::Tensor& x = saved[0];
      const at::Tensor& weight = saved[1];
      const BatchStatistics statistics{.mean = saved[2], .invstd = saved[3], .count = saved[4]};
      const auto ops = batch_norm_ops_for(x.device());
      const at::Tensor dy = gradients[0].to(x.scalar_type()).contiguous(x.suggest_memory_format());
      LocalGradients local = ops->local_gradients(dy, x, statistics, weight);
      at::Tensor dx;
      // The forward has decided this, independent of what this backward needs, so that either all ranks reduce or none
      // does.
      if (context->saved_data["records_gradient"].toBool()) {
        reduce_sums(local.sums, *layer, x);
        layer->record(/*gather=*/false, local.sums);
        dx = ops->input_gradient(dy, x, statistics, weight, local.sums);
      }
      // There is one result per argument of forward; results for arguments that are not tensors are undefined. Autograd
      // drops unneeded results and converts the others to the types of the arguments.
      results.resize(7);
      results[0] = dx;
      if (weight.defined()) results[1] = local.weight;
      if (context->saved_data["has_bias"].toBool()) results[2] = local.bias;
    }
    return create_graph ? refuse_second_derivative(std::move(results), *layer) : results;
  }

 private:
  static void reduce_sums(const at::Tensor& sums, const SyncLayer& layer, const at::Tensor& x) {
    try {
      all_reduce(sums, layer.group());
    } catch (const std::exception& error) {
      throw std::runtime_error(layer.describe() + " in backward, input of shape " + shape_text(x) + ": " +
                               error.what());
    }
  }

  // Autograd treats the gradients as constants. Differentiating through them throws instead of giving a wrong result.
  static variable_list refuse_second_derivative(variable_list results, const SyncLayer& layer) {
    const std::string message = layer.describe() +
                                ": double backward is not supported (a gradient was taken with "
                                "create_graph and then differentiated again)";
    for (at::Tensor& result : results) {
      if (!result.defined()) continue;
      torch::autograd::DelayedError refuse(message, 1);
      result = std::move(refuse.apply({result.requires_grad_()})[0]);
    }
    return results;
  }
};

void check_parameter(const at::Tensor& parameter, const char* name, const at::Tensor& input, const SyncLayer& layer) {
  if (!parameter.defined() || (parameter.numel() == layer.channels() && parameter.device() == input.device())) return;
  throw std::invalid_argument(layer.describe() + ": " + name + " has the shape " + shape_text(parameter) +
                              ", but the layer has " + std::to_string(layer.channels()) +
                              " channels and its input is " + shape_text(input));
}

// The other ranks are about to call the gather. This call tells them that this rank has refused its input, so that they
// do not wait.
void tell_refusal(const at::Tensor& input, const SyncLayer& layer) noexcept {
  if (!input.is_cpu()) return;  // the other ranks could not read the row without waiting for their device
  try {
    all_gather(CpuBatchNormOps().local_row(input, {.channels = layer.channels(), .refused = true}), layer.group());
  } catch (...) {  // NOLINT(bugprone-empty-catch): the reason for the refusal is what matters
  }
}

}  // namespace

at::Tensor sync_batch_norm_function(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                    const RunningStatistics& running, double eps,
                                    const std::shared_ptr<SyncLayer>& layer) {
  const std::string objection = layer->objection(input);
  const std::string disagreement = layer->disagreement(input);
  if (!objection.empty()) {
    if (disagreement.empty()) tell_refusal(input, *layer);
    throw std::invalid_argument(objection);
  }
  if (!disagreement.empty()) throw std::runtime_error(disagreement);
  check_parameter(weight, "weight", input, *layer);
  check_parameter(bias, "bias", input, *layer);
  check_parameter(running.mean, "running_mean", input, *layer);
  check_parameter(running.var, "running_var", input, *layer);
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  const bool records_gradient = at::GradMode::is_enabled() && input.requires_grad();
  return SynchronizedBatchNorm::apply(input, given(weight), given(bias), running, eps, records_gradient, layer);
}

}  // namespace ddp::detail
