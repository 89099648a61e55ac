// How the weights of successive training steps become one average: exponential (EMA) or equal (SWA). Reference:
// torch.optim.swa_utils.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace ddp::optim {

/// The new average of one tensor, from the average so far, the model's tensor (both of one shape, on one device) and
/// how many models are in the average. Leaves both alone. Called without recording gradients.
using AverageFunction =
    std::function<at::Tensor(const at::Tensor& averaged, const at::Tensor& current, int64_t n_averaged)>;

/// The same for all tensors of one dtype and device at once, in place in `averaged`.
using MultiAverageFunction = std::function<void(const std::vector<at::Tensor>& averaged,
                                                const std::vector<at::Tensor>& current, int64_t n_averaged)>;

/// decay · average + (1 - decay) · model: Polyak's average with exponential weights. Throws std::invalid_argument for
/// a decay outside [0, 1].
AverageFunction get_ema_avg_fn(double decay = 0.999);
/// The same by one kernel for many tensors, with other roundings, which are those of Python's function of this name.
MultiAverageFunction get_ema_multi_avg_fn(double decay = 0.999);

/// The mean of all models so far: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
/// UAI 2018.
AverageFunction get_swa_avg_fn();
/// The same by one kernel for many tensors, with other roundings, which are those of Python's function of this name.
MultiAverageFunction get_swa_multi_avg_fn();

}  // namespace ddp::optim
