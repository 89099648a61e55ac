#include "checkpoint/lbfgs_state.h"

#include <ATen/ops/scalar_tensor.h>

#include <cmath>
#include <deque>
#include <sstream>
#include <stdexcept>

#include "checkpoint/core/lbfgs_fields.h"

namespace ddp {
namespace {

class Reader {
 public:
  Reader(const std::map<std::string, at::Tensor>& tensors, const at::Tensor& parameter)
      : tensors_(tensors), parameter_(parameter) {}

  bool has(const std::string& field) const { return tensors_.contains(field); }

  double number(const std::string& field) const {
    const at::Tensor& tensor = find(field);
    if (tensor.numel() != 1 || at::isComplexType(tensor.scalar_type()) || tensor.scalar_type() == at::kBool) {
      throw std::invalid_argument("the state " + field + " must be one number");
    }
    return tensor.item<double>();
  }

  int64_t count(const std::string& field) const {
    const double value = number(field);
    if (!(value >= 0 && value < 0x1p62) || value != std::floor(value)) {
      throw std::invalid_argument("the state " + field + " is not a number of steps");
    }
    return static_cast<int64_t>(value);
  }

  // A vector of the parameters' dtype on their device.
  at::Tensor vector(const std::string& field, int64_t numel) const {
    const at::Tensor& tensor = find(field);
    const bool fits = numel == 1 ? tensor.numel() == 1 : tensor.dim() == 1 && tensor.numel() == numel;
    if (!fits || tensor.scalar_type() != parameter_.scalar_type()) {
      std::ostringstream text;
      text << "the state " << field << " must be " << numel << " numbers of " << parameter_.scalar_type() << ", got "
           << tensor.scalar_type() << " of shape " << tensor.sizes();
      throw std::invalid_argument(text.str());
    }
    return tensor.to(parameter_.device(), tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }

  std::deque<at::Tensor> list(const std::string& name, int64_t numel, bool are_numbers) const {
    std::deque<at::Tensor> items;
    for (size_t i = 0; has(name + "." + std::to_string(i)); ++i) {
      const at::Tensor item = vector(name + "." + std::to_string(i), numel);
      items.push_back(are_numbers ? item.reshape({}) : item);
    }
    return items;
  }

 private:
  const at::Tensor& find(const std::string& field) const {
    const auto found = tensors_.find(field);
    if (found == tensors_.end()) throw std::invalid_argument("the state " + field + " is missing");
    return found->second;
  }

  const std::map<std::string, at::Tensor>& tensors_;
  const at::Tensor& parameter_;
};

}  // namespace

std::map<std::string, at::Tensor> lbfgs_tensors(const torch::optim::LBFGSParamState& state) {
  std::map<std::string, at::Tensor> tensors;
  const auto add_list = [&](const std::string& name, const std::deque<at::Tensor>& items) {
    for (size_t i = 0; i < items.size(); ++i) tensors.emplace(name + "." + std::to_string(i), items[i]);
  };
  tensors.emplace("func_evals", at::scalar_tensor(state.func_evals(), at::kLong));
  tensors.emplace("n_iter", at::scalar_tensor(state.n_iter(), at::kLong));
  if (!state.d().defined()) return tensors;  // no step was needed yet
  tensors.emplace("d", state.d());
  tensors.emplace("t", at::scalar_tensor(state.t(), at::kDouble));
  tensors.emplace("prev_flat_grad", state.prev_flat_grad());
  tensors.emplace("prev_loss", at::scalar_tensor(state.prev_loss(), at::kDouble));
  tensors.emplace("H_diag", state.H_diag());
  add_list("old_dirs", state.old_dirs());
  add_list("old_stps", state.old_stps());
  add_list("ro", state.ro());
  return tensors;
}

std::unique_ptr<torch::optim::LBFGSParamState> lbfgs_state(const std::map<std::string, at::Tensor>& tensors,
                                                           const at::Tensor& parameter, int64_t numel,
                                                           int64_t history_size) {
  const Reader reader(tensors, parameter);
  auto state = std::make_unique<torch::optim::LBFGSParamState>();
  state->func_evals(reader.count("func_evals"));
  state->n_iter(reader.count("n_iter"));
  if (state->n_iter() == 0) return state;
  state->d(reader.vector("d", numel));
  state->t(reader.number("t"));
  state->prev_flat_grad(reader.vector("prev_flat_grad", numel));
  state->prev_loss(reader.number("prev_loss"));
  // Before the second iteration it is the integer 1.
  state->H_diag(at::scalar_tensor(reader.number("H_diag"), parameter.options().requires_grad(false)));
  state->old_dirs(reader.list("old_dirs", numel, /*are_numbers=*/false));
  state->old_stps(reader.list("old_stps", numel, /*are_numbers=*/false));
  state->ro(reader.list("ro", 1, /*are_numbers=*/true));
  const size_t size = state->old_dirs().size();
  if (state->old_stps().size() != size || state->ro().size() != size) {
    throw std::invalid_argument("the lists old_dirs, old_stps and ro must be of one length, got " +
                                std::to_string(size) + ", " + std::to_string(state->old_stps().size()) + " and " +
                                std::to_string(state->ro().size()));
  }
  // Each step drops at most one entry, so a history that is too long would stay too long.
  if (size > static_cast<size_t>(history_size)) {
    throw std::invalid_argument("it holds a history of " + std::to_string(size) + " steps, more than history_size, " +
                                std::to_string(history_size));
  }
  return state;
}

}  // namespace ddp
